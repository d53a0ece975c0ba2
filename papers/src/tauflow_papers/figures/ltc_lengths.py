"""Trajectory lengths of random networks: the figures of the LTC papers, and Theorems 4 and 5."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tauflow.plotting.axes import add_panel_letters, make_panels
from tauflow.plotting.legends import merge_legends
from tauflow_papers.theory import (
    LengthStudy,
    NetworkDistribution,
    TrajectoryLengths,
    compare_with_bounds,
    length_study,
    plot_latent_trajectories,
    plot_layer_trajectories,
    plot_length_comparison,
    plot_length_study,
    plot_study_variance,
    trajectory_lengths,
)
from tauflow_papers.theory.random_networks import MODEL_NAMES

from .paper_figure import FigureJob, FigureResult, FigureTable, PaperFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LTC = 'Hasani et al. 2021, "Liquid Time-constant Networks"'
DISTRIBUTION_NOTE = (
    "Networks follow the released code, not the text: weights and reversal potentials have the "
    "standard deviation sigma_w^2 whatever the width, and time constants are |N(0, 1)|, so that "
    "some networks are very stiff."
)
_IDENTITY_NOTE = (
    "The hard-tanh of the released code is the identity for networks of this size, and is so here."
)
_CONTRADICTION_NOTE = (
    "Contradicts the paper in several observations, of which the page of claims has numbers. "
    "Lengths of neural ODEs and CT-RNNs grow as the square root of the width, not linearly (VI), "
    "those of LTCs linearly with tanh and ReLU, faster with Hard-tanh. With the nominal variance "
    "of the weights and tanh (VII) LTCs grow linearly, not faster, and the others saturate."
)
_FEWER_NOTE = "Fewer random networks for each box; the paper does not say how many it drew."


def _figure_1(job: FigureJob) -> FigureResult:
    law = NetworkDistribution(width=job.choose("width", full=100, small=25), activation="tanh")
    results = _simulate_models(job, law)
    lengths = {result.model: float(result.lengths[0, -1]) for result in results}
    findings = {"length of the input": results[0].input_length, "lengths": lengths}
    return FigureResult(
        lambda: plot_latent_trajectories(results),
        _collect_example_arrays(results),
        findings=findings,
    )


def _figure_3(job: FigureJob) -> FigureResult:
    layers = job.choose("layers", full=4, small=2)
    results = _simulate_models(
        job, NetworkDistribution(width=25, layers=layers, activation="hardtanh")
    )
    findings = {"lengths, layer by layer": {r.model: r.lengths[0].tolist() for r in results}}
    return FigureResult(
        lambda: plot_layer_trajectories(results),
        _collect_example_arrays(results),
        findings=findings,
    )


def _simulate_models(
    job: FigureJob, law: NetworkDistribution, tries: int = 1
) -> list[TrajectoryLengths]:
    with job.timed("solving"):
        return [trajectory_lengths(model, law, tries=tries, seed=job.seed) for model in MODEL_NAMES]


def _collect_example_arrays(results: Sequence[TrajectoryLengths]) -> dict[str, Any]:
    arrays: dict[str, Any] = {"input": results[0].signal.values}
    for result in results:
        arrays[f"{result.model} t"] = result.examples[0].t
        arrays[f"{result.model} scores"] = result.examples[0].scores.half()
    return arrays


def _figure_4(job: FigureJob) -> FigureResult:
    return _study_panels(job, "identity", 10)


def _figure_4_of_the_text(job: FigureJob) -> FigureResult:
    return _study_panels(job, "hardtanh", 25, law="paper")


def _study_panels(
    job: FigureJob, hard_tanh: str, width_a: int, law: str = "released"
) -> FigureResult:
    tries, layers, widths, scales = _choose_ranges(job)
    wanted: dict[str, tuple[str, Sequence[int], str, int]] = {
        "layers, Hard-tanh": ("layers", layers, hard_tanh, width_a),
        "weight scale, tanh": ("weight_variance", scales, "tanh", 25),
        "width, ReLU": ("width", widths, "relu", 25),
        "width, Hard-tanh": ("width", widths, hard_tanh, 25),
        "layers, sigmoid": ("layers", layers, "sigmoid", 25),
    }
    if law == "paper":  # with the code's weights it is in Figure S2
        wanted["layers, ReLU"] = ("layers", layers, "relu", 25)
    studies = {}
    for name, (vary, values, activation, width) in wanted.items():
        drawn = NetworkDistribution(width=width, activation=activation, weight_law=law, tau_law=law)
        with job.timed(name):
            studies[name] = length_study(vary, values, law=drawn, tries=tries, seed=job.seed)

    return _make_studies_result(studies)


def _figure_s2(job: FigureJob) -> FigureResult:
    tries = job.choose("networks", full=10, small=1)
    layers = (job.choose("layers", full=4, small=2),)
    widths = job.choose("widths", full=(10, 25, 50, 100), small=(5, 10))
    scales = job.choose("weight_variances", full=(1, 4, 16), small=(1, 4))
    biases = job.choose("bias_variances", full=(0.25, 0.5, 1, 2, 4), small=(1, 4))
    samples = job.choose("samples of the input", full=(25, 50, 100, 200), small=(20, 40))
    sigmoid, relu = (NetworkDistribution(activation=name) for name in ("sigmoid", "relu"))
    wanted: dict[str, tuple[str, Sequence[Any], NetworkDistribution]] = {
        "bias scale, tanh": ("bias_variance", biases, NetworkDistribution()),
        "samples, tanh": ("input_points", samples, NetworkDistribution()),
        "width, sigmoid": ("width", widths, sigmoid),
        "weight scale, ReLU": ("weight_variance", scales, relu),
        "layers, ReLU": ("layers", layers, replace(relu, width=10)),
    }
    studies = {}
    for name, (vary, values, law) in wanted.items():
        with job.timed(name):
            studies[name] = length_study(vary, values, law=law, tries=tries, seed=job.seed)
    return _make_studies_result(studies)


def _make_studies_result(studies: Mapping[str, LengthStudy]) -> FigureResult:
    def draw() -> "Figure":
        figure, axes = make_panels(len(studies), columns=3)
        for ax, study in zip(axes, studies.values(), strict=True):
            plot_length_study(study, ax)
        add_panel_letters(axes, list(studies))
        merge_legends(figure, axes)
        return figure

    return FigureResult(draw, table=_make_lengths_table(studies), findings=_count_longest(studies))


def _figure_5(job: FigureJob) -> FigureResult:
    tries, layers, widths, scales = _choose_ranges(job)
    # formulas of several steps, Adams and backward, for MATLAB's ode113 and ode23tb
    several = ("lsoda", "bdf") if importlib.util.find_spec("scipy") else ()
    solvers = job.choose("solvers", full=("ode23", "ode45", *several), small=("ode23", "ode45"))
    wanted: dict[str, tuple[str, Sequence[Any], int]] = {
        "solver": ("solver", solvers, min(tries, 5)),
        "width": ("width", widths, tries),
        "weight scale": ("weight_variance", scales, tries),
        "layers": ("layers", layers, tries),
    }
    studies = {}
    for name, (vary, values, count) in wanted.items():
        with job.timed(name):
            studies[name] = length_study(vary, values, tries=count, seed=job.seed)
    widest = studies["width"].results["ltc"][1]
    shares = widest.explained[:, -1].mean(dim=0)[:8]

    def draw() -> "Figure":
        figure, axes = make_panels(5, columns=3)
        solver, width, variance, scale, depth = axes
        for ax, name in zip((solver, width, scale, depth), studies, strict=True):
            plot_length_study(studies[name], ax)
        merge_legends(figure, (solver, width, scale, depth))
        plot_study_variance(widest, ax=variance)
        add_panel_letters(
            axes, ["solver", "width", "variance explained, LTC", "weight scale", "layers"]
        )
        return figure

    findings = {"variance explained by two components": float(shares[:2].sum())}
    return FigureResult(
        draw, {"variance explained": shares}, _make_lengths_table(studies), findings=findings
    )


def _choose_ranges(job: FigureJob) -> tuple[int, tuple[int], tuple[int, ...], tuple[int, ...]]:
    """Return how many networks, and the layers, widths and weight scales that are varied."""
    return (
        job.choose("networks", full=20, small=1),
        (job.choose("layers", full=4, small=2),),
        job.choose("widths", full=(10, 25, 50, 100), small=(5, 10)),
        job.choose("weight_variances", full=(1, 2, 4, 8, 16, 32), small=(1, 4)),
    )


def _make_lengths_table(studies: Mapping[str, LengthStudy]) -> FigureTable:
    """Return one row for each network, layer and panel."""
    rows = []
    for panel, study in studies.items():
        for model, results in study.results.items():
            for value, result in zip(study.values, results, strict=True):
                layers = result.lengths if study.vary == "layers" else result.lengths[:, -1:]
                for network, lengths in enumerate(layers.tolist()):
                    for layer, length in enumerate(lengths, start=1):
                        at = layer if study.vary == "layers" else value
                        rows.append((panel, model, at, network, float(f"{length:.7g}")))
    return FigureTable(("panel", "model", "value", "network", "trajectory length"), rows)


def _count_longest(studies: Mapping[str, LengthStudy]) -> dict[str, Any]:
    """Say in how many of the boxes the LTC has the longest median."""
    wins, boxes = 0, 0
    for study in studies.values():
        medians = {
            model: [median for result in results for median in result.lengths.median(0)[0].tolist()]
            for model, results in study.results.items()
        }
        for at in range(len(medians["ltc"])):
            boxes += 1
            wins += medians["ltc"][at] == max(values[at] for values in medians.values())
    return {"groups in which the LTC has the longest median": f"{wins} of {boxes}"}


def _compute_bounds(job: FigureJob) -> FigureResult:
    tries = job.choose("networks", full=40, small=3)
    law = NetworkDistribution(layers=1, activation="hardtanh", weight_law="paper", tau_law="paper")
    results = _simulate_models(job, law, tries)
    shown = {
        "Theorems 4 and 5, AAAI": [compare_with_bounds(result) for result in results],
        "released code": [compare_with_bounds(r, statement="released") for r in results],
    }

    def draw() -> "Figure":
        figure, axes = make_panels(len(shown), columns=2, width=4.0, height=3.6)
        for ax, comparisons in zip(axes, shown.values(), strict=True):
            plot_length_comparison(comparisons, ax=ax)
        add_panel_letters(axes, list(shown))
        merge_legends(figure, axes)
        return figure

    arrays, above = {}, {}
    for name, comparisons in shown.items():
        for comparison in comparisons:
            arrays[f"{comparison.statement} {comparison.model} measured"] = comparison.measured
            arrays[f"{comparison.statement} {comparison.model} bound"] = comparison.bound
        above[name] = {
            comparison.model: float(comparison.share_above[-1]) for comparison in comparisons
        }
    return FigureResult(draw, arrays, findings={"share of networks above the bound": above})


ENTRIES = (
    PaperFigure(
        name="ltc-figure-1",
        title="Latent trajectories of random networks",
        source=f"{LTC}, 2020 draft, Figure 1",
        caption="A circle enters three random networks that share their weights. Each panel shows "
        "the states along it, projected onto their first two principal components.",
        compute=_figure_1,
        differences=(DISTRIBUTION_NOTE,),
        minutes=0.1,
    ),
    PaperFigure(
        name="ltc-figure-3",
        aliases=("ltc-aaai-figure-1",),
        title="A circle passing through hidden layers",
        source=f"{LTC}, 2020 draft, Figure 3, and AAAI, Figure 1",
        caption="Rows: models with the same random weights. Columns: layers of 25 neurons, each "
        "driven by the one before, with the lengths of the trajectories. That of the LTC grows up "
        "to the third layer, that of the CT-RNN does not grow.",
        compute=_figure_3,
        differences=(
            DISTRIBUTION_NOTE,
            "The published one is an illustration; this is one measured example.",
        ),
        minutes=0.2,
    ),
    PaperFigure(
        name="ltc-figure-4",
        aliases=("ltc-aaai-figure-2",),
        title="Trajectory length over layers, weights and width",
        source=f"{LTC}, 2020 draft, Figure 4, and AAAI, Figure 2",
        caption="Lengths of the latent trajectories of random networks under one turn of a circle. "
        "Boxes span the quartiles, the axis of lengths is logarithmic. The panels are those of the "
        "AAAI paper; the draft has D and E the other way round.",
        compute=_figure_4,
        differences=(
            DISTRIBUTION_NOTE,
            _IDENTITY_NOTE,
            _FEWER_NOTE,
            "The layers of panel A have 10 neurons, as linear "
            "ones of 25 grow beyond what a solver follows; widths end at 100, not 200.",
            _CONTRADICTION_NOTE,
            "With what the text says instead it shows otherwise: ltc-figure-4-text.",
        ),
        minutes=4.0,
    ),
    PaperFigure(
        name="ltc-figure-4-text",
        title="Trajectory length as the text draws networks",
        source=f"{LTC}, 2020 draft, Figure 4, and AAAI, Figure 2",
        caption="As ltc-figure-4, with what the text says in place of the released code: weights "
        "and reversal potentials from N(0, sigma_w^2 / k) for k neurons, 1 / tau from |N(0, 1)|, "
        "and a Hard-tanh that clips each entry to [-1, 1].",
        compute=_figure_4_of_the_text,
        differences=(
            _FEWER_NOTE,
            "All layers have 25 neurons; widths end at 100, not 200. The text says nothing of the "
            "reversal potentials: k are drawn for each neuron as its weights are.",
            "Contradicts the paper: LTCs have the longest trajectories only with tanh and "
            "sigma_w^2 of 16 or more, in the other panels the shortest; with ReLU neural ODEs and "
            "CT-RNNs go on growing over layers.",
        ),
        minutes=0.3,
    ),
    PaperFigure(
        name="ltc-figure-5",
        aliases=("ltc-aaai-figure-3",),
        title="What the trajectory length depends on",
        source=f"{LTC}, 2020 draft, Figure 5, and AAAI, Figure 3",
        caption="Trajectory lengths of tanh networks over the solver, width, scale of weights and "
        "layers, of at most five networks over the solver; bars: variance that the principal "
        "components of a latent trajectory explain, the mean over LTCs of the second width.",
        compute=_figure_5,
        differences=(
            DISTRIBUTION_NOTE,
            _FEWER_NOTE,
            "MATLAB's ode113 and ode23tb are stood in for by LSODA and BDF of "
            "SciPy, where it is installed; widths end at 100, not 200.",
            _CONTRADICTION_NOTE,
        ),
        minutes=4.0,
    ),
    PaperFigure(
        name="ltc-figure-s2",
        title="Trajectory length over biases, samples and other settings",
        source=f"{LTC}, 2020 draft, Figure S2",
        caption="Lengths of the latent trajectories of random networks under one turn of a circle, "
        "over settings that ltc-figure-4 and -5 do not vary. Boxes span the quartiles, the axis of "
        "lengths is logarithmic.",
        compute=_figure_s2,
        differences=(
            "The text does not say what the published figure varies; these settings are ours. "
            "Figure S8, more pictures of trajectories, was a download that is gone.",
            DISTRIBUTION_NOTE,
            _FEWER_NOTE,
            "The layers of panel E have 10 neurons.",
        ),
        minutes=3.0,
    ),
    PaperFigure(
        name="ltc-theorems-4-5",
        title="Measured trajectory lengths beside their lower bounds",
        source=f"{LTC}, Theorems 4 and 5",
        caption="Each point is a random network of 25 hard-tanh neurons, drawn as the theorems "
        "assume; above the line its trajectory is longer than the bound with constant 1.",
        compute=_compute_bounds,
        differences=(
            "The papers show no picture. The theorems leave a constant open, here 1, and are "
            "asymptotic: no point proves or refutes them.",
            "The printed bound of the LTC divides by the small spacing of the input and is "
            "far above all lengths; the released code multiplies by it.",
        ),
        minutes=0.3,
    ),
)
