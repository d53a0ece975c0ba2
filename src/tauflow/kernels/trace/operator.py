"""Traced steps as one operator of torch's compilers, for any cell of the library.

A compiler sees the inputs, the cell's tensors and a number by which the operator finds the cell.
The operator runs the trace; its backward pass runs it again, with gradients.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.stateless import _reparametrize_module

from tauflow.cells.base import AbstractCell, find_cell
from tauflow.kernels.engine.autograd import make_leaf, make_operator_gradients, should_recompute
from tauflow.kernels.engine.kernel_spec import Gradients, GradOutputs, KernelCall, NeedsInputGrad
from tauflow.kernels.engine.torch_state import record_gradients

from .traced_kernel import run_traced

_SCHEMA = (
    "Tensor x, Tensor h, Tensor dt, Tensor[] tensors, Tensor? mask, Tensor? observed, int number, "
    "bool training"
)

_copies: dict[int, AbstractCell] = {}  # without numbers, one for each cell that was compiled


def _run(leaves: Sequence[Tensor], *about: Any) -> tuple[Tensor, Tensor]:
    """Run the trace of a cell.

    Args:
        leaves: x, h, dt, and the cell's parameters and buffers.
        *about: mask, observed features, number and mode of the cell.
    """
    (x, h, dt, *tensors), (mask, observed, number, training) = leaves, about
    if number not in _copies:  # a backward pass may need the cell when it is gone
        _copies[number] = copy.deepcopy(find_cell(number)).to("meta")
    cell = _copies[number].train(training)
    names = [*dict(cell.named_parameters()), *dict(cell.named_buffers())]
    with _reparametrize_module(cell, dict(zip(names, tensors, strict=True))):
        return run_traced(KernelCall(cell, x, h, dt, mask, observed))


def _run_backward(
    pulls: GradOutputs,
    leaves: Sequence[Tensor],
    about: Sequence[Any],
    needs_input_grad: NeedsInputGrad,
    *,
    create_graph: bool,
) -> Gradients:
    """Return the gradients of leaves, which can be differentiated if a graph is created."""
    graph_leaves = [
        make_leaf(leaf, create_graph) if want else leaf
        for leaf, want in zip(leaves, needs_input_grad, strict=True)
    ]
    pairs = [
        (result, pull)
        for result, pull in zip(_run(graph_leaves, *about), pulls, strict=True)
        if pull is not None
    ]
    gradients = iter(
        torch.autograd.grad(
            [result for result, _ in pairs],
            [leaf for leaf, want in zip(graph_leaves, needs_input_grad, strict=True) if want],
            [pull for _, pull in pairs],
            create_graph=create_graph,
            allow_unused=True,
        )
    )
    return [next(gradients) if want else None for want in needs_input_grad]


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
        dt: gaps, (B, T, 1).
        tensors: parameters and buffers of the cell.
        *about: as for :func:`_run`, and the width of an output.
    """
    with torch.no_grad():
        return _run((x, h, dt, *tensors), *about[:-1])


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
    leaves, (*about, needs) = (x, h, dt, *tensors), others
    with record_gradients():
        gradients = _run_backward(GradOutputs(y, last), leaves, about, needs, create_graph=False)
    return make_operator_gradients(gradients, leaves, needs)


@traced_sequence_backward.register_fake
def _(
    y: Tensor | None, last: Tensor | None, x: Tensor, h: Tensor, dt: Tensor, *others: Any
) -> list[Tensor]:
    tensors, *_, needs = others
    leaves = zip((x, h, dt, *tensors), needs, strict=True)
    return [leaf.new_empty(leaf.shape if want else (0,)) for leaf, want in leaves]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, h, dt, tensors, mask, observed, *ctx.cell, _ = inputs
    ctx.save_for_backward(mask, observed, x, h, dt, *tensors)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
    mask, observed, *leaves = ctx.saved_tensors
    *wants, of_tensors, _, _, _, _, _ = ctx.needs_input_grad
    needs = [bool(want) for want in (*wants, *of_tensors)]
    pulls, about = GradOutputs(*grad_outputs), (mask, observed, *ctx.cell)
    if should_recompute(pulls):
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            gradients = _run_backward(pulls, leaves, about, needs, create_graph=create_graph)
    else:
        x, h, dt, *tensors = leaves
        gradients = traced_sequence_backward(*pulls, x, h, dt, tensors, *about, needs)
    x, h, dt, *tensors = (g if want else None for g, want in zip(gradients, needs, strict=True))
    return x, h, dt, tensors, None, None, None, None, None


traced_sequence.register_autograd(_backward, setup_context=_setup_context)
