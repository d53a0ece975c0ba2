"""``tauflow forecast``: later values of a table, of any variable at any time.

By the pretrained forecaster, or by one that is trained on the table.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .feature_table import READING_OPTIONS, add_feature_table_options
from .new_rows import OutOption, check_output_file, write_answers

if TYPE_CHECKING:
    from pandas import DataFrame

_MAX_ORIGINS = 20
_ALIKE, _ROUNDING = 1e-3, 1e-6  # differences of errors that do not count
FORECAST_SCORES_FILE = "scores.csv"
"""Name of the file in the folder of a run that has its scores."""
_TRAINING_OPTIONS = (
    "known",
    "window",
    "model",
    "hidden_size",
    "epochs",
    "seed",
    "save",
    "runs_dir",
)
_ROLES = ("id", "time", "static", "duplicates")
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        help="When: times after the last row of each id, such as '24h,48h' or, where times are "
        "numbers, '24,48'; or a file of ids and times, .csv, .csv.gz or .parquet.",
    ),
]


@add_feature_table_options
def forecast(
    ctx: typer.Context,
    table: Annotated[Path, typer.Argument(help="The rows, .csv, .csv.gz or .parquet.")],
    at: AtOption = None,
    out: OutOption = Path("-"),
    max_lead_time: Annotated[
        str | None,
        typer.Option(
            help="Trains a forecaster on the table, for times up to so long after the last row, "
            "'48h' or a number. Without it, the pretrained one answers at once."
        ),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(help="Columns to forecast, with commas; by default all others with numbers."),
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(help="Columns whose later values are known, as in rows after the last one."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(help="The ends of intervals that hold so many per cent of the values."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Rows before a forecast that are read; by default those of eight times "
            "--max-lead-time, from 64 to 512.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="A cell; see 'tauflow models'.")] = "cfc",
    hidden_size: Annotated[int, typer.Option(min=1, help="Neurons.")] = 32,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Passes over the training data; by default as many as make 600 steps."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights and of what is held out.")] = 0,
    save: Annotated[
        Path | None, typer.Option(help="File to keep the forecaster in, beside the run's folder.")
    ] = None,
    runs_dir: Annotated[Path, typer.Option(help="Where the run gets its folder.")] = Path("runs"),
    *,
    table_options: dict[str, Any],
) -> None:
    """Forecast any variable of a table at any time after the last row of each id.

    --time and --at are needed; without --id the table is one series. Without more the answer is
    that of a network which was trained on generated series: each variable by itself, compared with
    the other ids.

    --max-lead-time trains a forecaster on the table instead. The run's folder holds it, for
    'tauflow predict RUN --at', and its scores; --at is not needed then. A fifth of the ids is held
    out first, or of fewer than five the last rows, to score the forecaster beside simple ones, and
    to count how many values its intervals hold. Then it is trained on all.
    """
    from tauflow._internal.atomic_write import write_atomically
    from tauflow.errors import ArgumentError
    from tauflow.estimators import SequenceForecaster
    from tauflow.export.output_paths import check_file_place

    from .certainty_options import parse_percentage
    from .feature_table import read_feature_table
    from .table_options import parse_names

    check_output_file(out, table, "the rows")
    if at is not None:
        check_output_file(out, Path(at), "--at")
    if save is not None:
        check_file_place(save)
    roles = {name: table_options.get(name) for name in _ROLES}
    id, time, static = roles["id"], roles["time"], roles["static"]
    if time is None:
        raise ArgumentError("no column of times is named. Give it: --time.")
    target_names = parse_names("targets", targets or "")
    known_names = parse_names("known", known or "")
    more = [*target_names, *known_names]
    frame, names = read_feature_table(table, table_options, more, needs_id=False)
    part = frame[[*([id] if id else []), time, *names, *(static or ())]]
    level = parse_percentage(interval)
    if max_lead_time is None:
        _check_untrained(ctx)
        asked = read_queries(str(at), table_options)
        return _write_untrained(part, roles, asked, target_names, level, out)
    forecaster = SequenceForecaster(
        model=model,
        hidden_size=hidden_size,
        epochs="auto" if epochs is None else epochs,
        random_state=seed,
        max_lead_time=_to_number(max_lead_time),
        targets=target_names or None,
        known=known_names or None,
        window=window,
        intervals=None if level is None else "quantile",
    )
    asked = None if at is None else read_queries(at, table_options)
    scores = _score_held_out(forecaster, part, roles, level)
    if scores is not None:
        _print_scores(scores)
    forecaster.fit(part, **roles)
    directory = _keep_run(forecaster, table, runs_dir, table_options)
    if scores is not None:
        text = scores.to_csv(index_label="target")
        write_atomically(directory / FORECAST_SCORES_FILE, text.encode())
    if save is not None:
        forecaster.save(save)
    if asked is not None:
        write_answers([forecaster.forecast(part, asked, interval=level)], out, "row")


def _check_untrained(ctx: typer.Context) -> None:
    """Raise an error for what only a forecaster that is trained can use."""
    from tauflow.errors import ArgumentError

    for option in ctx.command.params:
        source = ctx.get_parameter_source(str(option.name))
        if option.name in _TRAINING_OPTIONS and source is not None and source.name == "COMMANDLINE":
            raise ArgumentError(
                f"{option.opts[0]} is for a forecaster that is trained on the table. Give "
                "--max-lead-time too, or leave it out."
            )
    if ctx.params["at"] is None:
        raise ArgumentError("nothing says when. Give --at, such as --at 24h.")


def _write_untrained(
    part: "DataFrame",
    roles: Mapping[str, Any],
    asked: "str | list[float] | DataFrame",
    targets: tuple[str, ...],
    level: float | None,
    out: Path,
) -> None:
    """Write forecasts of the pretrained forecaster, and say what they rest on."""
    from tauflow.estimators import SequenceForecaster

    forecaster = SequenceForecaster.from_pretrained()
    chosen = targets or None
    frame = forecaster.forecast(part, asked, targets=chosen, interval=level, **roles)
    scores = forecaster.backtest(part, targets=chosen, **roles)
    scores["forecast by"] = [forecaster.methods_[name] for name in scores.index]
    typer.echo(
        "Not trained on this table. From the middle of each id on it would have had:", err=True
    )
    _print_scores(scores)
    write_answers([frame], out, "row")


def _print_scores(scores: "DataFrame") -> None:
    """Print scores, and in a sentence of which targets a naive forecast is better.

    Args:
        scores: of each target in a row, or of each of its models (``mae``, ``model``).
    """
    typer.echo(scores.to_string(float_format="{:.4g}".format), err=True)
    metric, errors = "MAE", scores
    if "model" in scores:
        errors = scores.pivot(columns="model", values="mae")[scores["model"].unique()]
    elif "mae" in scores:
        errors = scores[["mae", "mae_last_value"]].set_axis(["forecaster", "last value"], axis=1)
    else:
        metric, errors = "RMSE", scores.select_dtypes("number")
    forecaster, *naive = errors
    for target, row in errors.iterrows():
        least = row[naive].min()
        if least < (1 - _ALIKE) * row[forecaster] - _ROUNDING * row.max():
            typer.echo(
                f"{target}: {row[naive].idxmin()} scores better than the forecaster: {metric} "
                f"{least:.4g} against {row[forecaster]:.4g}.",
                err=True,
            )


def _keep_run(forecaster: Any, table: Path, runs_dir: Path, options: Mapping[str, Any]) -> Path:
    """Write a forecaster into the folder of its run, which is returned, and say where it is."""
    from tauflow.predict.files import ESTIMATOR_FILE
    from tauflow.runs.run_data import to_file_name
    from tauflow.runs.task import choose_run_directory
    from tauflow.tabular.files import get_table_name

    how = {name: options[name] for name in READING_OPTIONS if name in options}
    forecaster.schema_ = replace(forecaster.schema_, **how)
    row = f"{to_file_name(forecaster.model)}-forecast-seed{forecaster.random_state}"
    base = runs_dir / to_file_name(get_table_name(table)) / row
    directory = choose_run_directory(base, resume=False)
    forecaster.save(directory / ESTIMATOR_FILE)
    parts = {name: sum(each) / len(each) for name, each in forecaster.shares_.items()}
    answer = ", ".join(f"{name} {share:.0%}" for name, share in parts.items() if share)
    typer.echo(f"Answer: {answer}", err=True)
    typer.echo(f"Run:    {directory}", err=True)
    typer.echo(f"Next:   {make_forecast_command(directory)}", err=True)
    return directory


def make_forecast_command(directory: Path) -> str:
    """Return the command that forecasts by a run."""
    return f"tauflow predict {directory} --csv new.csv --at TIMES"


def _score_held_out(
    forecaster: Any, part: "DataFrame", roles: Mapping[str, Any], level: float | None
) -> "DataFrame | None":
    """Return errors on a fifth of the ids, or of fewer than five on late rows, and say so."""
    import numpy as np

    from tauflow._internal.sanitize import format_count

    id = roles["id"]
    ids = part[id].drop_duplicates().to_numpy() if id else np.zeros(1)
    held = np.random.default_rng(forecaster.random_state).permutation(ids)[: len(ids) // 5]
    if not len(held):
        return _score_late_rows(forecaster, part, roles, level)
    is_held = part[id].isin(held)
    forecaster.fit(part[~is_held], **roles)
    held_out, span = format_count(len(held), "id"), forecaster.max_lead_time
    shown = f"{span:.12g}" if isinstance(span, float) else span
    typer.echo(f"RMSE up to {shown} ahead, of {held_out} not trained on:", err=True)
    return _score(forecaster, part[is_held], level)


def _score(forecaster: Any, held: "DataFrame", level: float | None) -> "DataFrame":
    """Return errors of the targets on rows of other ids, and how many values intervals hold."""
    from tauflow._internal.optional_deps import require
    from tauflow.errors import ArgumentError

    columns = forecaster.schema_.list_columns()  # categories come after the numbers
    index = [columns[n] for n in forecaster.target_features_]
    scores: DataFrame = require("pandas", extra="tables").DataFrame(
        forecaster.compare(held), index=index
    )
    if level is not None:
        try:
            shares = [f"{share:.1%}" for share in forecaster.measure_coverage(held, [level])[level]]
        except ArgumentError:  # fewer ids calibrate than for the forecasts themselves
            shares = ["too few ids"] * len(index)
        scores[f"in intervals of {100 * level:g} %"] = shares
    return scores.dropna()


def _score_late_rows(
    forecaster: Any, part: "DataFrame", roles: Mapping[str, Any], level: float | None
) -> "DataFrame | None":
    """Return errors on the last fifth of the rows by time, ``None`` where these are too few."""
    import numpy as np

    from tauflow._internal.sanitize import format_count
    from tauflow.errors import DataError, TauflowError
    from tauflow.evaluation import backtest
    from tauflow.evaluation.backtest_sources import EstimatorSource
    from tauflow.tabular.from_frame import read_frame
    from tauflow.tabular.times import read_times

    times = read_times(read_frame(part), roles["time"], None, skip_date_check=True).values
    is_early = times <= np.sort(times)[-1 - len(part) // 5]
    try:
        forecaster.fit(part[is_early], **roles)
        source = EstimatorSource.read(forecaster, part, None)
        horizon = source.horizon
        rows_left = source.count_rows_left()[1][len(np.unique(times[is_early])) - 1]
        count = min(_MAX_ORIGINS, int(rows_left / horizon))
        if not count:
            rows = format_count(int(rows_left), "row")
            raise DataError(f"{rows} are held out, and {horizon} are forecast at once.")
        season = round(next(iter(getattr(forecaster.module_, "periods", ())), 0)) or None
        scores_of_rows = backtest(
            forecaster, part, origins=count, interval=level, season=season, boosting=False
        )
    except TauflowError as error:  # also of too few rows for what all of them are enough for
        typer.echo(f"Not scored before it is trained on all rows: {error}", err=True)
        return None
    ahead, origins = format_count(horizon, "row"), format_count(count, "origin")
    typer.echo(f"Errors up to {ahead} ahead, from {origins} after training:", err=True)
    columns = ["mae", "rmse", *(["coverage"] if level is not None else [])]
    scores = scores_of_rows.scores(["target", "model"]).set_index("target")
    return scores[["model", *columns]]


def read_queries(at: str, options: Mapping[str, Any]) -> "str | list[float] | DataFrame":
    """Return what ``--at`` asks for: times after the last row, or a table of ids and times.

    Args:
        at: see :data:`AtOption`.
        options: of the table of the rows, and how a file of ids and times is read too.
    """
    from tauflow.tabular.files import read_frame
    from tauflow.tabular.options import TableOptions

    if Path(at).suffix.lower() in (".csv", ".gz", ".parquet"):
        used = {name: options[name] for name in ("id", "time", *READING_OPTIONS) if name in options}
        return read_frame(Path(at), TableOptions(**used), is_training_data=False)
    numbers = [_to_number(text) for text in at.split(",")]
    if all(isinstance(number, float) for number in numbers):
        return [float(number) for number in numbers]
    return at


def forecast_from_file(
    path: Path, rows: Path, at: str, *, interval: float | None, spread: bool, **reading: Any
) -> "DataFrame":
    """Return tidy forecasts of a forecaster's file for new rows.

    Args:
        path: the file that :meth:`tauflow.estimators.SequenceForecaster.save` wrote, or the folder
            of a run of 'tauflow forecast'.
        rows: the new rows.
        at: see :data:`AtOption`.
        interval: share of the values that intervals are to hold.
        spread: whether to give standard deviations over the networks of an ensemble.
        **reading: ``delimiter`` and ``decimal`` of the rows.

    Raises:
        ModelFileError: it is no such file.
        ArgumentError: the forecaster was not fitted to a table with times.
    """
    from tauflow.errors import ArgumentError
    from tauflow.estimators import SequenceForecaster
    from tauflow.tabular.files import read_frame
    from tauflow.tabular.options import TableOptions

    forecaster = SequenceForecaster.load(path)
    options = {name: getattr(forecaster.schema_, name) for name in ("id", "time", *READING_OPTIONS)}
    if options["time"] is None:
        raise ArgumentError(
            f"{path} was fitted to arrays, or to a table without times. Fit it with time=."
        )
    options |= {name: value for name, value in reading.items() if value is not None}
    frame = read_frame(rows, TableOptions(**options), is_training_data=False)
    return forecaster.forecast(
        frame, read_queries(at, options), interval=interval, return_std=spread
    )


def _to_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
