"""The sequence module of each catalogued cell, and ``build`` by catalog name."""

from typing import Any

from tauflow.cells.registry import CELLS, MODELS, ModelEntry
from tauflow.errors import UnknownNameError

from .catalog_rnn import CatalogRNN, check_layer_option_names
from .rnn import RNN
from .sequence_module import SequenceModule, layer_option_names

SEQUENCE_MODULES: tuple[type[CatalogRNN], ...] = tuple(
    type(CatalogRNN)(
        cell.__name__.removesuffix("Cell"),
        (CatalogRNN,),
        {"__module__": __name__, "cell_class": cell},
    )
    for cell in CELLS
)
"""The sequence modules of all cells of the catalog."""

# They are here by their names; modules.pyi, made of the same, tells them to editors and checkers.
globals().update({module.__name__: module for module in SEQUENCE_MODULES})


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
