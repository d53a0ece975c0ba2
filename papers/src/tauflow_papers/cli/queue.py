"""``tauflow queue``: train rows of tables in order of worth, for hours or days."""

from pathlib import Path
from typing import Annotated

import typer

from tauflow.cli.shared_options import RunsOption, expand_home

from .options import ResultsOption


def queue(
    file: Annotated[
        Path, typer.Argument(help="A TOML file with tables [[run]], such as papers/queue.toml.")
    ],
    run: Annotated[
        bool, typer.Option("--run", help="Train; without it the queue is listed.")
    ] = False,
    hours: Annotated[
        float | None, typer.Option(min=0.0, help="List what is done in these hours.")
    ] = None,
    collect: Annotated[
        Path | None,
        typer.Option(
            callback=expand_home,
            exists=True,
            file_okay=False,
            help="Folder of results of another clone: add its runs to --results and commit them.",
        ),
    ] = None,
    results: ResultsOption = Path("papers/results"),
    runs: RunsOption = Path("runs"),
) -> None:
    """Train a list of rows one after the other, at low priority, and go on after a kill.

    Results that are part of the repository are written only from a clean commit of main.
    """
    from tauflow.cli.output import print_line, print_table, print_wrapped
    from tauflow_papers.experiments.report.queue_plan import plan_queue
    from tauflow_papers.experiments.report.table import format_row_title
    from tauflow_papers.experiments.run.queue import collect_results, commit_results, run_queue
    from tauflow_papers.experiments.run.run_job import Paths
    from tauflow_papers.experiments.run.time_budget import format_estimated_duration

    if collect is not None:
        added = collect_results(collect, results)
        for name, count in added.items():
            print_line(f"{name}: {count} runs added")
        if added:
            print_line(f"Committed: {commit_results(results, added)}")
            print_line(
                "Make the pages again: tauflow report --results papers/results; tauflow claims "
                "--page docs/claims.md"
            )
        else:
            print_line("No new runs.")
        return
    if run:
        failures = run_queue(file, paths=Paths(results, runs), say=print_wrapped)
        raise SystemExit(1 if failures else 0)
    spent, unknown, rows = 0.0, 0, []
    for planned in plan_queue(file, results):
        if hours is not None and spent >= 3600 * hours:
            break
        known = planned.seconds is not None
        spent += (planned.seconds or 0.0) * planned.missing
        unknown += 0 if known else planned.missing
        rows.append(
            (
                planned.entry.table,
                format_row_title(planned.row),
                str(planned.missing),
                format_estimated_duration(planned.seconds)
                if planned.seconds is not None
                else "not known",
                format_estimated_duration(spent),
            )
        )
    print_table(
        ("table", "row", "runs", "a run", "done after"),
        rows,
        title="Runs to do, in order",
        caption="Processor time of one thread; on a machine that does other work it takes longer.",
        numbers=(2, 3, 4),
        no_wrap=(0,),
    )
    if unknown:
        print_line(f"Runs of unknown length, left out of the sum: {unknown}.")
