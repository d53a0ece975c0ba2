"""What the sequence modules of catalogued cells have in common: they build their cell."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from tauflow.cells.base import AbstractCell
from tauflow.cells.option_names import check_option_names
from tauflow.errors import OptionError

from .sequence_module import SequenceModule, layer_option_names


class CatalogRNN(SequenceModule):
    """Base of the sequence modules of catalogued cells: build the cell, then run it.

    Args:
        input_size: features per time point.
        hidden_size: neurons, or a wiring for cells that take one.
        num_layers: stacked layers.
        bidirectional: whether each layer also runs backwards in time.
        dropout: probability of dropping an output between layers, while training.
        proj_size: width of a linear map on every layer's output; 0 for none.
        return_sequences: whether to return every step's output, or the last valid one's.
        backend: ``"auto"``, ``"reference"`` or the name of a fused backend.
        checkpoint_every: train with memory for so many steps; ``None`` keeps every step's.
        batch_first: always True; accepted for compatibility with ``torch.nn``.
        **cell_options: options of the cell, with the cell's defaults.
    """

    cell_class: ClassVar[type[AbstractCell]]
    module_of_cell: ClassVar[dict[type[AbstractCell], type["CatalogRNN"]]] = {}
    """The sequence module of each cell of the library that has one."""

    def __init_subclass__(cls) -> None:
        """Show the cell's own options in the signature and its equations in the docstring."""
        if "cell_class" not in cls.__dict__:
            return  # a user's subclass of one of them
        if cls.__module__.startswith("tauflow."):
            cls.module_of_cell[cls.cell_class] = cls
        about = f"{cls.__doc__}\n\n" if cls.__doc__ else ""
        cls.__doc__ = f"{about}{inspect.getdoc(cls.cell_class)}\n{_LAYER_ARGUMENTS}"
        if "__init__" not in cls.__dict__:
            cls.__init__ = _make_init_with_options(cls.cell_class)  # type: ignore[method-assign]

    def __init__(
        self,
        input_size: int,
        hidden_size: Any,
        num_layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        proj_size: int = 0,
        return_sequences: bool = True,
        backend: str = "auto",
        checkpoint_every: int | None = None,
        batch_first: bool = True,
        **cell_options: Any,
    ) -> None:
        check_option_names(self.cell_class, cell_options, extra_names=layer_option_names())
        cell = self.cell_class(input_size, hidden_size, **cell_options)
        super().__init__(
            cell,
            num_layers=num_layers,
            bidirectional=bidirectional,
            dropout=dropout,
            proj_size=proj_size,
            return_sequences=return_sequences,
            backend=backend,
            checkpoint_every=checkpoint_every,
            batch_first=batch_first,
        )


def check_layer_option_names(cell_class: type[AbstractCell]) -> None:
    """Raise :class:`OptionError` if a cell has an option by the name of a layer's argument.

    Where options of cell and layers are given together, the layers would take it silently.
    """
    parameters = inspect.signature(cell_class.__init__).parameters
    if both := [name for name in layer_option_names() if name in parameters]:
        raise OptionError(
            f"{cell_class.__name__} has an option {both[0]!r}, which is an argument of every "
            f"sequence module. Call it otherwise, such as {f'cell_{both[0]}'!r}, or run the cell "
            "by tauflow.RNN(cell)."
        )


_LAYER_ARGUMENTS = "\nArguments of the sequence module:\n    num_layers:" + (
    inspect.cleandoc(SequenceModule.__doc__ or "").partition("num_layers:")[2] + "\n"
)


def _make_init_with_options(cell_class: type[AbstractCell]) -> Callable[..., None]:
    """Return the constructor of a sequence module, with the cell's options in its signature."""

    @wraps(CatalogRNN.__init__)  # by whose arguments the module is recorded
    def build(self: CatalogRNN, *args: Any, **options: Any) -> None:
        CatalogRNN.__init__(self, *args, **options)

    check_layer_option_names(cell_class)
    cell = list(inspect.signature(cell_class.__init__).parameters.values())
    layers, *others = [
        inspect.signature(CatalogRNN.__init__).parameters[name] for name in layer_option_names()
    ]
    named = [p for p in cell if p.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters = [*named[:3], layers, *named[3:], *others, *cell[len(named) :]]
    shown = inspect.Signature(parameters, return_annotation=None)
    build.__signature__ = shown  # type: ignore[attr-defined]
    return build
