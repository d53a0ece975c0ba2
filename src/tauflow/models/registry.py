"""Every model by name: whole ones, listed here, beside the cells of ``tauflow.cells.catalog``."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tauflow.cells.catalog import MODELS, ModelEntry
from tauflow.errors import ArgumentError, OptionError
from tauflow.registry import Registry, entries_named, nearest
from tauflow.sequence import SequenceModule, build

from .base import AbstractWholeModel
from .convolutional import DRIVING_LAYERS, ConvolutionalSequenceModel
from .ip_net import IPNet
from .latent_ode import RNNVAE, LatentODE
from .mtan import MTAN
from .seft import SeFT
from .transformer import Transformer


@dataclass(frozen=True)
class WholeModelEntry:
    """A published model that is more than a cell; what it takes and gives is said by its class.

    Args:
        name: catalog name; none is also a cell's.
        title: name in the papers.
        model: its class.
        options: options fixed by this entry.
        make: builds it from an input size, a hidden size and options; by default the class.
    """

    name: str
    title: str
    model: type[AbstractWholeModel]
    options: dict[str, Any] = field(default_factory=dict)
    make: Callable[..., AbstractWholeModel] | None = None

    @property
    def paper(self) -> str:
        """Where the model was published."""
        return self.model.paper

    def build(self, input_size: Any, hidden_size: Any, **options: Any) -> AbstractWholeModel:
        """Build the model.

        Args:
            input_size: features per time point, or (channels, height, width) of images.
            hidden_size: neurons: the width of the output, or the latent dimensions of a model that
                predicts by itself.
            **options: the model's own; they add to, or override, those of the entry.

        Raises:
            OptionError: the model has no such option.
        """
        # A class shows the signature of its metaclass, which takes anything.
        make = self.make or self.model.__init__
        parameters = inspect.signature(make).parameters.values()
        known = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        hands_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        for name in options:
            if name not in known and not hands_on:
                raise OptionError(
                    f"{self.name} has no option {name!r}.{nearest(name, known)} "
                    f"It takes: {', '.join(known)}."
                )
        merged = {**self.options, **options}
        return (self.make or self.model)(input_size, hidden_size, **merged)


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
                ConvolutionalSequenceModel,
                make=build_convolutional,
            ),
            WholeModelEntry("transformer", "Transformer", Transformer),
            WholeModelEntry("ip-net", "IP-Net", IPNet),
            WholeModelEntry("seft", "SeFT", SeFT),
            WholeModelEntry("mtan", "mTAN", MTAN),
            WholeModelEntry("latent-ode-rnn", "Latent-ODE-RNN", LatentODE, {"encoder": "rnn"}),
            WholeModelEntry("latent-ode-ode", "Latent-ODE-ODE", LatentODE, {"encoder": "ode-rnn"}),
            WholeModelEntry("rnn-vae", "RNN-VAE", RNNVAE),
        )
    },
)
"""Every model that is more than a cell, by name."""


def _apart_from(others: Mapping[str, ModelEntry] | Mapping[str, WholeModelEntry], kind: str) -> Any:
    """Return a check that no model of the other catalog has the name."""

    def check(name: str, _: ModelEntry | WholeModelEntry) -> None:
        if name in others:
            raise ArgumentError(f"{name!r} is the name of a {kind} already; choose another name.")

    return check


WHOLE_MODELS.hold_to(entries_named(WholeModelEntry))
WHOLE_MODELS.hold_to(_apart_from(MODELS, "cell"))
MODELS.hold_to(_apart_from(WHOLE_MODELS, "whole model"))


@dataclass(frozen=True)
class Entry:
    """What an experiment must know of a model, a cell or a whole one, to train it by its name.

    Args:
        name: catalog name.
        build: builds it from an input size, a hidden size and options; of a cell its sequence
            module.
        reads: ``"features"`` or ``"images"``; ``"observed"``: which features are missing;
            ``"wiring"``: a description of one in place of a number of neurons.
        answers: ``"every step"``, if not one per sequence only; ``"targets"``: it predicts by
            itself, and no readout goes on top; ``"ahead"``: what it makes of a sample depends on
            later ones too.
        title: name in the papers.
        source: where the model was published.
    """

    name: str
    build: Callable[..., SequenceModule | AbstractWholeModel]
    reads: frozenset[str]
    answers: frozenset[str]
    title: str
    source: str

    def looks_ahead(self, options: Mapping[str, Any]) -> bool:
        """Whether, built with these options, it makes use of later samples than a step's own."""
        return "ahead" in self.answers or bool(options.get("bidirectional"))


def _words(**facts: bool) -> frozenset[str]:
    return frozenset(word.replace("_", " ") for word, holds in facts.items() if holds)


def _of_cell(entry: ModelEntry) -> Entry:
    reads = _words(features=True, wiring=True, observed=entry.cell.uses_observed)
    make = partial(build, entry.name)
    return Entry(entry.name, make, reads, _words(every_step=True), entry.title, entry.paper)


def _of_whole(entry: WholeModelEntry) -> Entry:
    kind = entry.model
    reads = _words(
        features=not kind.takes_images, images=kind.takes_images, observed=kind.uses_observed
    )
    answers = _words(every_step=kind.every_step, targets=kind.has_head, ahead=kind.reads_ahead)
    return Entry(entry.name, entry.build, reads, answers, entry.title, entry.paper)


def model_entry(name: str) -> ModelEntry | WholeModelEntry:
    """Return the catalog entry of a cell or of a whole model.

    Raises:
        UnknownNameError: neither has that name; the nearest is suggested.
    """
    known: dict[str, ModelEntry | WholeModelEntry] = {**MODELS, **WHOLE_MODELS}
    return Registry("model", known)[name]


def entry_of(name: str) -> Entry:
    """Return what an experiment must know of a model.

    Raises:
        UnknownNameError: there is none of that name; the nearest is suggested.
    """
    model_entry(name)  # refuse what is in neither catalog, in words that name both
    return _of_cell(MODELS[name]) if name in MODELS else _of_whole(WHOLE_MODELS[name])
