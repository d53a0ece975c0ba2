"""``tauflow estimate``: how long what is missing of a published table would take here."""

from pathlib import Path
from typing import Annotated

import typer

from .recipe import Results


def estimate(
    table: Annotated[str, typer.Argument(help="A published table, or a TOML file.")],
    models: Annotated[str, typer.Option(help="Rows, separated by commas; all by default.")] = "",
    results: Results = Path("results"),
) -> None:
    """Time a few batches of a table's rows, and say how long the runs that are missing would take.

    A row with finished runs is known from those. Estimates are kept with the results, and tauflow
    report names them beside rows that were not run.
    """
    from tauflow.experiments import load_experiment
    from tauflow.experiments.report.estimates import costs
    from tauflow.experiments.report.table import title
    from tauflow.experiments.run.timespan import roughly

    from .options import names_in
    from .output import print_table, say

    experiment = load_experiment(table)
    found = costs(experiment, names_in(models) or None, results_dir=results, say=say)
    unknown = "not known"
    print_table(
        ("row", "model", "a run", "runs to do", "in all"),
        [
            (
                one.row.name,
                title(one.row),
                unknown if one.seconds is None else roughly(one.seconds),
                f"{one.missing}",
                unknown if one.left is None else roughly(one.left) if one.missing else "–",
            )
            for one in found
        ],
        title=f"{experiment.title}: one run at a time, on this machine",
        numbers=range(2, 5),
    )
    runs = [one for one in found if one.left is not None]
    total = sum(one.left or 0.0 for one in runs)
    count = sum(one.missing for one in runs)
    others = sum(one.missing for one in found) - count
    if count:
        more = f" It is not known of {others} more." if others else ""
        say(f"{count} runs to do, about {roughly(total)} one after the other.{more}")
