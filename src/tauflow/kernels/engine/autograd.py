"""Run a program: the one node of autograd's graph, and the operators of loops for compilers."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.checks import shape_error
from tauflow.errors import DtypeError, ShapeError

from .kernel_call import copy_mask
from .kernel_spec import (
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    OperatorKernel,
    SequenceKernel,
    X,
)
from .recompute import recompute_gradients, should_recompute
from .torch_state import has_functorch_tensor


def run_kernel(
    kernel: SequenceKernel, config: Any, mask: Tensor | None, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the results at every step, (B, T, N), and the last state, (B, S).

    Args:
        kernel: to run.
        config: of the cell.
        mask: (B, T) bool, false where the state is kept, or ``None``.
        *inputs: see :data:`~tauflow.kernels.engine.kernel_spec.Inputs`.
    """
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    if isinstance(kernel, OperatorKernel) and (
        kernel.is_eager_operator or torch.compiler.is_compiling()
    ):
        wants = [tensor.requires_grad for tensor in inputs] if keep else []
        y, last, *_ = sequence(
            list(inputs), mask, kernel.name, " ".join(kernel.encode(config)), wants
        )
        return y, last
    if not keep:
        out = kernel.allocate(config, inputs, ())
        kernel.forward(config, mask, inputs, out, ())
        return out.y, out.last
    mask = copy_mask(mask)
    if has_functorch_tensor(inputs):  # what torch adds for them
        return _SequenceFunction.apply(kernel, config, mask, *inputs)  # type: ignore[no-any-return, no-untyped-call]
    return _apply(kernel, config, mask, *inputs)  # type: ignore[no-any-return]


class _SequenceFunction(torch.autograd.Function):
    """A sequence as one node of the graph."""

    @staticmethod
    def forward(
        ctx: Any, kernel: SequenceKernel, config: Any, mask: Tensor | None, *inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        wants = ctx.needs_input_grad[3:]
        out = kernel.allocate(config, inputs, wants)
        kernel.forward(config, mask, inputs, out, wants)
        ctx.call = kernel, config, mask, len(inputs)
        saved: list[Tensor | None] = list(inputs)
        if not wants[STATE]:  # the caller's, who may change it
            saved[STATE] = inputs[STATE].clone()
        if kernel.saves_x and not wants[X]:
            saved[X] = None
        _save_tensors(ctx, *saved, *(out.y,)[: kernel.needs_y], *out.saved_tensors)
        ctx.set_materialize_grads(False)
        return out.y, out.last

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        saved, wants = _load_saved_tensors(ctx), ctx.needs_input_grad[3:]
        kernel, config, mask, count = ctx.call
        inputs, saved_by_kernel, pulls = [*saved[:count]], saved[count:], GradOutputs(*grad_outputs)
        if inputs[X] is None:
            inputs[X] = kernel.read_saved_x(config, inputs, saved_by_kernel)
        if should_recompute(pulls):
            gradients = recompute_gradients(kernel, config, mask, inputs, pulls, wants)
        else:
            gradients = kernel.backward(config, mask, inputs, saved_by_kernel, pulls, wants)
        return None, None, None, *gradients


_apply: Any = super(torch.autograd.Function, _SequenceFunction).apply


def _save_tensors(ctx: Any, *tensors: Tensor | None) -> None:
    """Save tensors for the backward pass, with what they are now.

    Autograd notices what changes a saved tensor in place, but not what puts another one behind it:
    ``parameter.data = smaller`` leaves no trace, and the loops back would read beyond its end.
    """
    ctx.save_for_backward(*tensors)
    ctx.kept_as = _describe(tensors)


def _describe(tensors: Sequence[Tensor | None]) -> list[Any]:
    return [
        None if tensor is None else (tensor.shape, tensor.dtype, tensor.stride())
        for tensor in tensors
    ]


def _load_saved_tensors(ctx: Any) -> tuple[Any, ...]:
    """Return what :func:`_save_tensors` saved, laid out as it was: the loops go by strides.

    Hooks on saved tensors, such as ``torch.autograd.graph.save_on_cpu``, keep values and shapes.

    Raises:
        ShapeError, DtypeError: one has become another tensor since.
    """
    tensors: tuple[Any, ...] = ctx.saved_tensors  # once: a checkpoint unpacks no tensor twice
    if _describe(tensors) == ctx.kept_as:
        return tensors
    restored: list[Tensor | None] = []
    for tensor, was in zip(tensors, ctx.kept_as, strict=True):
        if was is None:
            restored.append(None)
            continue
        if tensor.shape != was[0]:
            raise shape_error("backward", _SAVED_TENSOR, tensor, str(tuple(was[0])), _ADVICE)
        if tensor.dtype is not was[1]:
            raise DtypeError(
                f"backward: {_SAVED_TENSOR} has dtype {tensor.dtype}, expected {was[1]}. {_ADVICE}"
            )
        restored.append(tensor if tensor.stride() == was[2] else _restore_strides(tensor, was[2]))
    return tuple(restored)


def _restore_strides(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """Return a tensor with other strides; as it is if several entries share a place in them."""
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, strides, strict=True)):
        return tensor
    return torch.empty_strided(
        tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


_SAVED_TENSOR = "a tensor of the forward pass"
_ADVICE = "It was replaced, through .data perhaps, before backward(); call forward again."

OPERATORS: dict[str, OperatorKernel] = {}
"""The programs that compilers can trace, by name."""


# Schemas are spelled out: PyTorch 2.6 infers none from `collections.abc.Sequence`.
@torch.library.custom_op(
    "tauflow::sequence",
    mutates_args=(),
    schema="(Tensor[] inputs, Tensor? mask, str kernel, str config, "
    "bool[] needs_input_grad) -> Tensor[]",
)
def sequence(
    inputs: Sequence[Tensor],
    mask: Tensor | None,
    kernel: str,
    config: str,
    needs_input_grad: Sequence[bool],
) -> list[Tensor]:
    """Return what a program's :class:`~tauflow.kernels.engine.kernel_spec.Outputs` hold, in a row.

    Args:
        inputs: of the run.
        mask: (B, T) bool, or ``None``.
        kernel: name in :data:`OPERATORS`.
        config: of the cell, its words in a row.
        needs_input_grad: which inputs want gradients; empty if none does.
    """
    runs = OPERATORS[kernel]
    decoded = runs.decode(config.split())
    out = runs.allocate(decoded, inputs, needs_input_grad)
    with use_device(inputs[X]):
        runs.forward(decoded, mask, inputs, out, needs_input_grad)
    return [out.y, out.last, *(out.saved_tensors if needs_input_grad else ())]


@sequence.register_fake
def _(
    inputs: Sequence[Tensor],
    mask: Tensor | None,
    kernel: str,
    config: str,
    needs_input_grad: Sequence[bool],
) -> list[Tensor]:
    runs = OPERATORS[kernel]
    out = runs.allocate(runs.decode(config.split()), inputs, needs_input_grad)
    return [out.y, out.last, *(out.saved_tensors if needs_input_grad else ())]


@torch.library.custom_op(
    "tauflow::sequence_backward",
    mutates_args=(),
    schema=(
        "(Tensor[] inputs, Tensor? mask, Tensor[] saved_tensors, Tensor[] grad_outputs, str "
        "kernel, str config, "
        "bool[] needs_input_grad, SymInt[] sizes) -> Tensor[]"
    ),
)
def sequence_backward(
    inputs: Sequence[Tensor],
    mask: Tensor | None,
    saved_tensors: Sequence[Tensor],
    grad_outputs: Sequence[Tensor],
    kernel: str,
    config: str,
    needs_input_grad: Sequence[bool],
    sizes: Sequence[int],
) -> list[Tensor]:
    """Return the gradients of the inputs of :func:`sequence`, empty where not wanted.

    Args:
        inputs: of the run.
        mask: of the run.
        saved_tensors: that it wrote.
        grad_outputs: incoming gradients.
        kernel: its name.
        config: of the cell, its words in a row.
        needs_input_grad: which gradients are wanted.
        sizes: of the inputs when it ran; see :func:`_load_saved_tensors`.

    Raises:
        ShapeError: an input has become another tensor since.
    """
    runs = OPERATORS[kernel]
    if flatten_sizes(inputs) != list(sizes):
        raise ShapeError(f"backward: {_SAVED_TENSOR} has another shape now. {_ADVICE}")
    with use_device(inputs[X]):
        gradients = runs.backward(
            runs.decode(config.split()),
            mask,
            inputs,
            saved_tensors,
            GradOutputs(*grad_outputs),
            needs_input_grad,
        )
    return make_operator_gradients(gradients, inputs, needs_input_grad)


def make_operator_gradients(
    gradients: Gradients, inputs: Inputs, needs_input_grad: NeedsInputGrad
) -> list[Tensor]:
    """Return gradients as an operator may: on new memory, empty where not wanted."""
    taken: set[int] = set()
    return [
        _to_operator_gradient(gradient, tensor, taken) if want else tensor.new_empty(0)
        for gradient, tensor, want in zip(gradients, inputs, needs_input_grad, strict=True)
    ]


def flatten_sizes(tensors: Sequence[Tensor]) -> list[int]:
    """Return the sizes of all axes of all tensors in a row."""
    return [size for tensor in tensors for size in tensor.shape]


def _to_operator_gradient(gradient: Tensor | None, like: Tensor, used_storages: set[int]) -> Tensor:
    """Return a gradient as an operator may: contiguous, and zeros where no gradient came."""
    if gradient is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    gradient = gradient.to(like.dtype).contiguous()
    place = gradient.untyped_storage().data_ptr()
    if place in used_storages:
        return gradient.clone()
    used_storages.add(place)
    return gradient


@sequence_backward.register_fake
def _(
    inputs: Sequence[Tensor],
    mask: Tensor | None,
    saved_tensors: Sequence[Tensor],
    grad_outputs: Sequence[Tensor],
    kernel: str,
    config: str,
    needs_input_grad: Sequence[bool],
    sizes: Sequence[int],
) -> list[Tensor]:
    return allocate_gradients(inputs, needs_input_grad)


def allocate_gradients(inputs: Inputs, needs_input_grad: NeedsInputGrad) -> list[Tensor]:
    """Return memory for what :func:`make_operator_gradients` returns."""
    return [
        tensor.new_empty(tensor.shape if want else (0,))
        for tensor, want in zip(inputs, needs_input_grad, strict=True)
    ]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, mask, ctx.program, ctx.form, _ = inputs
    results, saved = output[:2], output[0 if OPERATORS[ctx.program].needs_y else 2 :]
    if OPERATORS[ctx.program].needs_y:
        del saved[1]
    _save_tensors(ctx, *tensors, mask, *saved)
    ctx.count, ctx.sizes = len(tensors), flatten_sizes(tensors)
    ctx.results = [(result.shape, result.dtype) for result in results]
    ctx.set_materialize_grads(False)  # those of saved tensors would be as large as these


def _operator_backward(ctx: Any, grad_outputs: Sequence[Tensor | None]) -> tuple[Any, ...]:
    saved = _load_saved_tensors(ctx)
    inputs, (mask, *saved_by_kernel) = saved[: ctx.count], saved[ctx.count :]
    wants = [bool(want) for want in ctx.needs_input_grad[0]]
    pulls = GradOutputs(*grad_outputs[:2])
    if should_recompute(pulls):
        runs = OPERATORS[ctx.program]
        form = runs.decode(ctx.form.split())
        again = recompute_gradients(runs, form, mask, inputs, pulls, wants)
        return list(again), None, None, None, None
    inputs_with_grad = [
        inputs[X].new_zeros(shape, dtype=dtype) if pull is None else pull
        for pull, (shape, dtype) in zip(pulls, ctx.results, strict=True)
    ]
    input_grads = sequence_backward(
        list(inputs),
        mask,
        saved_by_kernel,
        inputs_with_grad,
        ctx.program,
        ctx.form,
        wants,
        ctx.sizes,
    )
    gradients = [g if want else None for g, want in zip(input_grads, wants, strict=True)]
    return gradients, None, None, None, None


sequence.register_autograd(_operator_backward, setup_context=_setup_context)


def use_device(tensor: Tensor) -> AbstractContextManager[object]:
    """Make a tensor's device the one that kernels are launched on."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
