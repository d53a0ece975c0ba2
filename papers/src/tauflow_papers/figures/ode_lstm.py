"""The ODE-LSTM paper: how errors flow back through time, and what surface the loss has."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow._internal.sanitize import format_count
from tauflow.analysis import GradientFlow, gradient_flow
from tauflow.models import SequenceModel
from tauflow.plotting.axes import add_panel_letters, get_figure, make_panels
from tauflow.plotting.palette import BLUE
from tauflow.sequence import build
from tauflow_papers.datasets.synthetic.xor import PAD, encode_dense, encode_events, sample_streams
from tauflow_papers.theory import loss_surface, plot_gradient_flow, plot_loss_surfaces

from .paper_figure import FigureJob, FigureResult, PaperFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = (
    'Lechner & Hasani 2020, "Learning long-term dependencies in irregularly-sampled time series"'
)
_NETWORKS = {"CT-RNN": "ct-rnn", "ODE-RNN": "ode-rnn", "LSTM": "lstm", "ODE-LSTM": "ode-lstm"}


def _figure_1(job: FigureJob) -> FigureResult:
    steps = job.choose("steps", full=100, small=12)
    neurons = job.choose("neurons", full=32, small=4)
    x, gaps = torch.randn(4, steps, 2), torch.rand(4, steps)
    flows: dict[str, GradientFlow] = {}
    for title, name in _NETWORKS.items():
        torch.manual_seed(job.seed)
        with job.timed(title):
            flows[title] = gradient_flow(build(name, 2, neurons), x, dt=gaps)

    left = {title: float(flow.error_norm[:, 0].log().mean().exp()) for title, flow in flows.items()}
    arrays = {title: flow.error_norm.float() for title, flow in flows.items()}
    return FigureResult(
        lambda: get_figure(plot_gradient_flow(flows)),
        arrays,
        findings={f"what is left of an error {format_count(steps, 'step')} back": left},
    )


def _figure_3(job: FigureJob) -> FigureResult:
    points = job.choose("points", full=21, small=5)
    streams = job.choose("streams", full=256, small=8)
    neurons = job.choose("neurons", full=32, small=4)
    entries = encode_events(*sample_streams(streams, job.seed))
    x = torch.from_numpy(entries.values).float().unsqueeze(-1)
    y = torch.from_numpy(entries.parity).float().unsqueeze(-1)
    times: dict[str, Any] = {
        "dt": torch.from_numpy(entries.elapsed).float() / x.shape[1],
        "mask": torch.from_numpy(entries.mask),
    }

    def loss(model: nn.Module) -> Tensor:
        found: Tensor = model(x, **times)[0]
        return nn.functional.binary_cross_entropy_with_logits(found, y)

    surfaces = {}
    for title in ("ODE-RNN", "ODE-LSTM"):
        torch.manual_seed(job.seed)
        rnn = build(_NETWORKS[title], 1, neurons, return_sequences=False)
        with job.timed(title):
            surfaces[title] = loss_surface(
                SequenceModel(rnn, 1), loss, points=points, seed=job.seed
            )

    arrays = {f"{title} loss": surface.loss for title, surface in surfaces.items()}
    arrays["alpha"] = arrays["beta"] = surfaces["ODE-RNN"].alpha
    relief = {title: surface.relief for title, surface in surfaces.items()}
    return FigureResult(
        lambda: plot_loss_surfaces(surfaces),
        arrays,
        findings={"standard deviation of the loss": relief},
    )


def _figure_s1(job: FigureJob) -> FigureResult:
    job.settings["bits"] = 16
    bits = np.zeros((1, PAD), dtype=np.int64)
    bits[0, :16] = [0, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    lengths = np.array([16])
    entries = {"dense": encode_dense(bits, lengths), "events": encode_events(bits, lengths)}
    shown = {
        name: (np.cumsum(one.elapsed[0][one.mask[0]]), one.values[0][one.mask[0]])
        for name, one in entries.items()
    }

    def draw() -> "Figure":
        figure, axes = make_panels(2, columns=1, width=6.6, height=1.6, above=0.0)
        edges = np.concatenate([[0], shown["dense"][0]])
        for ax, (times, values) in zip(axes, shown.values(), strict=True):
            ax.stairs(shown["dense"][1], edges, color="0.75", linewidth=2)
            ax.plot(times, values, "o", color=BLUE, markersize=6)
            ax.set(ylabel="bit", yticks=(0, 1), ylim=(-0.25, 1.25), xlim=(0, 17))
        axes[-1].set_xlabel("bits since the start")
        names = [
            f"{name}, {format_count(len(values), 'entry', 'entries')}"
            for name, (_, values) in shown.items()
        ]
        add_panel_letters(axes, names)
        return figure

    arrays = {f"{name} {part}": v for name, pair in shown.items()
              for part, v in zip(("times", "values"), pair, strict=True)}  # fmt: skip
    counts = {name: len(values) for name, (_, values) in shown.items()}
    return FigureResult(draw, arrays, findings={"entries of the same 16 bits": counts})


ENTRIES = (
    PaperFigure(
        name="ode-lstm-figure-1",
        title="Errors that flow back through time",
        source=f"{PAPER}, Figure 1",
        caption="Norm of the Jacobian of the last state with respect to earlier ones, of untrained "
        "networks along random sequences with irregular gaps: a constant error flow is a "
        "horizontal line.",
        compute=_figure_1,
        differences=(
            "The published figure is a sketch of three cases; these are measured, at the default "
            "initial weights. The forget bias of the ODE-LSTM is 3, as in the released code; that "
            "of the LSTM is 0, as in PyTorch.",
            "Errors of the ODE-LSTM are not constant, but stay within a hundredfold over 100 "
            "steps; those of the ODE-RNN explode only beyond some 80.",
        ),
        minutes=0.3,
    ),
    PaperFigure(
        name="ode-lstm-figure-3",
        title="Loss surfaces of long-term dependencies",
        source=f"{PAPER}, Figure 3",
        caption="Loss of untrained networks on event-coded XOR streams, on a plane of two random "
        "directions as long as the weights; relief: standard deviation of the loss.",
        compute=_figure_3,
        differences=(
            "The ODE-RNN's surface is not the flatter one on this plane, as published it is; task, "
            "plane and state of training of the published surfaces are not stated. Its left "
            "half is a sketch; see ode-lstm-figure-1 for the measured flow of errors.",
        ),
        minutes=0.5,
    ),
    PaperFigure(
        name="ode-lstm-figure-s1",
        title="A stream of bits, encoded densely and by events",
        source=f"{PAPER}, Figure S1",
        caption="The same 16 bits (grey) as the networks of the XOR task get them: an entry for "
        "each bit, and an entry where a bit differs from the one before it, with one at the end. "
        "The time of an entry is that at which its bit is known.",
        compute=_figure_s1,
        differences=("The published picture does not say which bits it shows.",),
        minutes=0.1,
    ),
)
