"""The ``tauflow`` command: each subcommand parses, calls one function and prints."""

import io
import sys
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer

from .backtest import backtest
from .certainty_options import (
    CalibrateOption,
    EnsembleOption,
    IntervalsOption,
    ThresholdOption,
    parse_threshold,
)
from .doctor import doctor
from .explain import explain
from .export import export
from .forecast import forecast
from .group import TauflowGroup
from .impute import impute
from .info import info
from .inspect import inspect
from .logging import configure_logging, configure_warnings
from .precompile import precompile
from .predict import predict
from .score import score
from .shared_options import (
    ConfigOption,
    CsvOption,
    DeviceOption,
    EpochsOption,
    LogOption,
    MetricOption,
    OptionOption,
    RecipeSetOption,
    RunsOption,
    SeedOption,
    TaskArgument,
    parse_recipe_options,
    read_config_table,
)
from .table_options import add_table_options
from .tune import tune

COMMANDS_GROUP = "tauflow.commands"

app = typer.Typer(
    name="tauflow",
    cls=TauflowGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train networks whose state evolves in continuous time.",
)
data_app = typer.Typer(no_args_is_help=True, help="List data sets, or fetch one.")
app.add_typer(data_app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        from tauflow import __version__

        typer.echo(__version__)
        raise typer.Exit


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
    configure_logging()


@app.command()
@add_table_options
def run(
    task: TaskArgument = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model; see 'tauflow models'. Or several to compare: a,b,c. Or a+b: an ensemble "
            "(--ensemble) of two networks or more, of both in turn. Or auto: tries four networks "
            "and boosting, and joins those that best predict what they did not learn from. By "
            "default gru-d+cfc-mmrnn of a table with an answer per sequence, and otherwise cfc."
        ),
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Of the training with --model auto, such as 5min.")
    ] = None,
    hidden_size: Annotated[
        int | None,
        typer.Option(min=1, help="Neurons, or latent dimensions; by default 32, of auto 64."),
    ] = None,
    epochs: EpochsOption = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Sequences per step.")] = None,
    seed: SeedOption = 0,
    option: OptionOption = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the latest run with these arguments, or fewer epochs."
        ),
    ] = False,
    runs: RunsOption = Path("runs"),
    device: DeviceOption = None,
    metric: MetricOption = None,
    settings: RecipeSetOption = None,
    log: LogOption = None,
    config: ConfigOption = None,
    csv: CsvOption = None,
    ensemble: EnsembleOption = None,
    calibrate: CalibrateOption = None,
    threshold: ThresholdOption = None,
    intervals: IntervalsOption = None,
    *,
    table_options: dict[str, Any],
) -> None:
    """Train a model on a data set, or on a table of your own, and write a report."""
    from tauflow.runs.auto import run_auto
    from tauflow.runs.ensemble_training import CertaintyOptions
    from tauflow.runs.job import say_nothing
    from tauflow.runs.portfolio import AUTO
    from tauflow.runs.report.page import write_comparison, write_run_report
    from tauflow.runs.run import Run
    from tauflow.runs.task import check_models, run_task
    from tauflow.runs.time_limits import parse_duration
    from tauflow.training.defaults import DEFAULT_RECIPE, adapt_recipe
    from tauflow.training.process_group import join_process_group

    from .argument_parsing import parse_key_values, split_names
    from .output import print_comparison, print_run, print_wrapped
    from .table_options import resolve_source

    recipe_table = read_config_table(config, "recipe")
    recipe_options = parse_recipe_options(
        settings, recipe_table, epochs=epochs, lr=lr, batch_size=batch_size
    )
    models: list[tuple[str, ...] | None] = [None]
    if model is not None:
        names = split_names(model) or [model]
        models = [tuple(part.strip() for part in name.split("+")) for name in names]
    with join_process_group() as ranks:
        asked = Run(
            resolve_source(task, csv, table_options),
            models[0],
            hidden_size=hidden_size,
            options={**read_config_table(config, "options"), **parse_key_values(option or [])},
            recipe=adapt_recipe(DEFAULT_RECIPE, {**recipe_table, **recipe_options}),
            seed=seed,
            time_limit=None if time_limit is None else parse_duration(time_limit),
            resume=resume,
            runs_dir=runs,
            device=device,
            metrics=split_names(",".join(metric or ())),
            log=log or (),
            certainty=CertaintyOptions(ensemble, calibrate, parse_threshold(threshold), intervals),
            say=print_wrapped if ranks.is_main else say_nothing,
        )
        compared = [replace(asked, model=model) for model in models]
        check_models(compared)
        trained = [
            run_auto(compared_run) if compared_run.models == (AUTO,) else run_task(compared_run)
            for compared_run in compared
        ]
        if ranks.is_main:
            for trained_run in trained:
                write_run_report(trained_run)
            if len(trained) == 1:
                print_run(trained[0])
            else:
                print_comparison(trained, write_comparison(trained))


def show(
    run: Annotated[str, typer.Argument(help="A run's directory, or its name below --runs.")],
    runs: RunsOption = Path("runs"),
) -> None:
    """Look at a finished or stopped run."""
    from .show import show_run

    show_run(run, runs)


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
    from .lists import fetch_data

    fetch_data(name)


for _command in (  # after run, what a newcomer needs first
    inspect,
    predict,
    show,
    info,
    models,
    tune,
    forecast,
    backtest,
    explain,
    score,
    impute,
    export,
    precompile,
    doctor,
):
    app.command()(_command)


def _add_installed_commands() -> None:
    """Add the commands of installed packages.

    Each entry point of the group ``tauflow.commands`` is a function that takes the Typer app and
    adds commands to it. One of the same name replaces a command of the library.
    """
    for point in sorted(entry_points(group=COMMANDS_GROUP), key=lambda point: point.name):
        point.load()(app)


_add_installed_commands()


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it may be closed, or replaced
            stream.reconfigure(errors="replace")  # what the locale cannot write
    configure_warnings()
    try:
        app(prog_name="tauflow")
    except KeyboardInterrupt:  # before a command was found, and has anything to say
        raise SystemExit(130) from None
