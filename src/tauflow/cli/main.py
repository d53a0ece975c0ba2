"""The ``tauflow`` command: each subcommand parses, calls one function and prints."""

import io
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
from .logging import configure_logging
from .precompile import precompile
from .predict import predict
from .shared_options import (
    ClusterOption,
    ConfigOption,
    DeviceOption,
    LogOption,
    MetricOption,
    ModelsOption,
    RecipeSetOption,
    ResultsOption,
    RowSetOption,
    expand_home,
    parse_recipe_options,
    parse_settings,
    read_config_table,
)
from .table_options import add_table_options
from .tune import tune

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
app.command()(precompile)
app.command()(info)
app.command()(doctor)
app.command()(inspect)
app.command()(predict)


RunsOption = Annotated[
    Path,
    typer.Option(
        "--runs", callback=expand_home, file_okay=False, help="Folder of checkpoints and logs."
    ),
]
JobsOption = Annotated[int, typer.Option(min=1, help="Runs at a time, one thread each.")]
BudgetOption = Annotated[
    str | None,
    typer.Option(help="Stop after this time, such as 30min or 2h; the same command continues."),
]
CsvOption = Annotated[
    Path | None, typer.Option(callback=expand_home, help="Your own table, in place of a data set.")
]
EpochsOption = Annotated[int | None, typer.Option(min=1, help="Passes over the training data.")]


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
    epochs: EpochsOption = None,
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
    runs: RunsOption = Path("runs"),
    device: DeviceOption = None,
    metric: MetricOption = None,
    settings: RecipeSetOption = None,
    log: LogOption = None,
    config: ConfigOption = None,
    csv: CsvOption = None,
    *,
    table_options: dict[str, Any],
) -> None:
    """Train a model on a data set, or on a table of your own, and write a report."""
    from functools import partial

    from tauflow.runs.job import say_nothing
    from tauflow.runs.report.page import write_comparison, write_run_report
    from tauflow.runs.task import check_models, run_task
    from tauflow.training.defaults import DEFAULT_HIDDEN_SIZE, DEFAULT_RECIPE, adapt_recipe
    from tauflow.training.distributed import join_process_group

    from .argument_parsing import parse_key_values, split_all_names, split_names
    from .output import print_comparison, print_run, print_wrapped
    from .table_options import resolve_source

    own = read_config_table(config, "recipe")
    said_of_recipe = parse_recipe_options(
        settings, own, epochs=epochs, lr=lr, batch_size=batch_size
    )
    options = {**read_config_table(config, "options"), **parse_key_values(option or [])}
    size = DEFAULT_HIDDEN_SIZE if hidden_size is None else hidden_size
    with join_process_group() as ranks:
        source = resolve_source(task, csv, table_options)
        train = partial(
            run_task,
            source,
            hidden_size=size,
            options=options,
            recipe=adapt_recipe(DEFAULT_RECIPE, {**own, **said_of_recipe}),
            seed=seed,
            resume=resume,
            runs_dir=runs,
            device=device,
            metrics=split_all_names(metric),
            log=log or (),
            say=print_wrapped if ranks.is_main else say_nothing,
        )
        names = split_names(model) or [model]
        check_models(source, names, hidden_size=size, options=options)
        trained = [train(name) for name in names]
        if ranks.is_main:
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
    models: ModelsOption = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds: 0, 1, ...")] = None,
    epochs: EpochsOption = None,
    jobs: JobsOption = 1,
    cluster: ClusterOption = None,
    budget: BudgetOption = None,
    results: ResultsOption = Path("results"),
    runs: RunsOption = Path("runs"),
    device: DeviceOption = None,
    settings: RowSetOption = None,
) -> None:
    """Measure a published table again; what is finished already is not run again.

    The exit code is 0 when all is done, 1 when a run failed, and 75 when the budget left runs over.
    With --set the table is one of its own, with results beside the published one's; tauflow report
    tells them below its row.
    """
    from tauflow.experiments import load_experiment
    from tauflow.experiments import reproduce as measure
    from tauflow.experiments.report.grid_page import write_grid_reports
    from tauflow.experiments.spec.variation import make_variation
    from tauflow.runs.job import Paths

    from .argument_parsing import parse_optional_seconds, split_row_names
    from .lists import print_experiments
    from .output import exit_with_outcome, print_grid, print_reports, print_wrapped

    if table is None:
        print_experiments()
        return
    names = split_row_names(models)
    grid = measure(
        make_variation(load_experiment(table), parse_settings(settings), names),
        models=names,
        seeds=seeds,
        epochs=epochs,
        jobs=jobs,
        cluster=cluster,
        budget=parse_optional_seconds(budget),
        results_dir=results,
        runs_dir=runs,
        device=device,
        say=print_wrapped,
    )
    print_grid(grid)
    print_reports(write_grid_reports(grid, Paths(results, runs)))
    exit_with_outcome(grid.outcome)


@app.command()
def search(
    table: Annotated[str, typer.Argument(help="A published table, or a TOML file.")],
    row: Annotated[str, typer.Argument(help="The row whose settings are varied.")],
    grid: Annotated[
        Path | None,
        typer.Option(
            callback=expand_home, help="A TOML file whose table 'grid' has lists of values."
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(help="recipe.lr=[0.001,0.01] or model.NAME=[...]; may be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each point.")] = 1,
    confirm: Annotated[int, typer.Option(min=0, help="Runs of the chosen point afterwards.")] = 0,
    epochs: EpochsOption = None,
    jobs: JobsOption = 1,
    cluster: ClusterOption = None,
    budget: BudgetOption = None,
    results: ResultsOption = Path("results"),
    runs: RunsOption = Path("runs"),
) -> None:
    """Choose settings from a grid by their validation score; exit codes are those of reproduce.

    What is varied comes from --grid, --vary or both.
    """
    from tauflow.experiments import grid_search, load_experiment
    from tauflow.experiments.spec.load import load_grid

    from .argument_parsing import parse_key_values, parse_optional_seconds
    from .output import exit_with_outcome, print_wrapped
    from .search_output import print_search

    given: dict[str, Any] = {} if grid is None else load_grid(grid)
    found = grid_search(
        load_experiment(table),
        row,
        {**given, **parse_key_values(vary or [], option="--vary")},
        seeds=seeds,
        confirm=confirm,
        epochs=epochs,
        jobs=jobs,
        cluster=cluster,
        budget=parse_optional_seconds(budget),
        results_dir=results,
        runs_dir=runs,
        say=print_wrapped,
    )
    print_search(found)
    exit_with_outcome(found.outcome)


@app.command()
def report(
    tables: Annotated[list[Path] | None, typer.Argument(help="Your tables, as TOML files.")] = None,
    results: ResultsOption = Path("results"),
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Score trivial predictions first; needs the data.")
    ] = False,
) -> None:
    """Write one report on all results: every table, ours beside published, with plots."""
    from tauflow.experiments import list_experiments, load_experiment
    from tauflow.experiments.report.baseline_scores import BASELINES_FILE, update_baseline_scores
    from tauflow.experiments.report.results_summary import summarize_results
    from tauflow.experiments.report.summary_page import write_results_summary

    from .output import print_reports, print_wrapped
    from .search_output import print_survey

    if baselines:
        known = map(load_experiment, [*list_experiments(), *(tables or ())])
        update_baseline_scores(known, results / BASELINES_FILE, say=print_wrapped)
    found = summarize_results(results, tables or ())
    print_survey(found)
    print_reports(write_results_summary(found, results))


@app.command()
def figure(
    name: Annotated[
        str | None, typer.Argument(help="A figure of a paper, or 'all'; none lists them.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", callback=expand_home, file_okay=False, help="Folder to write to."),
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
    cluster: ClusterOption = None,
) -> None:
    """Make a figure of a paper again: the picture, and the numbers that it shows beside it."""
    from .argument_parsing import split_names
    from .figures import print_figures, write_figures

    if name is None and not page:
        print_figures()
        return
    wanted = tuple(split_names(formats))
    write_figures(name, out, size=size, seed=seed, formats=wanted, page=page, cluster=cluster)


@app.command()
def show(
    what: Annotated[str, typer.Argument(help="A run's directory, or a table's name.")],
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Show runs that were cut to so many epochs.")
    ] = None,
    results: ResultsOption = Path("results"),
    runs: RunsOption = Path("runs"),
) -> None:
    """Look at a finished or stopped run, or at a table's results so far.

    Of a table that has some, reports are written into the folder of results: TABLE.md and
    TABLE.html.
    """
    from tauflow.runs.job import Paths

    from .show import show as show_it

    show_it(what, epochs=epochs, paths=Paths(results, runs))


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
    from .lists import fetch_data

    fetch_data(name)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it may be closed, or replaced
            stream.reconfigure(errors="replace")  # what the locale cannot write
    try:
        app(prog_name="tauflow")
    except KeyboardInterrupt:  # before a command was found, and has anything to say
        raise SystemExit(130) from None
