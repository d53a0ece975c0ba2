"""The lane-keeping networks of the CfC paper, with their published numbers of parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.registry import Registry
from tauflow.errors import OptionError
from tauflow.models import ConvolutionalSequenceModel
from tauflow.sequence import LSTM, LTC, MixedMemory, SequenceModule, WiredCfC
from tauflow.wirings import NCP

DRIVING_WIRING = NCP(
    12, 6, 1, sensory_fanout=4, inter_fanout=4, recurrent_command_synapses=4, motor_fanin=6
)
"""12 inter, 6 command and 1 motor neuron, the sizes that the counts of parameters fix."""

DRIVING_IMAGE = (3, 72, 128)
"""An image size, (channels, height, width), that gives the published counts."""

_FEATURES = 64


@dataclass(frozen=True)
class DrivingEntry:
    """One row of the table.

    Args:
        name: catalog name.
        title: name in the paper.
        rnn: builds the recurrent part for 64 features; ``None`` for the convolutional network.
        size: neurons, or their wiring.
        options: options of the recurrent part that this row fixes.
        output_size: width of the linear readout; ``None`` where the motor neuron is the output.
        dense: widths of the dense layers of the head.
    """

    name: str
    title: str
    rnn: Callable[..., SequenceModule] | None
    size: Any = DRIVING_WIRING
    options: Mapping[str, Any] = field(default_factory=dict)
    output_size: int | None = None
    dense: Sequence[int] = (_FEATURES,)


DRIVING_MODELS: Registry[DrivingEntry] = Registry(
    "driving model",
    {
        entry.name: entry
        for entry in (
            DrivingEntry("cnn", "CNN", None, output_size=1, dense=(1000, 100)),
            DrivingEntry(
                "lstm", "LSTM", LSTM, 64, {"init": "keras", "forget_bias": 1.0}, output_size=1
            ),
            DrivingEntry("ncp", "NCP", LTC),
            DrivingEntry("cf-s", "Cf-S", WiredCfC, options={"mode": "pure"}),
            DrivingEntry("cfc", "CfC", WiredCfC),
            DrivingEntry("cfc-nogate", "CfC-noGate", WiredCfC, options={"mode": "no_gate"}),
            DrivingEntry("cfc-mmrnn", "CfC-mmRNN", MixedMemory, options={"core": "wired-cfc"}),
        )
    },
)
"""The rows of Table 3 of Hasani et al. 2022, by name."""


def driving_model(
    name: str, *, image_size: Sequence[int] = DRIVING_IMAGE, **options: Any
) -> ConvolutionalSequenceModel:
    r"""Build a lane-keeping network: from images to the curvature to steer.

    The head's architecture, images and drives were not released; of the circuit the parameters and
    one recording behind Figure 3 were. Convolutions with 24, 36, 48, 64 and 64
    channels, kernels 5, 5, 3, 3 and 3, and 1920 values when flattened, reproduce both published
    counts to the unit: that of the head that all recurrent networks share, and that of the
    convolutional network, with dense layers of 1000, 100 and 1.

    .. math::
        103\,700 + 1921 \cdot 64 = 226\,644, \qquad
        103\,700 + 1921 \cdot 1000 + 1001 \cdot 100 + 101 = 2\,124\,901

    Ours, as no count depends on them: strides 2, 2, 2, 1 and 1, the image size (any whose last map
    has 30 positions gives 1920), ReLU after each layer of the head, fan-outs of the wiring. Images
    are taken as they come; standardise them before.

    Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", Table 3.

    Args:
        name: ``"cnn"``, ``"lstm"``, ``"ncp"``, ``"cf-s"``, ``"cfc"``, ``"cfc-nogate"`` or
            ``"cfc-mmrnn"``.
        image_size: (channels, height, width).
        **options: options of the recurrent part, e.g. ``return_sequences=False``.

    Raises:
        UnknownNameError: no network has that name; the nearest is suggested.
        OptionError: the recurrent part has no such option.
    """
    entry = DRIVING_MODELS[name]
    rnn = None
    if entry.rnn is not None:
        rnn = entry.rnn(_FEATURES, entry.size, **{**entry.options, **options})
    elif options:
        raise OptionError(
            f"the driving model 'cnn' has no recurrent part to take {', '.join(sorted(options))}. "
            "Drop them, or choose another model."
        )
    return ConvolutionalSequenceModel(
        rnn, image_size, output_size=entry.output_size, dense=entry.dense
    )


_SLOW_HEAD = ("ncp", "cf-s")
"""Networks whose output stays constant with one rate of 1e-3 for head and circuit."""


def train_driving_model(name: str, x: Tensor, y: Tensor, steps: int) -> ConvolutionalSequenceModel:
    """Train a lane-keeping network on drives, in batches of four.

    By Adam at a rate of 1e-3 that falls as a cosine; NCP and Cf-S at 3e-4 for their head and 1e-2
    for their circuit, without which their output stays constant. Weights come from seed 0.

    Args:
        name: of :func:`driving_model`.
        x: frames, (B, T, C, H, W).
        y: curvature to steer by, (B, T, 1).
        steps: of the optimizer.
    """
    torch.manual_seed(0)
    model = driving_model(name)
    head_rate, rate = (3e-4, 1e-2) if name in _SLOW_HEAD else (1e-3, 1e-3)
    head = list(model.head.parameters())
    others = [p for p in model.parameters() if all(p is not q for q in head)]
    groups = [{"params": head, "lr": head_rate}, {"params": others, "lr": rate}]
    optimizer = torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(x), (4,), generator=generator)
        loss = (model(x[rows])[0] - y[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()
