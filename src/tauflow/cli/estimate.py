"""``tauflow estimate``: how long what is missing of a published table would take here."""

from pathlib import Path
from typing import Annotated

import typer

from .recipe import Results, Rows


def estimate(
    table: Annotated[str, typer.Argument(help="A published table, or a TOML file.")],
    models: Rows = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds: 0, 1, ...")] = None,
    results: Results = Path("results"),
) -> None:
    """Time a few batches of a table's rows, and say how long the runs that are missing would take.

    Estimates are kept with the results, and tauflow report names them beside rows that were not
    run; those of another kind of machine are made anew.
    """
    from tauflow.experiments import load_experiment
    from tauflow.experiments.report.estimates import costs
    from tauflow.experiments.report.table import title
    from tauflow.runs.timespan import roughly

    from .options import rows_in
    from .output import print_table, say

    experiment = load_experiment(table)
    if experiment.command is not None:
        say(f"{experiment.name} is not trained. Its numbers come from: {experiment.command}")
        return
    found = costs(experiment, rows_in(models), seeds=seeds, results_dir=results, say=say)

    def span(seconds: float | None) -> str:
        return "not known" if seconds is None else roughly(seconds)

    print_table(
        ("row", "model", "a run", "runs to do", "in all"),
        [
            (
                one.row.name,
                title(one.row),
                span(one.seconds) if one.missing else "–",
                f"{one.missing}",
                span(one.left) if one.missing else "–",
            )
            for one in found
        ],
        title=experiment.title,
        caption="One run at a time, on this machine with what else it does now.",
        numbers=range(2, 5),
        whole=(0,),
    )
    known = [one for one in found if one.left is not None]
    count = sum(one.missing for one in known)
    others = sum(one.missing for one in found) - count
    if not count + others:
        say("Nothing is left to do.")
    if count:
        say(f"Runs to do: {count}, about {roughly(sum(one.left or 0.0 for one in known))}.")
    if others:
        say(f"Runs to do of which it is not known: {others}.")
