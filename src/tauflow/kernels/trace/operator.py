"""Traced steps as one operator of torch's compilers, for any cell of the library.

A compiler sees the inputs, the cell's tensors and a number by which the operator finds what the
cell is made of. The operator runs the trace; its backward pass runs it again, with gradients.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tauflow._internal.fork_safety import make_fork_safe_lock
from tauflow.cells.base import AbstractCell, find_cell
from tauflow.kernels.engine.autograd import allocate_gradients, make_operator_gradients
from tauflow.kernels.engine.kernel_call import KernelCall, check_builtin_call
from tauflow.kernels.engine.kernel_spec import GradOutputs
from tauflow.kernels.engine.recompute import differentiate, should_recompute
from tauflow.kernels.engine.torch_state import assume_constant_result, record_gradients

from .config_key import ConfigKey, make_config_key
from .traced_kernel import run_traced_steps

_SCHEMA = (
    "Tensor x, Tensor h, Tensor dt, Tensor[] tensors, Tensor? mask, Tensor? observed, int structure"
)
_Module = TypeVar("_Module", bound=nn.Module)

_structures: list[AbstractCell] = []
"""They are never dropped: a compiled backward pass, which may outlive its cell, knows a number."""
_numbers: dict[tuple[ConfigKey, tuple[int, ...]], int] = {}
_lock = make_fork_safe_lock()


def run_traced(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run any cell by its own step, traced; under a compiler as one operator.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    if not torch.compiler.is_compiling():
        return run_traced_steps(call)
    cell = call.cell
    leaves = call.x, call.h, call.dt, [*cell.parameters(), *cell.buffers()]
    about = call.mask, call.observed, _find_structure(cell._number, cell.training)
    y, last = torch.ops.tauflow.traced_sequence(*leaves, *about, cell.output_size)
    return y, last


@assume_constant_result
def _find_structure(number: int, training: bool) -> int:
    """Return the number of a structure: a cell that holds places in a list instead of tensors.

    A compiler calls this whenever it compiles the cell. Cells that differ only in the entries of
    their tensors share a structure.

    Args:
        number: of the cell.
        training: its mode, which a compiler would not look at otherwise.
    """
    cell = find_cell(number)
    tensors = [*cell.parameters(), *cell.buffers()]
    places = {id(tensor): place for place, tensor in enumerate(tensors)}
    held = [
        *cell.named_parameters(remove_duplicate=False),
        *cell.named_buffers(remove_duplicate=False),
    ]
    key = make_config_key(cell), tuple(places[id(tensor)] for _, tensor in held)
    structure = _replace_tensors(cell, lambda tensor: places[id(tensor)])
    with _lock:
        if key not in _numbers:
            _numbers[key] = len(_structures)
            _structures.append(structure)
        return _numbers[key]


def _replace_tensors(module: _Module, replace: Callable[[Any], Any]) -> _Module:
    """Return a module like another, which stays as it is, with other tensors."""
    like = object.__new__(type(module))
    vars(like).update(vars(module))
    for held in ("_parameters", "_buffers"):
        vars(like)[held] = {
            name: None if tensor is None else replace(tensor)
            for name, tensor in vars(module)[held].items()
        }
    vars(like)["_modules"] = {
        name: None if part is None else _replace_tensors(part, replace)
        for name, part in module._modules.items()
    }
    return like


def _run(
    tensors: Sequence[Tensor], mask: Tensor | None, observed: Tensor | None, structure: int
) -> tuple[Tensor, Tensor]:
    """Run the trace of a cell, on any thread: a compiler of another one makes no difference.

    Args:
        tensors: x, h, dt, and the cell's parameters and buffers.
        mask: of the call.
        observed: of the call.
        structure: its number.

    Raises:
        ShapeError: a tensor does not fit the cell.
    """
    x, h, dt, *of_cell = tensors
    cell = _replace_tensors(_structures[structure], of_cell.__getitem__)
    call = KernelCall(cell, x, h, dt, mask, observed)
    check_builtin_call(call)  # a parameter may have been replaced since it was compiled
    return run_traced_steps(call)


@torch.library.custom_op(
    "tauflow::traced_sequence",
    mutates_args=(),
    schema=f"({_SCHEMA}, int width) -> (Tensor, Tensor)",
)
def traced_sequence(
    x: Tensor, h: Tensor, dt: Tensor, tensors: Sequence[Tensor], *about: Any
) -> tuple[Tensor, Tensor]:
    """Return the outputs at every step and the last state.

    Args:
        x: inputs, (B, T, I).
        h: state before the first step, (B, S).
        dt: time steps, (B, T, 1).
        tensors: parameters and buffers of the cell.
        *about: as for :func:`_run`, and the width of an output.
    """
    *others, _ = about
    with torch.no_grad():
        return _run((x, h, dt, *tensors), *others)


@traced_sequence.register_fake
def _(x: Tensor, h: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], x.shape[1], others[-1]), torch.empty_like(h)


@torch.library.custom_op(
    "tauflow::traced_sequence_backward",
    mutates_args=(),
    schema=f"(Tensor? y, Tensor? last, {_SCHEMA}, bool[] needs_input_grad) -> Tensor[]",
)
def traced_sequence_backward(
    y: Tensor | None,
    last: Tensor | None,
    x: Tensor,
    h: Tensor,
    dt: Tensor,
    tensors: Sequence[Tensor],
    *others: Any,
) -> list[Tensor]:
    """Return the gradients of x, h, dt and the tensors, empty where not wanted.

    Args:
        y: incoming gradient of the outputs.
        last: and that of the last state.
        x: as for :func:`traced_sequence`, as what follows.
        h: likewise.
        dt: likewise.
        tensors: likewise.
        *others: as for :func:`_run`, and which gradients are wanted.
    """
    inputs, (*about, needs) = (x, h, dt, *tensors), others
    with record_gradients():
        gradients = differentiate(
            lambda *leaves: _run(leaves, *about),
            inputs,
            GradOutputs(y, last),
            needs,
            create_graph=False,
        )
    return make_operator_gradients(gradients, inputs, needs)


@traced_sequence_backward.register_fake
def _(
    y: Tensor | None, last: Tensor | None, x: Tensor, h: Tensor, dt: Tensor, *others: Any
) -> list[Tensor]:
    tensors, *_, needs = others
    return allocate_gradients((x, h, dt, *tensors), needs)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, h, dt, tensors, mask, observed, ctx.structure, _ = inputs
    ctx.save_for_backward(mask, observed, x, h, dt, *tensors)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
    mask, observed, *inputs = ctx.saved_tensors
    *wants, of_tensors, _, _, _, _ = ctx.needs_input_grad
    needs = [bool(want) for want in (*wants, *of_tensors)]
    pulls, about = GradOutputs(*grad_outputs), (mask, observed, ctx.structure)
    if should_recompute(pulls):
        gradients = differentiate(
            lambda *leaves: _run(leaves, *about),
            inputs,
            pulls,
            needs,
            create_graph=torch.is_grad_enabled(),
        )
    else:
        x, h, dt, *tensors = inputs
        gradients = traced_sequence_backward(*pulls, x, h, dt, tensors, *about, needs)
    x, h, dt, *tensors = (g if want else None for g, want in zip(gradients, needs, strict=True))
    return x, h, dt, tensors, None, None, None, None


traced_sequence.register_autograd(_backward, setup_context=_setup_context)
