"""The models that are more than a cell, by name, beside the cells of ``tauflow.cells.catalog``."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from tauflow.errors import OptionError
from tauflow.registry import Registry, nearest
from tauflow.sequence import build

from .convolutional import DRIVING_LAYERS, ConvolutionalSequenceModel
from .ip_net import IPNet
from .seft import SeFT
from .transformer import Transformer


@dataclass(frozen=True)
class WholeModelEntry:
    """A published model that is more than a cell.

    Args:
        name: catalog name; none is also a cell's.
        title: name in the papers.
        paper: where it was published.
        make: builds it from an input size, a hidden size and options.
        per_step: whether it can return an output for every step, or only one per sequence.
        uses_dt: whether times change the result.
        uses_observed: whether it takes the mask of measured features.
        takes_images: whether its input size is (channels, height, width) and not a number.
    """

    name: str
    title: str
    paper: str
    make: Callable[..., nn.Module]
    per_step: bool
    uses_dt: bool = True
    uses_observed: bool = False
    takes_images: bool = False

    @property
    def takes(self) -> str:
        """What goes in and comes out, in words."""
        parts = ["images" if self.takes_images else "features"]
        parts += ["gaps"] * self.uses_dt + ["observed"] * self.uses_observed
        out = "an output per step or sequence" if self.per_step else "an output per sequence"
        return f"{', '.join(parts)}; {out}"

    def build(self, input_size: Any, hidden_size: Any, **options: Any) -> nn.Module:
        """Build the model.

        Args:
            input_size: features per time point, or (channels, height, width) of images.
            hidden_size: width of the output.
            **options: the model's own.

        Raises:
            OptionError: the model has no such option.
        """
        # A class shows the signature of its metaclass, which takes anything.
        make = self.make.__init__ if isinstance(self.make, type) else self.make  # type: ignore[misc]
        parameters = inspect.signature(make).parameters.values()
        known = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        hands_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        for name in options:
            if name not in known and not hands_on:
                raise OptionError(
                    f"{self.name} has no option {name!r}.{nearest(name, known)} "
                    f"It takes: {', '.join(known)}."
                )
        return self.make(input_size, hidden_size, **options)


def build_convolutional(
    input_size: Sequence[int],
    hidden_size: Any,
    *,
    cell: str = "cfc",
    features: int = 64,
    output_size: int | None = None,
    layers: Sequence[Sequence[int]] = DRIVING_LAYERS,
    **options: Any,
) -> ConvolutionalSequenceModel:
    """Build a convolutional head with any catalogued cell on top.

    Args:
        input_size: (channels, height, width) of an image.
        hidden_size: neurons, or a wiring for cells that take one.
        cell: a name of ``tauflow models``.
        features: values that the head makes of an image.
        output_size: width of a linear readout; ``None`` for no readout.
        layers: (channels, kernel, stride) of each convolution.
        **options: options of the cell and of its sequence module.
    """
    rnn = build(cell, features, hidden_size, **options)
    return ConvolutionalSequenceModel(
        rnn, input_size, layers=layers, dense=(features,), output_size=output_size
    )


WHOLE_MODELS: Registry[WholeModelEntry] = Registry(
    "whole model",
    {
        entry.name: entry
        for entry in (
            WholeModelEntry(
                "convolutional",
                "Convolutional head and RNN",
                "Hasani et al. 2022, Closed-form continuous-time neural networks",
                build_convolutional,
                per_step=True,
                takes_images=True,
            ),
            WholeModelEntry(
                "transformer", "Transformer", Transformer.paper, Transformer, per_step=True
            ),
            WholeModelEntry(
                "ip-net", "IP-Net", IPNet.paper, IPNet, per_step=False, uses_observed=True
            ),
            WholeModelEntry("seft", "SeFT", SeFT.paper, SeFT, per_step=False, uses_observed=True),
        )
    },
)
"""Every model that is more than a cell, by name."""
