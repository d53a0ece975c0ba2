"""The commands of published tables and figures, which ``tauflow`` takes up as an entry point."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tauflow.cli.info import print_model_info
from tauflow.cli.shared_options import (
    ClusterOption,
    DeviceOption,
    EpochsOption,
    RunsOption,
    expand_home,
    parse_settings,
)

from .estimate import estimate
from .options import (
    BudgetOption,
    JobsOption,
    ModelsOption,
    ResultsOption,
    RowSetOption,
    StoredResultsOption,
    split_row_names,
)
from .queue import queue


def add_commands(app: typer.Typer) -> None:
    """Add ``reproduce``, ``queue``, ``search``, ``report``, ``figure`` and others.

    ``show`` and ``info`` are replaced by ones that know published tables.
    """
    commands = (
        show,
        info,
        estimate,
        reproduce,
        queue,
        search,
        report,
        leaderboards,
        figure,
        claims,
    )
    for command in commands:
        app.command()(command)


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
    With --set the table is another one, with results beside the published one's; tauflow report
    tells them below its row.
    """
    from tauflow.cli.output import print_wrapped
    from tauflow.runs.time_limits import parse_duration
    from tauflow_papers.cli.output import print_reports
    from tauflow_papers.experiments import load_experiment
    from tauflow_papers.experiments import reproduce as measure
    from tauflow_papers.experiments.report.grid_page import write_grid_reports
    from tauflow_papers.experiments.run.run_job import Paths
    from tauflow_papers.experiments.spec.variation import make_variation

    from .output import exit_with_outcome, print_experiments, print_grid

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
        budget=None if budget is None else parse_duration(budget),
        results_dir=results,
        runs_dir=runs,
        device=device,
        say=print_wrapped,
    )
    print_grid(grid)
    print_reports(write_grid_reports(grid, Paths(results, runs)))
    exit_with_outcome(grid.outcome)


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
    from tauflow.cli.argument_parsing import parse_key_values
    from tauflow.cli.output import print_wrapped
    from tauflow.runs.time_limits import parse_duration
    from tauflow_papers.cli.search_output import print_search
    from tauflow_papers.experiments import grid_search, load_experiment
    from tauflow_papers.experiments.spec.load import load_grid

    from .output import exit_with_outcome

    grid_values: dict[str, Any] = {} if grid is None else load_grid(grid)
    searched = grid_search(
        load_experiment(table),
        row,
        {**grid_values, **parse_key_values(vary or [], option="--vary")},
        seeds=seeds,
        confirm=confirm,
        epochs=epochs,
        jobs=jobs,
        cluster=cluster,
        budget=None if budget is None else parse_duration(budget),
        results_dir=results,
        runs_dir=runs,
        say=print_wrapped,
    )
    print_search(searched)
    exit_with_outcome(searched.outcome)


def report(
    tables: Annotated[list[Path] | None, typer.Argument(help="Your tables, as TOML files.")] = None,
    results: StoredResultsOption = None,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Score naive baselines first; needs the data.")
    ] = False,
    changes: Annotated[
        Path | None,
        typer.Option(
            callback=expand_home,
            exists=True,
            help="A folder with an earlier REPORT.md and claims.md: list verdicts that changed.",
        ),
    ] = None,
) -> None:
    """Write one report on all results: every table, ours beside published, with plots.

    Results that come with the package are read if this folder holds none.
    """
    from tauflow.cli.output import print_line, print_wrapped
    from tauflow_papers.cli.output import print_reports
    from tauflow_papers.cli.search_output import print_survey
    from tauflow_papers.experiments import list_experiments, load_experiment
    from tauflow_papers.experiments.report.baseline_scores import (
        BASELINES_FILE,
        update_baseline_scores,
    )
    from tauflow_papers.experiments.report.results_summary import summarize_results
    from tauflow_papers.experiments.report.summary_page import write_results_summary
    from tauflow_papers.experiments.report.verdict_changes import write_changes
    from tauflow_papers.experiments.run.provenance import list_commits, update_traced
    from tauflow_papers.experiments.run.stored_results import RESULTS, choose_results

    folder = choose_results(results)
    if baselines:
        known = map(load_experiment, [*list_experiments(), *(tables or ())])
        update_baseline_scores(known, folder / BASELINES_FILE, say=print_wrapped)
    update_traced(folder, list_commits(folder))
    summary = summarize_results(folder, tables or ())
    print_survey(summary)
    # What comes with the package is only read; its report is written to the folder of results.
    target = RESULTS if results is None and folder != RESULTS else folder
    print_reports(write_results_summary(summary, target))
    if changes is not None:
        print_line(f"Changes: {write_changes(changes, summary, target)}")


def leaderboards(
    table: Annotated[
        str, typer.Argument(help="A comparison whose parts are tasks, or a TOML file.")
    ] = "leaderboards",
    results: StoredResultsOption = None,
    page: Annotated[
        Path | None,
        typer.Option(
            callback=expand_home, dir_okay=False, help="Write a page in Markdown and its picture."
        ),
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(
            callback=expand_home,
            exists=True,
            dir_okay=False,
            help="Another page, whose part between two marks becomes a short version.",
        ),
    ] = None,
) -> None:
    """Rank models over several tasks: mean ranks, and which of them differ significantly.

    Only tasks count on which every model has all of its runs.
    """
    from tauflow_papers.experiments.run.stored_results import choose_results

    from .leaderboards import print_ranking

    print_ranking(table, choose_results(results, table), page, summary)


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
    results: ResultsOption = Path("results"),
    cluster: ClusterOption = None,
) -> None:
    """Make a figure of a paper again: the picture, and the numbers that it shows beside it.

    Some figures show runs of a table that tauflow reproduce has stored in --results.
    """
    from tauflow.cli.argument_parsing import split_names
    from tauflow_papers.cli.figures import print_figures, write_figures

    if name is None and not page:
        print_figures()
        return
    wanted = tuple(split_names(formats))
    write_figures(
        name, out, page=page, size=size, seed=seed, formats=wanted, results_dir=results,
        cluster=cluster,
    )  # fmt: skip


def claims(
    paper: Annotated[
        str | None, typer.Argument(help="ltc, ltc-draft, cfc, ode-lstm or gnode; all by default.")
    ] = None,
    results: StoredResultsOption = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            callback=expand_home,
            file_okay=False,
            help="Folder of figures and their numbers; by default those of the package.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            callback=expand_home, dir_okay=False, help="Write a page in Markdown instead."
        ),
    ] = None,
    changes: Annotated[
        Path | None,
        typer.Option(
            callback=expand_home,
            exists=True,
            dir_okay=False,
            help="An earlier page: write what changed to CHANGED_CLAIMS.md in --results.",
        ),
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(help="Run one of the short studies that decide claims; 'list' lists them."),
    ] = None,
) -> None:
    """List what the papers claim, what was measured of it here, and whether it holds.

    Numbers come from stored results: of the tables and studies in --results, of figures in
    --figures. A verdict with a rule follows from them.
    """
    from tauflow_papers.experiments.run.stored_results import (
        RESULTS,
        choose_results,
        get_stored_figures,
    )

    from .claims import measure_claims, print_claims

    if measure is not None:
        measure_claims(measure, results or RESULTS)
        return
    print_claims(
        paper,
        results=choose_results(results),
        figures=figures or get_stored_figures(),
        page=page,
        changes=changes,
        changes_dir=results or RESULTS,
    )


def show(
    what: Annotated[str, typer.Argument(help="A run's directory, or a table's name.")],
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Show runs that were cut to so many epochs.")
    ] = None,
    results: StoredResultsOption = None,
    runs: RunsOption = Path("runs"),
) -> None:
    """Look at a finished or stopped run, or at a table's results so far.

    Of a table that has some, reports are written into the folder of results, TABLE.md and
    TABLE.html, but for results that come with the package.
    """
    from tauflow_papers.experiments.run.run_job import Paths
    from tauflow_papers.experiments.run.stored_results import choose_results

    from .show import show_run_or_table

    paths = Paths(choose_results(results, what), runs)
    show_run_or_table(what, epochs=epochs, paths=paths)


def info(
    model: Annotated[str, typer.Argument(help="A model; see 'tauflow models'.")],
    results: StoredResultsOption = None,
) -> None:
    """Say what a model computes, where it is from, which options it has, and how well it did."""
    from tauflow_papers.experiments.run.stored_results import choose_results

    from .output import print_scores

    print_model_info(model)
    print_scores(model, choose_results(results))
