"""The sequence module of each catalogued cell, and ``build`` by catalog name."""

from typing import Any

from tauflow._internal.plugins import find_published
from tauflow.cells.base import AbstractCell
from tauflow.cells.registry import CELLS, MODELS, ModelEntry
from tauflow.errors import UnknownNameError

from .catalog_rnn import CatalogRNN, check_layer_option_names
from .rnn import RNN
from .sequence_module import SequenceModule, layer_option_names


def make_module(cell: type[AbstractCell]) -> type[CatalogRNN]:
    """Make the sequence module of a cell.

    It is here by its name; modules.pyi, made of the same, tells it to editors and checkers.
    """
    name = cell.__name__.removesuffix("Cell")
    kind: Any = type(CatalogRNN)
    module: type[CatalogRNN] = kind(
        name, (CatalogRNN,), {"__module__": __name__, "cell_class": cell}
    )
    globals()[name] = module
    return module


SEQUENCE_MODULES: tuple[type[CatalogRNN], ...] = tuple(map(make_module, CELLS))
"""The sequence modules of the cells of :data:`tauflow.cells.registry.CELLS`."""


def build(name: str, input_size: int, hidden_size: Any, **options: Any) -> SequenceModule:
    """Build a sequence module by catalog name.

    Args:
        name: of a cell of ``tauflow models``, e.g. ``"cfc-mmrnn"``; whole models are built with
            ``tauflow.models.WHOLE_MODELS[name].build(input_size, hidden_size)``.
        input_size: features per time point.
        hidden_size: neurons, or a wiring for cells that take one.
        **options: options of the cell and of the sequence module.

    Raises:
        UnknownNameError: no model has that name; the nearest is suggested.
        OptionError: the model has no such option, or its cell has one by the name of an argument
            of sequence modules.
    """
    try:
        entry = MODELS[name]
    except UnknownNameError as error:
        raise UnknownNameError(
            f"{error} These are cells; whole models, such as 'transformer', are built with "
            "tauflow.models.WHOLE_MODELS[name].build(input_size, hidden_size)."
        ) from None
    if module := CatalogRNN.module_of_cell.get(entry.cell):
        return module(input_size, hidden_size, **{**entry.options, **options})
    check_layer_option_names(entry.cell)
    layer_options = {key: options.pop(key) for key in layer_option_names() if key in options}
    return RNN(entry.build(input_size, hidden_size, **options), **layer_options)


def _check_layer_options(_: str, entry: ModelEntry) -> None:
    check_layer_option_names(entry.cell)


MODELS.add_check(_check_layer_options)


def __getattr__(name: str) -> Any:
    return find_published(__name__, name)  # pickles look for classes here
