"""Models from specifications: what a table or a command says of a model, and how it is built."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tauflow._internal.checks import check_bool
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError, OptionError
from tauflow.sequence import SequenceModule
from tauflow.training.preconditions import find_latest_time
from tauflow.wirings import WIRINGS, AbstractWiring, wiring_from_dict

from .base import AbstractWholeModel
from .forecast import ForecastModel
from .registry import (
    ModelInfo,
    WholeModelEntry,
    build_convolutional,
    get_model_entry,
    get_model_info,
)
from .sequence_model import SequenceModel
from .static_inputs import StaticInputs

_FROM_DATA = "follows from the data set"
_RESERVED_OPTIONS = {
    **dict.fromkeys(
        ("input_size", "return_sequences", "classes", "per_step", "targets"), _FROM_DATA
    ),
    "hidden_size": "is given beside the options",
}


@dataclass(frozen=True)
class ModelSpec:
    """A model of the catalog with its size and options.

    Args:
        cell: its name in the catalog of cells, or in that of whole models.
        hidden_size: neurons, or latent dimensions.
        head_init: how the linear readout is drawn, see
            :class:`tauflow.models.sequence_model.SequenceModel`.
        embedding_size: length of the vector of a token, if the data has tokens; by default
            ``hidden_size``.
        embedding_dropout: dropout on those vectors.
        spread: ``"quantile"`` or ``"gaussian"`` for a head that learns how far targets lie around
            predictions, see :class:`tauflow.models.SequenceModel`.
        options: everything else that its constructor takes, and ``static_to_head``, whether a head
            also reads the static inputs of the data directly, see
            :class:`tauflow.models.StaticInputs`; ``wiring`` is a description for
            :func:`tauflow.wirings.wiring_from_dict`, whose ``units`` default to ``hidden_size``.

    Raises:
        OptionError: an option has its own place, or follows from the data set.
    """

    cell: str
    hidden_size: int
    head_init: str = "torch"
    embedding_size: int | None = None
    embedding_dropout: float = 0.0
    spread: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.options:
            if name in _RESERVED_OPTIONS:
                raise OptionError(
                    f"the model option {name!r} {_RESERVED_OPTIONS[name]}; leave it out."
                )


def set_horizon(spec: ModelSpec, train: Callable[[], SequenceBatch]) -> ModelSpec:
    """Return the specification of a model that looks at the times of its training data.

    What looks at times up to a ``horizon`` gets the last one there, unless one is given.

    Args:
        spec: of the model.
        train: returns the data; called only if they are looked at.
    """
    entry = get_model_entry(spec.cell)
    looks = isinstance(entry, WholeModelEntry) and entry.model.has_horizon
    if not looks or "horizon" in spec.options:
        return spec
    latest = find_latest_time(train())
    return replace(spec, options={**spec.options, "horizon": latest}) if latest > 0 else spec


def build_model(
    spec: ModelSpec, card: DatasetCard
) -> SequenceModel | ForecastModel | AbstractWholeModel:
    """Build a model whose input and output fit a data set.

    It answers at every step if the data has a target at every step, else once per sequence. Tokens
    are embedded; images pass through the convolutional head of the driving networks. A model that
    predicts by itself comes as it is, all others with a linear readout. Where sequences end in
    queries, a :class:`ForecastModel` answers these, or a model made for them.

    Raises:
        UnknownNameError: there is no such model.
        OptionError: it has no such option, or is to embed tokens, but the data has features.
        ArgumentError: it cannot read this data set, or not answer as often as it asks.
    """
    entry, options = get_model_info(spec.cell), dict(spec.options)
    if not card.vocabulary and (spec.embedding_size or spec.embedding_dropout):
        raise OptionError(
            f"embedding_size and embedding_dropout are for data sets of tokens, and {card.name!r} "
            f"has {_name_input_kind(card)}; leave them out."
        )
    _check_spread(entry, spec, card)
    if card.image_size is not None:
        return _build_image_model(entry, spec, card)
    _check_model_fits_data(entry, card)
    if card.query_targets:
        return _build_forecast_model(entry, spec, card)
    if "targets" in entry.outputs:
        if spec.head_init != "torch":
            raise OptionError(f"the model {entry.name!r} has its own readout; leave head_init out.")
        if options.get("objective") != "reconstruction":
            options |= {"classes": card.target_size, "per_step": card.per_step}
        body = entry.build(card.input_size, spec.hidden_size, **options)
        assert isinstance(body, AbstractWholeModel), "a sequence module has no head"
        return body
    size = _resolve_hidden_size(spec, options) if "wiring" in entry.inputs else spec.hidden_size
    if "every step" in entry.outputs:
        options["return_sequences"] = card.per_step
    width = (spec.embedding_size or spec.hidden_size) if card.vocabulary else card.input_size
    static = check_bool(static_to_head=options.pop("static_to_head", False))
    if static and not card.static_inputs:
        raise OptionError(
            f"static_to_head is for data with static inputs, and {card.name!r} has none. Name "
            "their columns, static= (--static), or leave it out."
        )
    body = entry.build(width, size, **options)
    return SequenceModel(
        StaticInputs(body, card.static_inputs) if static else body,
        card.target_size,
        head_init=spec.head_init,
        vocabulary=card.vocabulary,
        embedding_dropout=spec.embedding_dropout,
        spread=spec.spread,
    )


def _build_forecast_model(
    entry: ModelInfo, spec: ModelSpec, card: DatasetCard
) -> ForecastModel | AbstractWholeModel:
    """Build a cell that answers queries, or a whole model that does so by itself."""
    options = dict(spec.options)
    if spec.head_init != "torch":
        raise OptionError("forecasts at any time have their own head; leave head_init out.")
    if "queries" in entry.outputs:
        options["targets"] = card.query_targets
        model = entry.build(card.input_size, spec.hidden_size, **options)
        assert isinstance(model, AbstractWholeModel), "no cell answers queries"
        return model
    if "wiring" not in entry.inputs or not entry.is_causal(options):
        raise ArgumentError(
            f"a forecast at any time is a step of a cell from its last state, and {spec.cell!r} "
            "with these options has none that it can go on from. Choose a cell, such as 'cfc' or "
            "'gru-d', that goes forwards in time."
        )
    features = card.input_size - 1 - card.calendar_inputs
    width = features if "observed" in entry.inputs else 2 * features
    size = _resolve_hidden_size(spec, options)
    rnn = entry.build(width + card.calendar_inputs, size, **options, return_sequences=False)
    assert isinstance(rnn, SequenceModule), "a cell is one"
    return ForecastModel(
        rnn,
        card.query_targets,
        horizon=card.query_horizon,
        spread=spec.spread,
        periods=card.query_periods,
        gap=card.query_gap,
        phases=card.calendar_inputs,
    )


def _check_spread(entry: ModelInfo, spec: ModelSpec, card: DatasetCard) -> None:
    """Refuse a head of the spread for classes, and for models with their own head."""
    if spec.spread is None:
        return
    if card.task != "regress":
        raise OptionError(
            f"spread={spec.spread!r} is of targets that are values, and those of {card.name!r} are "
            "classes, whose probabilities say how sure a prediction is. Leave it out."
        )
    if "targets" in entry.outputs or card.image_size is not None:
        raise OptionError(
            f"the model {entry.name!r} has its own readout, beside which no spread is "
            "learned; leave spread out, or choose another model."
        )


def _name_input_kind(card: DatasetCard) -> str:
    if card.image_size is not None:
        return "images"
    return "tokens" if card.vocabulary else "features"


def _build_image_model(entry: ModelInfo, spec: ModelSpec, card: DatasetCard) -> AbstractWholeModel:
    """Build a cell, or what the entry of convolutional models names, under a convolutional head."""
    options = {"cell": entry.name, **spec.options}
    if "images" in entry.inputs:
        options["cell"] = spec.options.get("cell", "cfc")
    elif "wiring" not in entry.inputs:
        raise ArgumentError(
            f"{card.name} has images, {card.image_size}, for inputs, and the model "
            f"{entry.name!r} takes features. Name a cell, which then gets a convolutional head."
        )
    elif "cell" in spec.options:
        raise OptionError(f"{spec.cell!r} is a cell itself; leave out the option 'cell'.")
    if spec.head_init != "torch":
        raise OptionError(
            f"{card.name} has images, whose models have their own readout; leave head_init out."
        )
    assert card.image_size is not None
    return build_convolutional(
        card.image_size,
        _resolve_hidden_size(spec, options),
        output_size=card.target_size,
        return_sequences=card.per_step,
        **options,
    )


def _check_model_fits_data(entry: ModelInfo, card: DatasetCard) -> None:
    """Refuse data that a model cannot read, or whose targets it cannot give."""
    images = "images" in entry.inputs
    if images or ("targets" in entry.outputs and card.vocabulary):
        raise ArgumentError(
            f"the model {entry.name!r} takes {'images' if images else 'features'}, but {card.name} "
            f"has {_name_input_kind(card)}. Choose another model."
        )
    if "queries" in entry.outputs and not card.query_targets:
        raise ArgumentError(
            f"the model {entry.name!r} forecasts inputs at times that are asked for, and "
            f"{card.name} asks for other targets. Choose another model, or data with queries."
        )
    if card.per_step and "every step" not in entry.outputs:
        raise ArgumentError(
            f"the model {entry.name!r} answers once per sequence, but {card.name} has a target at "
            "every step. Choose another model, or a data set with one target per sequence."
        )


def _resolve_hidden_size(spec: ModelSpec, options: dict[str, Any]) -> int | AbstractWiring:
    """Return the number of neurons, or the wiring that the options describe in its place."""
    if "wiring" not in options:
        return spec.hidden_size
    description = options.pop("wiring")
    if not isinstance(description, Mapping):
        raise OptionError(
            f"wiring must be a description such as {{'kind': 'auto-ncp', 'output_size': 4}}, got "
            f"{description!r}."
        )
    kind = WIRINGS.get(description.get("kind", ""))
    own_size = kind is not None and "units" not in inspect.signature(kind).parameters
    return wiring_from_dict({**({} if own_size else {"units": spec.hidden_size}), **description})
