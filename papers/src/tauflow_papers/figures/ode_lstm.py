"""The ODE-LSTM paper: how errors flow back through time, and what surface the loss has."""

from typing import Any

import torch
from torch import Tensor, nn

from tauflow._internal.sanitize import format_count
from tauflow.analysis import GradientFlow, gradient_flow
from tauflow.models import SequenceModel
from tauflow.plotting.axes import get_figure
from tauflow.sequence import build
from tauflow_papers.datasets.synthetic.xor import encode_events, sample_streams
from tauflow_papers.theory import loss_surface, plot_gradient_flow, plot_loss_surfaces

from .paper_figure import FigureJob, FigureResult, PaperFigure

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
)
