"""The LTC papers beside trajectory lengths: gradients, bounds and universal approximation."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from tauflow._internal.sanitize import format_count
from tauflow.plotting.axes import add_panel_letters, make_panels
from tauflow.sequence import LTC
from tauflow_papers.theory import (
    SYSTEMS,
    approximate_system,
    certify_ltc,
    compare_gradient_methods,
    plot_approximation,
    plot_approximation_errors,
    plot_certificate,
    plot_gradient_methods,
    plot_round_trip,
    round_trip,
)

from .ltc_lengths import LTC as PAPER
from .paper_figure import FigureJob, FigureResult, FigureTable, PaperFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COST_COLUMNS = (
    *("method", "span", "forward_seconds", "backward_seconds", "evaluations", "saved_bytes"),
    *("forward_error", "backward_error", "own_error"),
)


class _LeakyNeuralODE(nn.Module):
    """A neural ODE with leak, whose backward pass grows what the forward pass forgets."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(size, hidden), nn.Linear(hidden, size)
        nn.init.normal_(self.inner.weight, std=1.5 / size**0.5)
        nn.init.normal_(self.outer.weight, std=1.5 / hidden**0.5)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        rates: torch.Tensor = self.outer(torch.tanh(self.inner(h))) - h
        return rates


def _figure_2(job: FigureJob) -> FigureResult:
    steps = job.choose("steps", full=16, small=8)
    job.settings |= {"solver": "heun", "span": 4.0}
    flow = _LeakyNeuralODE(8, 32).double()
    with job.timed("solving"):
        trip = round_trip(flow, torch.randn(16, 8, dtype=torch.float64), 4.0, steps=steps)

    names = ("t", "truth", "forward", "oracle", "backward", "forward_error", "local_error")
    arrays = {name: getattr(trip, name) for name in (*names, "backward_error")}
    findings = {
        "error at the end, forwards": float(trip.forward_error[-1]),
        "error at the start, backwards": float(trip.backward_error[0]),
    }
    return FigureResult(lambda: plot_round_trip(trip), arrays, findings=findings)


def _table_1(job: FigureJob) -> FigureResult:
    spans = job.choose("spans", full=(1.0, 2.0, 4.0, 8.0, 16.0), small=(1.0, 2.0))
    repeats = job.choose("repeats", full=5, small=1)
    job.settings |= {"rtol": 1e-3, "atol": 1e-4, "RK4 steps per unit of time": 10}
    flow, h = _LeakyNeuralODE(16, 32).double(), torch.randn(32, 16, dtype=torch.float64)
    groups = []
    for span in spans:
        with job.timed(f"span {span:g}"):
            steps = round(10 * span)
            groups.append(compare_gradient_methods(flow, h, span, substeps=steps, repeats=repeats))
    rows = [
        [value if isinstance(value, str | int) else float(f"{value:.4g}") for value in row]
        for group in groups
        for row in ([getattr(cost, name) for name in _COST_COLUMNS] for cost in group)
    ]

    fixed, _, adjoint = groups[-1]
    findings = {
        "longest solve, memory of BPTT over that of the adjoint method": fixed.saved_bytes
        / max(1, adjoint.saved_bytes),
        "its gradient error, adjoint over adaptive BPTT": adjoint.backward_error
        / groups[-1][1].backward_error,
    }
    table = FigureTable([name.replace("_", " ") for name in _COST_COLUMNS], rows)
    return FigureResult(
        lambda: plot_gradient_methods(groups), table=table, markdown=True, findings=findings
    )


def _compute_bounds(job: FigureJob) -> FigureResult:
    points = job.choose("samples", full=150, small=40)
    neurons = job.choose("neurons", full=12, small=6)
    network = LTC(3, neurons)
    x = 3 * torch.randn(4, points, 3).cumsum(dim=1) / points**0.5
    gaps = torch.rand(4, points) * 2
    with job.timed("running"):
        certificate = certify_ltc(network, x, dt=gaps)
    bounds = certificate.bounds

    arrays = {name: getattr(bounds, name).detach() for name in ("tau_low", "tau_high")}
    arrays |= {name: getattr(bounds, name).detach() for name in ("state_low", "state_high")}
    arrays |= {"tau": certificate.tau.detach(), "states": certificate.states.detach()}
    findings = {"all bounds hold": certificate.holds, "proven for any input": certificate.proven}
    return FigureResult(lambda: plot_certificate(certificate), arrays, findings=findings)


def _theorem_3(job: FigureJob) -> FigureResult:
    neurons = job.choose("hidden neurons", full=(1, 4, 16, 64), small=(1, 2))
    steps = job.choose("training steps", full=400, small=2)
    points = job.choose("points", full=50, small=5)
    count = job.choose("trajectories", full=512, small=16)
    fits = []
    for name in SYSTEMS:
        with job.timed(name):
            fits.append(
                approximate_system(
                    name, neurons, trajectories=count, points=points, steps=steps, seed=job.seed
                )
            )

    def draw() -> "Figure":
        figure, axes = make_panels(4, columns=4, width=2.9, height=3.0, above=0.0)
        for ax, fit in zip(axes, fits, strict=False):
            plot_approximation(fit, ax=ax)
        plot_approximation_errors(fits, ax=axes[3])
        add_panel_letters(axes, [*(f"{fit.title}, N = {neurons[-1]}" for fit in fits), "error"])
        return figure

    rows = [
        (fit.title, size, *(float(f"{value:.5g}") for value in errors))
        for fit in fits
        for size, *errors in zip(
            fit.neurons, fit.largest_error, fit.rms_error, fit.training_error, strict=True
        )
    ]
    arrays = {}
    for fit in fits:
        arrays[f"{fit.title} exact"] = fit.target.float()
        arrays[f"{fit.title} network"] = fit.networks[-1].float()
    columns = ("system", "hidden neurons", "largest error", "rms error", "rms error in training")
    errors = {fit.title: [fit.rms_error[0], fit.rms_error[-1]] for fit in fits}
    findings = {
        f"rms error with {neurons[0]} and {format_count(neurons[-1], 'hidden neuron')}": errors
    }
    return FigureResult(draw, arrays, FigureTable(columns, rows), markdown=True, findings=findings)


ENTRIES = (
    PaperFigure(
        name="ltc-figure-2",
        title="Errors forwards and backwards through a solver",
        source=f"{PAPER}, 2020 draft, Figure 2",
        caption="A: a neural ODE and what Heun's method makes of it; short lines to where the flow "
        "leads from each computed state lie on its curve, as the errors of single steps (C) are "
        "small. B: the backward pass from the computed end, as the "
        "adjoint method takes it, leaves the forward pass. C: errors of 16 such flows, backwards "
        "against the states of the forward pass.",
        compute=_figure_2,
        differences=("The published figure is a sketch; these errors are measured.",),
        minutes=0.1,
    ),
    PaperFigure(
        name="ltc-table-1",
        aliases=("ltc-aaai-table-1",),
        title="Backpropagation through a solver against the adjoint method",
        source=f"{PAPER}, Table 1",
        caption="Memory held for the backward pass, time, and error of the gradient against that "
        "of the exact flow, over the length of the solve: backpropagation through steps of RK4, "
        "through adaptive steps, and the adjoint method. Memory of backpropagation grows with the "
        "length, that of the adjoint method does not.",
        compute=_table_1,
        differences=(
            "The published table gives orders of growth and high or low accuracy; these are "
            "numbers, of a neural ODE with 16 neurons and a batch of 32 in float64.",
        ),
        minutes=0.5,
        measures_time=True,
    ),
    PaperFigure(
        name="ltc-theorems-1-2",
        title="Time constants and states within their bounds",
        source=f"{PAPER}, Theorems 1 and 2",
        caption="Each neuron of a random LTC under large random inputs at irregular time steps: "
        "grey, what the theorems allow for any input; blue, what was met.",
        compute=_compute_bounds,
        differences=("The papers show no picture.",),
        minutes=0.1,
    ),
    PaperFigure(
        name="ltc-theorem-3",
        title="LTCs that imitate dynamical systems",
        source=f"{PAPER}, Theorem 3",
        caption="Held-out trajectories of three systems (grey) and of the largest network fitted "
        "to others (dashed), from the dots on; and errors over the number N of hidden neurons.",
        compute=_theorem_3,
        differences=(
            "The papers show no picture: the theorem says that such networks exist, and not how to "
            "find them. These were trained.",
        ),
        minutes=5.0,
    ),
)
