"""The registry of whole models; that of the cells is ``tauflow.cells.registry``."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tauflow._internal.registry import Registry, make_entry_check, suggest_name
from tauflow.cells.registry import MODELS, ModelEntry
from tauflow.errors import ArgumentError, OptionError
from tauflow.sequence import SequenceModule, build

from .base import AbstractWholeModel
from .convolutional import DRIVING_LAYERS, ConvolutionalSequenceModel


@dataclass(frozen=True)
class WholeModelEntry:
    """Catalog entry of a published model that is more than a cell.

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
                    f"{self.name} has no option {name!r}.{suggest_name(name, known)} "
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
        )
    },
)
"""Every model that is more than a cell, by name."""


def _make_name_check(
    other_registry: Mapping[str, ModelEntry] | Mapping[str, WholeModelEntry], kind: str
) -> Any:
    """Return a check that no model of the other catalog has the name."""

    def check(name: str, _: ModelEntry | WholeModelEntry) -> None:
        if name in other_registry:
            raise ArgumentError(f"{name!r} is the name of a {kind} already; choose another name.")

    return check


WHOLE_MODELS.add_check(make_entry_check(WholeModelEntry))
WHOLE_MODELS.add_check(_make_name_check(MODELS, "cell"))
MODELS.add_check(_make_name_check(WHOLE_MODELS, "whole model"))


@dataclass(frozen=True)
class ModelInfo:
    """What an experiment must know of a model, a cell or a whole one, to train it by its name.

    Args:
        name: catalog name.
        build: builds it from an input size, a hidden size and options; of a cell its sequence
            module.
        inputs: ``"features"`` or ``"images"``; ``"observed"``: which features are missing;
            ``"wiring"``: a description of one in place of a number of neurons.
        outputs: ``"every step"``, if not one per sequence only; ``"targets"``: it predicts by
            itself, and no readout goes on top; ``"inputs"``: these are values of its inputs;
            ``"queries"``: it does so of inputs at times that are asked for; ``"noncausal"``: its
            outputs depend on later samples too.
        title: name in the papers.
        source: where the model was published.
    """

    name: str
    build: Callable[..., SequenceModule | AbstractWholeModel]
    inputs: frozenset[str]
    outputs: frozenset[str]
    title: str
    source: str

    def is_causal(self, options: Mapping[str, Any]) -> bool:
        """Whether, built with these options, no output depends on later samples than its own."""
        return "noncausal" not in self.outputs and not options.get("bidirectional")


def _true_names(**properties: bool) -> frozenset[str]:
    return frozenset(word.replace("_", " ") for word, holds in properties.items() if holds)


def _info_from_cell(entry: ModelEntry) -> ModelInfo:
    reads = _true_names(features=True, wiring=True, observed=entry.cell.uses_observed)
    make = partial(build, entry.name)
    return ModelInfo(
        entry.name, make, reads, _true_names(every_step=True), entry.title, entry.paper
    )


def _info_from_whole_model(entry: WholeModelEntry) -> ModelInfo:
    kind = entry.model
    inputs = _true_names(
        features=not kind.takes_images, images=kind.takes_images, observed=kind.uses_observed
    )
    answers = _true_names(
        every_step=kind.has_per_step_output,
        targets=kind.has_head,
        inputs=kind.estimates_inputs,
        queries=kind.answers_queries,
        noncausal=not kind.is_causal,
    )
    return ModelInfo(entry.name, entry.build, inputs, answers, entry.title, entry.paper)


def get_model_entry(name: str) -> ModelEntry | WholeModelEntry:
    """Return the catalog entry of a cell or of a whole model.

    Raises:
        UnknownNameError: neither has that name; the nearest is suggested.
    """
    if name in MODELS:
        return MODELS[name]
    if name in WHOLE_MODELS:
        return WHOLE_MODELS[name]
    known: dict[str, ModelEntry | WholeModelEntry] = {**MODELS, **WHOLE_MODELS}
    return Registry("model", known)[name]  # whose error names both


def get_model_info(name: str) -> ModelInfo:
    """Return what an experiment must know of a model.

    Raises:
        UnknownNameError: no model has that name; the nearest is suggested.
    """
    entry = get_model_entry(name)
    if isinstance(entry, WholeModelEntry):
        return _info_from_whole_model(entry)
    return _info_from_cell(entry)
