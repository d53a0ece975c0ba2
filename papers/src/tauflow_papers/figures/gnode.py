"""The gnODE paper beside fits of noise: the edge of chaos, spectra, capacity."""

from typing import Any

from tauflow.plotting.axes import get_figure
from tauflow_papers.theory import (
    GATED_NETWORKS,
    RandomODE,
    Spectrum,
    capacity_curve,
    critical_curve,
    gating_spectrum,
    plot_capacity,
    plot_critical_curves,
    plot_spectra,
)

from .gnode_noise import GNODE
from .paper_figure import FigureJob, FigureResult, PaperFigure

_TITLES = {"mgru": "mGRU", "gnode": "gnODE", "lem": "LEM"}


def _figure_4(job: FigureJob) -> FigureResult:
    depths = job.choose("layers", full=(2, 3, 4, 5), small=(2, 3))
    points = job.choose("points", full=16, small=3)
    biases = [2.0 * (place / (points - 1)) ** 1.5 for place in range(points)]
    with job.timed("solving"):
        curves = [critical_curve(RandomODE(layers=n, sigma_w=1.0), biases) for n in depths]

    arrays: dict[str, Any] = {"sigma_b": curves[0].sigma_b}
    arrays |= {f"sigma_w, L = {n}": curve.sigma_w for n, curve in zip(depths, curves, strict=True)}
    edges = {f"L = {n}": float(c.sigma_w[0]) for n, c in zip(depths, curves, strict=True)}
    return FigureResult(
        lambda: get_figure(plot_critical_curves(curves)),
        arrays,
        findings={"critical scale of the weights without biases": edges},
    )


def _figure_5(job: FigureJob) -> FigureResult:
    neurons = job.choose("neurons", full=500, small=30)
    steps = job.choose("steps", full=1000, small=50)
    job.settings |= {"sigma_w": 1.5}
    spectra: dict[str, dict[str, Spectrum]] = {}
    for title, scale in {"no gating": 0.0, r"gating, $\sigma_z = 5$": 5.0}.items():
        with job.timed(title):
            spectra[title] = {
                _TITLES[network]: gating_spectrum(
                    network, neurons=neurons, sigma_z=scale, steps=steps, seed=job.seed
                )
                for network in GATED_NETWORKS
            }

    arrays = {
        f"{network}, {title.partition(',')[0]}": spectrum.eigenvalues
        for title, row in spectra.items()
        for network, spectrum in row.items()
    }
    slow = {
        f"{network}, {title.partition(',')[0]}": spectrum.share_within(0.1)
        for title, row in spectra.items()
        for network, spectrum in row.items()
    }
    abscissas = {name: float(values.real.max()) for name, values in arrays.items()}
    return FigureResult(
        lambda: plot_spectra(spectra),
        arrays,
        findings={
            "share of eigenvalues within 0.1 of zero": slow,
            "largest real part": abscissas,
        },
    )


def _compute_capacity(job: FigureJob) -> FigureResult:
    sizes = job.choose("neurons", full=(20, 50, 100), small=(10, 20))
    trials = job.choose("trials", full=(200, 100, 40), small=(20, 10))
    curves = []
    for neurons, count in zip(sizes, trials, strict=True):
        with job.timed(f"N = {neurons}"):
            curves.append(capacity_curve(neurons, trials=count, patterns="sequence", seed=job.seed))

    arrays: dict[str, Any] = {}
    for curve in curves:
        for name in ("patterns", "fraction", "error", "expected", "undecided"):
            arrays[f"N = {curve.neurons} {name}"] = getattr(curve, name)
    capacities = {f"N = {curve.neurons}": curve.capacity for curve in curves}
    return FigureResult(
        lambda: get_figure(plot_capacity(curves)),
        arrays,
        findings={"capacity over N (theory: 2)": capacities},
    )


ENTRIES = (
    PaperFigure(
        name="gnode-figure-4",
        title="Where random neural ODEs become chaotic",
        source=f"{GNODE}, Figure 4",
        caption="Mean-field theory of random velocities of L tanh layers with Kaiming scaling: "
        "above a curve networks of that depth come to rest, below it they are chaotic.",
        compute=_figure_4,
        differences=("Depths and the range of the axes are ours; the last layer is linear.",),
        minutes=0.5,
    ),
    PaperFigure(
        name="gnode-figure-5",
        title="Gates make slow modes",
        source=f"{GNODE}, Figure 5",
        caption="Eigenvalues of the Jacobian of random networks after a long run, in the complex "
        "plane. Without gating (top) they fill a disk; with strong gates (bottom) they pile up at "
        "zero, as modes that hardly move.",
        compute=_figure_5,
        differences=(
            "500 neurons for 1000. Start and last activation, which are not published, are "
            "a standard normal state and none.",
        ),
        minutes=2.0,
    ),
    PaperFigure(
        name="gnode-capacity",
        title="The longest random sequence that a network can store",
        source=f"{GNODE}, Section 4 and Appendix C",
        caption="How often a threshold unit can be given weights that repeat a random sequence "
        "of P states of N neurons; lines: Cover's count for patterns in general position, which "
        "falls to one half at 2 N.",
        compute=_compute_capacity,
        differences=("The paper derives the capacity of 2 N and shows no picture.",),
        minutes=1.5,
    ),
)
