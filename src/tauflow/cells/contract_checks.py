"""Check the methods of a cell and what they return, for user-defined cells.

Torch broadcasts a state of one row to all, concatenates what is narrower than it says, and does not
mind a method that has not been called yet.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tauflow._internal.checks import is_tracing, shape_error
from tauflow.errors import ArgumentError, DtypeError

if TYPE_CHECKING:
    from .base import AbstractCell


def check_cell(cell: "AbstractCell", base: "type[AbstractCell]") -> None:
    """Raise unless a cell that was just built names its state and takes what it will be given.

    Args:
        cell: the cell.
        base: the class of all cells.

    Raises:
        ArgumentError: parts of the state have one name, it has no step, or a method does not take
            its arguments.
    """
    where, names = type(cell).__name__, cell.state_names
    if isinstance(names, str) or len(set(names)) != len(names):
        raise ArgumentError(
            f"{where}: state_names is {names!r}, expected a tuple of different names, one for each "
            "part of the state, such as ('h', 'c') or ('h',)."
        )
    _check_step(type(cell), base)
    arguments = ["x", "h", "dt"]
    method = "step"
    if type(cell).step is base.step:
        method, arguments = "precompute", ["x", "dt"]
    _check_call(cell, method, *arguments, *["observed"] * cell.uses_observed)
    if cell.uses_observed:
        advice = "Where nothing is missing it is not told: give it a default, observed=None."
        _check_call(cell, method, *arguments, advice=advice)


def _check_step(kind: "type[AbstractCell]", base: "type[AbstractCell]") -> None:
    """Raise unless a class of cells has a step, and calls what it has."""
    if kind.step is base.step and kind.update is base.update:
        raise ArgumentError(
            f"{kind.__name__} has no step. Write step(x, h, dt), or update(h, x, dt) if part of it "
            "is to be computed for all steps at once by precompute(x, dt)."
        )
    of_step, of_update = (
        next(base for base in kind.__mro__ if name in vars(base)) for name in ("step", "update")
    )
    if of_step is not base and of_update is not of_step and issubclass(of_update, of_step):
        raise ArgumentError(
            f"{kind.__name__}.update would never be called: the step of {of_step.__name__} does "
            "not call it. Override step."
        )


def _check_call(
    cell: "AbstractCell",
    method: str,
    *arguments: str,
    by_name: str = "",
    advice: str = "Let it take these.",
) -> None:
    """Raise unless a method takes these arguments by position, and perhaps one more by name."""
    signature = _get_signature(getattr(cell, method))
    if signature is None:
        return
    named = {by_name: by_name} if by_name else {}
    try:
        signature.bind(*arguments, **named)
    except TypeError:
        names = [*arguments, *(f"{name}={name}" for name in named)]
        where, called = f"{type(cell).__name__}.{method}", f"{method}({', '.join(names)})"
        masked = cell.uses_observed and method in ("step", "precompute")
        with_what = " of a cell with uses_observed=True" if masked else ""
        raise ArgumentError(
            f"{where} has the arguments {signature}, but the method{with_what} is called as "
            f"{called}. {advice}"
        ) from None


def _get_signature(call: Callable[..., object]) -> inspect.Signature | None:
    """Return what a method takes, ``None`` if it is not written in Python."""
    try:
        return inspect.signature(call)
    except (TypeError, ValueError):
        return None


def call_update_gate(cell: "AbstractCell", x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
    """Return the factors that a cell's gates put on the velocity of its state, (B, S).

    Most gates do not depend on the time step; it is given to a method with an argument named
    ``dt``. A method by this name is looked at here and not when the cell is built, for only
    analyses ask.

    Args:
        cell: whose gates they are.
        x: inputs, (B, I).
        h: states, (B, S).
        dt: time steps, (B, 1); 0 in continuous time.

    Raises:
        ArgumentError: the method takes other arguments.
    """
    signature = _get_signature(cell.update_gate)
    timed = signature is not None and "dt" in signature.parameters
    _check_call(cell, "update_gate", "x", "h", by_name="dt" if timed else "")
    gap = {"dt": dt} if timed else {}
    return cell.update_gate(x, h, **gap)


def call_initial_state(cell: "AbstractCell", x: Tensor) -> Tensor:
    """Return a cell's state before the first valid input, (B, S).

    Args:
        cell: whose state it is.
        x: first valid inputs, (B, I).

    Raises:
        ArgumentError, ShapeError, DtypeError: what the cell returned is no such state.
    """
    start = cell.initial_state(x)
    if not is_tracing():
        advice = "One row for each row of x: x.new_zeros(x.shape[0], self.state_size) is one."
        expected = (x.shape[0], cell.state_size)
        _check_returned(cell, "initial_state", "the state", start, expected, advice)
        _check_dtype(cell, "initial_state", start, "x", x)
    return start


def check_next_state(cell: "AbstractCell", h: Tensor, new_h: Tensor) -> Tensor:
    """Return the state after a step, if it is one like that before.

    Args:
        cell: whose step it was.
        h: the state that the step took, (B, S).
        new_h: what it returned.

    Raises:
        ArgumentError, ShapeError, DtypeError: it is no such state.
    """
    if isinstance(new_h, Tensor) and new_h.shape == h.shape and new_h.dtype is h.dtype:
        return new_h
    advice = "A step returns a state like the one that it takes."
    _check_returned(cell, "step", "the new state", new_h, tuple(h.shape), advice)
    _check_dtype(cell, "step", new_h, "the old one", h)
    return new_h


def call_readout(cell: "AbstractCell", states: Tensor) -> Tensor:
    """Return what a cell emits in states, (*batch, H).

    Args:
        cell: whose states they are.
        states: (*batch, S).

    Raises:
        ArgumentError, ShapeError: what the cell returned has another width or other leading axes.
    """
    y = cell.readout(states)
    if not is_tracing():
        advice = "It maps (..., state_size) to (..., output_size); override both, or neither."
        expected = (*states.shape[:-1], cell.output_size)
        _check_returned(cell, "readout", "the output", y, expected, advice)
    return y


def _check_returned(
    cell: "AbstractCell", method: str, name: str, got: object, shape: tuple[int, ...], advice: str
) -> None:
    """Raise unless a method returned a tensor of a shape."""
    where = f"{type(cell).__name__}.{method}"
    if not isinstance(got, Tensor):
        kind = "None" if got is None else f"a {type(got).__name__}"
        raise ArgumentError(
            f"{where} returned {kind}, expected a tensor of shape {shape}. {advice}"
        )
    if got.shape != shape:
        raise shape_error(where, name, got, str(shape), advice)


def _check_dtype(
    cell: "AbstractCell", method: str, state: Tensor, like_name: str, like: Tensor
) -> None:
    """Raise unless a state has the dtype of another tensor; under autocast it may have any."""
    if state.dtype is not like.dtype and not torch.is_autocast_enabled(like.device.type):
        raise DtypeError(
            f"{type(cell).__name__}.{method}: the state has dtype {state.dtype}, but {like_name} "
            f"has {like.dtype}. Return it as state.to({like.dtype})."
        )
