"""What the pages of sequence modules and cells show before the docstring: the call, an example."""

import inspect
import textwrap

from tauflow import cells
from tauflow.cells.registry import CELLS, MODELS
from tauflow.sequence import SEQUENCE_MODULES, SequenceModule

MODULE_EXAMPLE = """\
import torch, tauflow

rnn = tauflow.{name}(input_size=3, hidden_size=32)
x, dt = torch.randn(8, 50, 3), torch.rand(8, 50)  # (B, T, I); time since the previous sample
y, h = rnn(x, dt=dt)  # outputs (B, T, N), state after the last sample (B, S)
"""
CELL_EXAMPLE = """\
import torch, tauflow

cell = tauflow.cells.{name}(input_size=3, hidden_size=32)
x, dt = torch.randn(8, 3), torch.rand(8, 1)  # one sample: (B, I), (B, 1)
h = cell(x, cell.initial_state(x), dt)  # the state after it (B, S)
y = cell.readout(h)  # the output (B, N)
"""


def describe_classes():
    """Return what the template of class pages says of each module and cell, by full name."""
    call = _call(SequenceModule.forward)
    return {**_describe_modules(call), **_describe_cells()}


def _describe_modules(call):
    return {
        f"tauflow.{module.__name__}": {
            "kind": "Sequence module",
            "links": [
                ("Base", f":class:`~tauflow.sequence.{module.__mro__[1].__name__}`"),
                ("Cell", f":class:`~tauflow.cells.{module.cell_class.__name__}`"),
                ("Source", _source(module.cell_class)),
            ],
            "names": [name for name, entry in MODELS.items() if entry.cell is module.cell_class],
            "example": MODULE_EXAMPLE.format(name=module.__name__),
            "call": _wrap("y, h = rnn", call),
        }
        for module in SEQUENCE_MODULES
    }


def _describe_cells():
    return {
        f"tauflow.cells.{cell.__name__}": {
            "kind": "Cell",
            "links": [
                ("Base", f":class:`~tauflow.cells.{_public_base(cell)}`"),
                ("Over sequences", f":class:`tauflow.{cell.__name__.removesuffix('Cell')}`"),
                ("Source", _source(cell)),
            ],
            "names": [name for name, entry in MODELS.items() if entry.cell is cell],
            "example": CELL_EXAMPLE.format(name=cell.__name__),
            "call": _wrap("h = cell", _call(cell.forward)),
        }
        for cell in CELLS
    }


def _public_base(cell):
    return next(base.__name__ for base in cell.__mro__[1:] if base.__name__ in cells.__all__)


def _call(method):
    """Return the arguments of a method with their defaults, without types."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    shown = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return str(inspect.Signature(shown))[1:-1].replace(", timespans=None, input=None", "")


def _wrap(start, arguments):
    """Return a call in lines of at most 72 columns."""
    if len(line := f"{start}({arguments})") <= 72:
        return line
    inner = textwrap.fill(f"{arguments},", 72, initial_indent="    ", subsequent_indent="    ")
    return f"{start}(\n{inner}\n)"


def _source(cell):
    page = "../../_modules/" + cell.__module__.replace(".", "/")
    return f"`{cell.__module__} <{page}.html#{cell.__name__}>`__"
