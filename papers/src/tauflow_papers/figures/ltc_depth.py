"""Table 2 of the LTC paper: how many points a solver puts out for each sample of its input."""

from dataclasses import asdict

from tauflow_papers.theory import (
    RELEASED_ACTIVATIONS,
    DepthSummary,
    NetworkDistribution,
    plot_depths,
    trajectory_lengths,
)
from tauflow_papers.theory.random_networks import MODEL_NAMES

from .ltc_lengths import DISTRIBUTION_NOTE, LTC
from .paper_figure import FigureJob, FigureResult, FigureTable, PaperFigure

_ACTIVATIONS = {"tanh": "tanh", "sigmoid": "sigmoid", "ReLU": "relu", "Hard-tanh": "hardtanh"}
_PUBLISHED = {
    "tanh": ((0.56, 0.016), (4.13, 2.19), (9.19, 2.92)),
    "sigmoid": ((0.56, 0.00), (5.33, 3.76), (7.00, 5.36)),
    "ReLU": ((1.29, 0.10), (4.31, 2.05), (56.9, 9.03)),
    "Hard-tanh": ((0.61, 0.02), (4.05, 2.17), (81.01, 10.05)),
}
_MODEL_TITLES = dict(zip(MODEL_NAMES, ("Neural ODE", "CT-RNN", "LTC"), strict=True))
_SHOWN_LAYERS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 12)  # columns of the table in Markdown
_DISTRIBUTIONS = ("released", "paper")
_DISTRIBUTION_TITLES = {"released": "as the released code", "paper": "as the text"}
_COLUMNS = ("median", "low", "high", "mean", "std")


def _compute_depths(job: FigureJob) -> FigureResult:
    tries = job.choose("networks", full=100, small=2)
    width = job.choose("width", full=100, small=4)
    depths: dict[str, dict[str, dict[str, DepthSummary]]] = {}
    for activation in _ACTIVATIONS:
        depths[activation] = {name: {} for name in _MODEL_TITLES.values()}
        for model, name in _MODEL_TITLES.items():
            for way in _DISTRIBUTIONS:
                released = way == "released"
                names = RELEASED_ACTIVATIONS if released else _ACTIVATIONS
                law = NetworkDistribution(
                    width=width, activation=names[activation], weight_law=way, tau_law=way
                )
                with job.timed(f"{name}, {way}"):
                    lengths = trajectory_lengths(model, law, tries=tries, seed=job.seed)
                depths[activation][name][_DISTRIBUTION_TITLES[way]] = lengths.depth_summary(way)
    published = {
        name: dict(zip(_MODEL_TITLES.values(), row, strict=True))
        for name, row in _PUBLISHED.items()
    }

    deepest = depths["Hard-tanh"]["LTC"]
    findings = {
        f"LTC with Hard-tanh, median [quartiles], {way}": f"{depth.median:.3g} "
        f"[{depth.low:.3g}, {depth.high:.3g}]"
        for way, depth in deepest.items()
    }
    return FigureResult(
        lambda: plot_depths(depths, published),
        table=_make_table(depths),
        markdown=True,
        findings=findings,
    )


def _make_table(depths: dict[str, dict[str, dict[str, DepthSummary]]]) -> FigureTable:
    columns = ["activation", "model", "published mean", "published std"]
    for way in _DISTRIBUTIONS:
        columns += [f"{name}, {_DISTRIBUTION_TITLES[way]}" for name in _COLUMNS]
    rows = []
    for activation, models in depths.items():
        for place, (model, ways) in enumerate(models.items()):
            row = [activation, model, *_PUBLISHED[activation][place]]
            for depth in ways.values():
                row += [float(f"{asdict(depth)[name]:.5g}") for name in _COLUMNS]
            rows.append(row)
    return FigureTable(columns, rows, _SHOWN_LAYERS)


ENTRIES = (
    PaperFigure(
        name="ltc-table-2-depth",
        aliases=("ltc-table-2",),
        title="Computational depth of random networks",
        source=f"{LTC}, Table 2",
        caption="Points that the solver puts out for each sample of the input, of 100 random "
        "networks of one layer of 100 neurons, on logarithmic axes: as published; with what the "
        "released code does; and with what the text says.",
        compute=_compute_depths,
        differences=(
            DISTRIBUTION_NOTE,
            "As the released code: output points of ode45, four for each step, by samples; its "
            "hard-tanh is the identity for networks of this size. These conventions give the "
            "published Neural ODE column, and for LTCs with ReLU and Hard-tanh its numbers.",
            "As the text: solver steps by input intervals; weights of variance sigma_w^2 / k; "
            "1 / tau from a normal law; the true hard-tanh. No published number comes out.",
            "Means and deviations of CT-RNN and LTC follow from a few very stiff networks, so that "
            "medians and quartiles are drawn; the CSV file has all.",
            "The note of the published table gives inputs 0.01 apart; the code has them at "
            "2 pi / 99.",
        ),
        minutes=15.0,
    ),
)
