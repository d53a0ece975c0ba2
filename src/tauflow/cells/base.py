"""Base class of cells: one step of the state over a time step, with constant input."""

import itertools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, shape_error
from tauflow._internal.fixed_options import FixedOptionsModule
from tauflow._internal.init_args import CaptureInitArgs, format_changed_options
from tauflow._internal.module_hooks import has_hooks
from tauflow._internal.rebuild import check_rebuildable, rebuild
from tauflow.errors import ArgumentError, TauflowError
from tauflow.wirings import AbstractWiring

from .built_tensors import find_unusual_tensor, list_tensors
from .contract_checks import check_cell
from .reinitialise import reinitialised_options

_Cell = TypeVar("_Cell", bound="AbstractCell")

InputTensor = Float[Tensor, "*batch I"]
"""Inputs of a sample, (B, I), or of all steps of sequences, (B, T, I)."""
DtTensor = Float[Tensor, "*batch 1"]
"""Time since the sample before, (B, 1) or (B, T, 1)."""
ObservedMask = Bool[Tensor, "*batch I"] | None
"""Which features were measured; ``None`` where nothing is missing."""
StateTensor = Float[Tensor, "B S"]
"""The states of a cell."""


class Precomputed(NamedTuple):
    """Quantities of a step that do not depend on the state, computed before the loop."""

    per_step: tuple[Tensor, ...] = ()
    """Tensors ``(*batch, K)`` with the leading axes of the input, one entry for every step."""
    fixed: tuple[Tensor, ...] = ()
    """Tensors made of parameters alone, the same for every step."""


class _CellMeta(CaptureInitArgs):
    """Also look at the cell, fix its options and note the shapes of its tensors."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Build the cell, then look at it."""
        cell = super().__call__(*args, **kwargs)
        if not cls.__module__.startswith("tauflow."):
            check_cell(cell, AbstractCell)
        cell.fix_options()
        cell.__dict__["_tensors_when_built"] = list_tensors(cell)
        _add_number(cell)
        return cell


_numbers = itertools.count()
_numbered_cells = WeakValueDictionary[int, "AbstractCell"]()


def _add_number(cell: "AbstractCell") -> None:
    """Give a cell the number by which operators find it."""
    number = cell.__dict__["_number"] = next(_numbers)
    _numbered_cells[number] = cell


def find_cell(number: int) -> "AbstractCell":
    """Return the cell of a number."""
    return _numbered_cells[number]


class AbstractCell(FixedOptionsModule, metaclass=_CellMeta):
    """One recurrent cell: parameters, and a pure ``step``.

    A subclass sets the class attributes, makes its parameters in ``__init__``, draws them in
    :meth:`reset_parameters` and says how its state advances: in :meth:`step`, or in two methods of
    which the step is made, :meth:`precompute`, which runs once for all steps of a sequence (input
    projections, decay factors, matrices made of parameters), and :meth:`update`, which runs step by
    step. It never loops over time, never masks and never chooses a backend:
    :mod:`tauflow.sequence` does that once for every cell.

    The state is one tensor (B, S) with named parts (:attr:`state_parts`), so that solvers, kernels
    and analyses treat every cell alike.

    The cells of this library keep the shapes that they were built with: a parameter or buffer
    replaced by one of another shape is refused by name when the cell runs, on every backend, where
    torch alone would broadcast some. Their parts and methods are fixed, and they take no hooks;
    parametrizations are computed in every call.

    Options, which is all that is set on a cell but tensors and modules, are fixed once it is built;
    :meth:`replace` makes a cell of other options with the same parameters. The step of a cell of
    your own runs step by step, or in compiled loops if its class says :attr:`compiled`.

    Args:
        input_size: features per time point.
        hidden_size: neurons.
    """

    paper: ClassVar[str] = ""
    """Where the cell was published, if it was."""
    is_flow: bool = False
    """Whether ``step`` follows an ODE, so that a time step of 0 leaves the state unchanged."""
    uses_dt: bool = True
    """Whether the time step changes the result."""
    uses_observed: bool = False
    """Whether ``step`` takes a fourth argument ``observed``, the (B, I) mask of measured features;
    ``None``, its default, where nothing is missing and in the layers above the first."""
    compiled: ClassVar[bool] = False
    """Whether the step of a cell of your own is traced once and then runs in compiled loops. By
    ``compiled = True`` you promise that the step has no side effects, that no sequence of a batch
    depends on another or on their number, that gradients are those of PyTorch's operations, and
    that attributes, globals and closures that it reads, other than parameters and buffers, stay as
    they are at the first call."""
    takes_wiring: bool = False
    """Whether the hidden size may be a wiring."""
    state_names: ClassVar[tuple[str, ...]] = ("h",)
    """The parts of the state, if each is as wide as there are neurons."""

    options: dict[str, Any]
    """The arguments the cell was built with; recorded automatically."""

    _number: int

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of another cell, whose copy this is."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        _add_number(self)

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size = check_at_least(1, input_size=input_size)
        if isinstance(hidden_size, AbstractWiring):
            raise ArgumentError(
                f"{type(self).__name__} is fully connected and takes a number as hidden_size, got "
                f"{hidden_size!r}. Wirings are for LTC, WiredCfC and MixedMemory(core='wired-cfc')."
            )
        self.hidden_size = check_at_least(1, hidden_size=hidden_size)

    @property
    def state_parts(self) -> dict[str, int]:
        """Names and widths of the parts of the state, in order."""
        return dict.fromkeys(self.state_names, self.hidden_size)

    @property
    def state_size(self) -> int:
        """Width S of the state."""
        return sum(self.state_parts.values())

    @property
    def output_size(self) -> int:
        """Width of what :meth:`readout` returns."""
        return self.hidden_size

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw every parameter again from the distributions of the source.

        By default the parts that can do so draw theirs, from the global generator.
        """
        for part in self.children():
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()

    def precompute(self, *args: Any, **kwargs: Any) -> Precomputed:
        """Return what :meth:`update` needs apart from the state; by default what it is given.

        A subclass takes the inputs x, ``(*batch, I)``, the time steps dt, ``(*batch, 1)``, and with
        ``uses_observed`` which features were measured, ``(*batch, I)`` or ``None``, by default
        ``None``; x is 0 in place of NaN that were not measured. It is called once for all steps of
        a sequence.
        """
        return Precomputed(args)

    def update(self, *args: Any, **kwargs: Any) -> StateTensor:
        """Advance the state h, (B, S): ``update(h, *per_step, *fixed)``.

        A subclass names what it takes: the state, one step of each tensor that :meth:`precompute`
        returned per step, and the fixed ones.
        """
        raise NotImplementedError

    def step(
        self,
        x: Float[Tensor, "B I"],
        h: StateTensor,
        dt: Float[Tensor, "B 1"],
        *observed: Any,
        **named: Any,
    ) -> StateTensor:
        """Advance the state by ``dt``, holding ``x``: :meth:`precompute`, then :meth:`update`.

        A subclass that overrides it takes x, h and dt, and with ``uses_observed`` a fourth argument
        ``observed``, by default ``None``.
        """
        per_step, fixed = self.precompute(x, dt, *observed, **named)
        return self.update(h, *per_step, *fixed)

    def update_gate(self, x: Float[Tensor, "B I"], h: StateTensor) -> StateTensor:
        """Return the factors in [0, 1] that gates put on the velocity; ones by default.

        A gate that is shut makes a state rest that is no fixed point of what the gate lets in;
        :func:`tauflow.analysis.find_fixed_points` can tell the two apart by this.

        Where the gate also depends on the time step, the override has one more argument, by the
        name ``dt``, and is given that of the step, (B, 1), there; 0 in continuous time.
        """
        return torch.ones_like(h)

    @property
    def has_time_unit(self) -> bool:
        """Whether it matters in which unit time steps are measured."""
        return True

    @property
    def time_constant(self) -> float | None:
        """The time constant that the cell begins with, in the unit of dt, if it has a single one.

        By default its number ``tau``. A cell without ``tau`` expects time steps around 1.
        """
        tau = getattr(self, "tau", None)
        return float(tau) if isinstance(tau, float | int) and tau > 0 else None

    def max_stable_dt(self) -> float:
        """Return the longest time step that fixed explicit steps follow without blowing up.

        That is the number of steps times the length of the solver's interval of stability, over the
        largest rate at which the present parameters let a state decay. Beyond it, states may grow
        at every sample until they overflow. Infinite for cells that take no such steps.
        """
        return math.inf

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch H"]:
        """Return what the cell emits in a state; the hidden part by default."""
        return h[..., : self.hidden_size]

    def initial_state(self, x: Float[Tensor, "B I"]) -> StateTensor:
        """Return the state before the first valid input ``x``; zeros by default."""
        return x.new_zeros(x.shape[0], self.state_size)

    def split_state(self, h: Float[Tensor, "*batch S"]) -> dict[str, Tensor]:
        """Return the named parts of a state, as views."""
        if h.shape[-1] != self.state_size:
            where, parts = f"{type(self).__name__}.split_state", self.state_parts
            raise shape_error(where, "h", h, f"(..., {self.state_size})", f"Its parts: {parts}.")
        return dict(
            zip(self.state_parts, h.split(list(self.state_parts.values()), dim=-1), strict=True)
        )

    def with_input_size(self, input_size: int) -> "AbstractCell":
        """Return a new cell with the same options and fresh parameters for another input width.

        Of a module or parameter among the options it gets a copy, whose parts draw their parameters
        again where they train and have a ``reset_parameters``; one that is made for a certain input
        width, or that cells are to share, takes an override of this method.

        Raises:
            ArgumentError: the constructor does not take the input width, or another option, by
                name.
        """
        if "input_size" not in self.options:
            raise ArgumentError(
                f"{type(self).__name__} cannot be made for another input width: its constructor "
                "has no argument named input_size. Name it so, or override with_input_size."
            )
        check_rebuildable(self, "for another input width")
        return type(self)(**{**reinitialised_options(self.options), "input_size": input_size})

    def replace(self: _Cell, **options: Any) -> _Cell:
        """Return a cell of the same class with other options and copies of the same parameters.

        Parameters keep dtype, device and ``requires_grad``, modules their training mode. For a
        sequence module there is ``rnn.replace(**options)``.

        Args:
            **options: arguments of the constructor; the others are as this cell was built.

        Raises:
            OptionError: there is no such option, or the value is not one.
            ArgumentError: parameters would have other shapes, or parts of the cell were replaced,
                parametrized or given hooks.
        """
        return rebuild(self, self.options, options)

    def _fixed_advice(self, name: str) -> str:
        """Return what to do instead of setting an option."""
        if name in self.options and name not in ("input_size", "hidden_size"):
            return (
                f"cell.replace({name}=...) returns the cell with another value and the same "
                "parameters."
            )
        return (
            "cell.replace(**options) returns a cell with other options and the same parameters. "
            "What a step changes belongs into the state, or into a buffer."
        )

    def _find_unusual_tensor(self) -> str | None:
        """Return what :func:`~tauflow.cells.built_tensors.find_unusual_tensor` says, or raises."""
        try:
            return find_unusual_tensor(self)
        except TauflowError as error:
            return str(error)

    def forward(
        self,
        x: Float[Tensor, "B I"],
        h: StateTensor,
        dt: Float[Tensor, "B 1"],
        *observed: Bool[Tensor, "B I"],
    ) -> StateTensor:
        """Call :meth:`step`."""
        return self.step(x, h, dt, *observed)

    def extra_repr(self) -> str:
        """Show the options that differ from their defaults."""
        return format_changed_options(self)


def first_parameter(module: nn.Module) -> Tensor | None:
    """Return what ``module.parameters()`` yields first, without its walk over the whole module."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for part in module._modules.values():
        nested = None if part is None else first_parameter(part)
        if nested is not None:
            return nested
    return None


class StepSequence(NamedTuple):
    """The steps of a cell over sequences.

    Args:
        per_step: what they read, each (B, T, K).
        update: the step, ``update(h, *one_step_of_each)``.
        fixed: tensors that it reads, made of parameters for this call.
        hoists: whether what does not depend on the state was computed, if the cell splits it off.
    """

    per_step: tuple[Tensor, ...]
    update: Callable[..., Tensor]
    fixed: tuple[Tensor, ...] = ()
    hoists: bool = True


def precompute_steps(
    cell: AbstractCell,
    x: Tensor,
    dt: Tensor,
    observed: Tensor | None = None,
    *,
    hoists: bool = True,
) -> StepSequence:
    """Return the steps of a sequence, with what the state does not touch computed.

    A step that a user wrote, for a class or for one cell, is called as it is. A cell with hooks is
    itself called for every sample, which calls them.

    Args:
        cell: whose steps they are.
        x: inputs, (B, T, I).
        dt: time steps, (B, T, 1).
        observed: (B, T, I) bool, or ``None``.
        hoists: whether that is computed now; else every step does so itself.
    """
    sequences = (x, dt) if observed is None else (x, dt, observed)
    if has_hooks(cell):
        return StepSequence(sequences, lambda h, x, dt, *seen: cell(x, h, dt, *seen))
    # which the compiler of torch 2.8 knows, not vars()
    if not hoists or "step" in cell.__dict__ or type(cell).step is not AbstractCell.step:
        return StepSequence(
            sequences, lambda h, x, dt, *seen: cell.step(x, h, dt, *seen), hoists=hoists
        )
    per_step, fixed = cell.precompute(*sequences)
    return StepSequence(per_step, lambda h, *inputs: cell.update(h, *inputs, *fixed), fixed)
