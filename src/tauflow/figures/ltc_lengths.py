"""Trajectory lengths of random networks: the figures of the LTC papers, and their depth table."""

from typing import TYPE_CHECKING, Any

from tauflow.analysis import (
    NetworkLaw,
    draw_latent_trajectories,
    trajectory_lengths,
)
from tauflow.analysis.random_networks import MODELS

from .entry import Job, PaperFigure, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAFT = 'Hasani et al. 2020/2021, "Liquid Time-constant Networks"'
_LAWS = (
    "Networks follow the released code, not the text: weights and potentials have the deviation "
    "sigma_w^2 itself, whatever the width, and time constants are |N(0, 1)|."
)


def _figure_1(job: Job) -> Result:
    law = NetworkLaw(width=job.choose("width", full=100, small=25), activation="tanh")
    with job.timed("solving"):
        results = [trajectory_lengths(model, law, tries=1, seed=job.seed) for model in MODELS]
    arrays: dict[str, Any] = {"input": results[0].signal.values}
    for result in results:
        arrays[f"{result.model}_t"] = result.examples[0].t
        arrays[f"{result.model}_scores"] = result.examples[0].scores[-1]
    lengths = {result.model: float(result.lengths[0, -1]) for result in results}

    def draw() -> "Figure":
        return draw_latent_trajectories(results)

    return Result(draw, arrays, findings={"input": results[0].input_length, **lengths})


ENTRIES = (
    PaperFigure(
        name="ltc-figure-1",
        title="Latent trajectories of random networks",
        source=f"{DRAFT}, 2020 draft, Figure 1",
        caption="A circle enters three random networks that share their weights. Each panel shows "
        "the states along it, projected onto their first two principal components.",
        compute=_figure_1,
        differs=(_LAWS,),
        minutes=0.1,
    ),
)
