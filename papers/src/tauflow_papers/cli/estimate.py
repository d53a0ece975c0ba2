"""``tauflow estimate``: how long what is missing of a published table would take here."""

from pathlib import Path
from typing import Annotated

import typer

from .options import ModelsOption, ResultsOption


def estimate(
    table: Annotated[str, typer.Argument(help="A published table, or a TOML file.")],
    models: ModelsOption = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds: 0, 1, ...")] = None,
    results: ResultsOption = Path("results"),
) -> None:
    """Time a few batches of a table's rows, and say how long the runs that are missing would take.

    Estimates are kept with the results, and tauflow report names them beside rows that were not
    run; those of another kind of machine are made again.
    """
    import torch

    from tauflow.cli.output import print_line, print_table
    from tauflow_papers.experiments import load_experiment
    from tauflow_papers.experiments.report.remaining_time import estimate_remaining_times
    from tauflow_papers.experiments.report.table import format_row_title
    from tauflow_papers.experiments.run.time_budget import format_estimated_duration

    from .options import split_row_names

    torch.set_num_threads(1)  # processor time is measured
    experiment = load_experiment(table)
    if experiment.command is not None:
        print_line(f"{experiment.name} is not trained. Its numbers come from: {experiment.command}")
        return
    estimates = estimate_remaining_times(
        experiment, split_row_names(models), seeds=seeds, results_dir=results, say=print_line
    )

    def span(seconds: float | None) -> str:
        return "not known" if seconds is None else format_estimated_duration(seconds)

    print_table(
        ("row", "model", "a run", "runs to do", "in all"),
        [
            (
                estimate.row.name,
                format_row_title(estimate.row),
                span(estimate.seconds) if estimate.missing else "–",
                f"{estimate.missing}",
                span(estimate.seconds_left) if estimate.missing else "–",
            )
            for estimate in estimates
        ],
        title=experiment.title,
        caption="Processor time of one thread. Wall time is longer where other programs run.",
        numbers=range(2, 5),
        no_wrap=(0,),
    )
    known = [estimate for estimate in estimates if estimate.seconds_left is not None]
    count = sum(estimate.missing for estimate in known)
    others = sum(estimate.missing for estimate in estimates) - count
    if not count + others:
        print_line("Nothing is left to do.")
    if count:
        print_line(
            f"Runs to do: {count}, about "
            f"{format_estimated_duration(sum(estimate.seconds_left or 0.0 for estimate in known))}."
        )
    if others:
        print_line(f"Runs to do of which it is not known: {others}.")
