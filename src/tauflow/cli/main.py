"""The ``tauflow`` command: each subcommand parses, calls one function and prints."""

import io
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .doctor import doctor
from .estimate import estimate
from .export import export
from .group import TauflowGroup
from .info import info
from .inspect import inspect
from .own_table import takes_table
from .predict import predict
from .recipe import (
    Cluster,
    Config,
    Device,
    Log,
    Metrics,
    Results,
    Rows,
    RowSettings,
    Settings,
    at_home,
    config_table,
    recipe_changes,
    row_changes,
)
from .tune import tune
from .warmup import warmup

app = typer.Typer(
    name="tauflow",
    cls=TauflowGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train networks whose state flows in continuous time, and reproduce published tables.",
)
data_app = typer.Typer(no_args_is_help=True, help="List data sets, or fetch one.")
app.add_typer(data_app, name="data")
app.command()(export)
app.command()(estimate)
app.command()(tune)
app.command()(warmup)
app.command()(info)
app.command()(doctor)
app.command()(inspect)
app.command()(predict)


Runs = Annotated[
    Path,
    typer.Option(
        "--runs", callback=at_home, file_okay=False, help="Folder of checkpoints and logs."
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time, one thread each.")]
Budget = Annotated[
    str | None,
    typer.Option(help="Stop after this time, such as 30min or 2h; the same command continues."),
]
OwnFile = Annotated[
    Path | None, typer.Option(callback=at_home, help="Your own table, in place of a data set.")
]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over the training data.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from tauflow import __version__

        typer.echo(__version__)
        raise typer.Exit


class _Echo(logging.Handler):
    """Prints log lines as they are on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        typer.echo(self.format(record), err=True)


def _show_what_is_logged() -> None:
    """Let the library's log lines, such as that kernels are being compiled, reach the terminal."""
    log = logging.getLogger("tauflow")
    if not log.handlers:
        log.addHandler(_Echo())
        log.setLevel(logging.INFO)


@app.callback()
def common(
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the traceback of an error; in any place.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Hold the options that stand before every subcommand."""
    _show_what_is_logged()


@app.command()
@takes_table
def run(
    task: Annotated[
        str | None,
        typer.Argument(
            help="A data set (see 'tauflow data list'); your own table, .csv, .csv.gz or .parquet, "
            "with one row per sample; or a folder that tauflow.data.write_task wrote."
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(help="A model; see 'tauflow models'. Or several to compare: a,b,c.")
    ] = "cfc",
    hidden_size: Annotated[
        int | None, typer.Option(min=1, help="Neurons, or latent dimensions; by default 32.")
    ] = None,
    epochs: Epochs = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Sequences per step.")] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed for weights, shuffling and dropout.")
    ] = 0,
    option: Annotated[
        list[str] | None, typer.Option(help="key=value for the model; may be repeated.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the latest run with these arguments, or fewer epochs."
        ),
    ] = False,
    runs: Runs = Path("runs"),
    device: Device = None,
    metric: Metrics = None,
    settings: Settings = None,
    log: Log = None,
    config: Config = None,
    csv: OwnFile = None,
    *,
    said: dict[str, Any],
) -> None:
    """Train a model on a data set, or on a table of your own, and write a report."""
    from functools import partial

    from tauflow.runs.job import say_nothing
    from tauflow.runs.report.page import write_comparison, write_run_report
    from tauflow.runs.task import check_models, run_task
    from tauflow.training.defaults import HIDDEN_SIZE, RECIPE, adapted
    from tauflow.training.ranks import process_group

    from .options import all_names_in, key_values, names_in
    from .output import print_comparison, print_run, say_prose
    from .own_table import one_source

    own = config_table(config, "recipe")
    said_of_recipe = recipe_changes(settings, own, epochs=epochs, lr=lr, batch_size=batch_size)
    options = {**config_table(config, "options"), **key_values(option or [])}
    size = HIDDEN_SIZE if hidden_size is None else hidden_size
    with process_group() as ranks:
        source = one_source(task, csv, said)
        train = partial(
            run_task,
            source,
            hidden_size=size,
            options=options,
            recipe=adapted(RECIPE, {**own, **said_of_recipe}),
            seed=seed,
            resume=resume,
            runs_dir=runs,
            device=device,
            metrics=all_names_in(metric),
            log=log or (),
            say=say_prose if ranks.writes else say_nothing,
        )
        names = names_in(model) or [model]
        check_models(source, names, hidden_size=size, options=options)
        trained = [train(name) for name in names]
        if ranks.writes:
            for one in trained:
                write_run_report(one)
            if len(trained) == 1:
                print_run(trained[0])
            else:
                print_comparison(trained, write_comparison(trained))


@app.command()
def reproduce(
    table: Annotated[
        str | None, typer.Argument(help="A published table, or a TOML file; none lists them.")
    ] = None,
    models: Rows = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds: 0, 1, ...")] = None,
    epochs: Epochs = None,
    jobs: Jobs = 1,
    cluster: Cluster = None,
    budget: Budget = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
    device: Device = None,
    settings: RowSettings = None,
) -> None:
    """Measure a published table again; what is finished already is not run again.

    The exit code is 0 when all is done, 1 when a run failed, and 75 when the budget left runs over.
    With --set the table is one of its own, with results beside the published one's; tauflow report
    tells them below its row.
    """
    from tauflow.experiments import load_experiment
    from tauflow.experiments import reproduce as measure
    from tauflow.experiments.report.grid_page import write_grid_reports
    from tauflow.experiments.spec.variation import varied
    from tauflow.runs.job import Places

    from .lists import print_experiments
    from .options import rows_in, seconds_or_none
    from .output import end_with, print_grid, print_reports, say_prose

    if table is None:
        print_experiments()
        return
    names = rows_in(models)
    grid = measure(
        varied(load_experiment(table), row_changes(settings), names),
        models=names,
        seeds=seeds,
        epochs=epochs,
        jobs=jobs,
        cluster=cluster,
        budget=seconds_or_none(budget),
        results_dir=results,
        runs_dir=runs,
        device=device,
        say=say_prose,
    )
    print_grid(grid)
    print_reports(write_grid_reports(grid, Places(results, runs)))
    end_with(grid.outcome)


@app.command()
def search(
    table: Annotated[str, typer.Argument(help="A published table, or a TOML file.")],
    row: Annotated[str, typer.Argument(help="The row whose settings are varied.")],
    grid: Annotated[
        Path | None,
        typer.Option(callback=at_home, help="A TOML file whose table 'grid' has lists of values."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(help="recipe.lr=[0.001,0.01] or model.NAME=[...]; may be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each point.")] = 1,
    confirm: Annotated[int, typer.Option(min=0, help="Runs of the chosen point afterwards.")] = 0,
    epochs: Epochs = None,
    jobs: Jobs = 1,
    cluster: Cluster = None,
    budget: Budget = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
) -> None:
    """Choose settings from a grid by their validation score; exit codes are those of reproduce.

    What is varied comes from --grid, --vary or both.
    """
    from tauflow.experiments import grid_search, load_experiment
    from tauflow.experiments.spec.load import load_grid

    from .found import print_search
    from .options import key_values, seconds_or_none
    from .output import end_with, say_prose

    given: dict[str, Any] = {} if grid is None else load_grid(grid)
    found = grid_search(
        load_experiment(table),
        row,
        {**given, **key_values(vary or [], option="--vary")},
        seeds=seeds,
        confirm=confirm,
        epochs=epochs,
        jobs=jobs,
        cluster=cluster,
        budget=seconds_or_none(budget),
        results_dir=results,
        runs_dir=runs,
        say=say_prose,
    )
    print_search(found)
    end_with(found.outcome)


@app.command()
def report(
    tables: Annotated[list[Path] | None, typer.Argument(help="Your tables, as TOML files.")] = None,
    results: Results = Path("results"),
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Score trivial predictions first; needs the data.")
    ] = False,
) -> None:
    """Write one report on all results: every table, ours beside published, with plots."""
    from tauflow.experiments import list_experiments, load_experiment
    from tauflow.experiments.report.survey import survey
    from tauflow.experiments.report.survey_page import write_survey
    from tauflow.experiments.report.trivial import BASELINES_FILE, score_trivial

    from .found import print_survey
    from .output import print_reports, say_prose

    if baselines:
        known = map(load_experiment, [*list_experiments(), *(tables or ())])
        score_trivial(known, results / BASELINES_FILE, say=say_prose)
    found = survey(results, tables or ())
    print_survey(found)
    print_reports(write_survey(found, results))


@app.command()
def figure(
    name: Annotated[
        str | None, typer.Argument(help="A figure of a paper, or 'all'; none lists them.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", callback=at_home, file_okay=False, help="Folder to write to.")
    ] = Path("figures"),
    size: Annotated[
        str, typer.Option(help="full, or small for a quick look at fewer and smaller networks.")
    ] = "full",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    formats: Annotated[
        str, typer.Option("--format", help="Picture formats, separated by commas: png, svg, pdf.")
    ] = "png,svg",
    page: Annotated[
        bool, typer.Option("--page", help="Write README.md, a page on all figures in the folder.")
    ] = False,
    cluster: Cluster = None,
) -> None:
    """Make a figure of a paper again: the picture, and the numbers that it shows beside it."""
    from .figures import make, print_figures
    from .options import names_in

    if name is None and not page:
        print_figures()
        return
    wanted = tuple(names_in(formats))
    make(name, out, size=size, seed=seed, formats=wanted, page=page, cluster=cluster)


@app.command()
def show(
    what: Annotated[str, typer.Argument(help="A run's directory, or a table's name.")],
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Show runs that were cut to so many epochs.")
    ] = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
) -> None:
    """Look at a finished or stopped run, or at a table's results so far.

    Of a table that has some, reports are written into the folder of results: TABLE.md and
    TABLE.html.
    """
    from tauflow.runs.job import Places

    from .show import show as show_it

    show_it(what, epochs=epochs, places=Places(results, runs))


@app.command()
def models(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a table for a document.")
    ] = False,
    find: Annotated[
        str, typer.Option(help="Only models that mention this, such as 'missing values'.")
    ] = "",
) -> None:
    """List the models that there are."""
    from .lists import print_models

    print_models(markdown=markdown, find=find)


@data_app.command("list")
def list_data() -> None:
    """List data sets, and say which are on this machine."""
    from .lists import print_data

    print_data()


@data_app.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="A data set; see 'tauflow data list'.")],
) -> None:
    """Fetch a data set, unless it is here already."""
    from .lists import get

    get(name)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it may be closed, or replaced
            stream.reconfigure(errors="replace")  # what the locale cannot write
    try:
        app(prog_name="tauflow")
    except KeyboardInterrupt:  # before a command was found, and has anything to say
        raise SystemExit(130) from None
