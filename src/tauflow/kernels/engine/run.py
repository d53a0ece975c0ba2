"""Run a program: the one node of autograd's graph, and the one pair of operators for compilers.

A program's own backward pass writes into memory that it owns, which neither a graph of its own nor
a batch of incoming gradients can follow. Where either is wanted, the cell's steps are run again,
by operations that autograd knows.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from tauflow.checks import shape_error
from tauflow.errors import DtypeError, ShapeError

from .program import GAPS, STATE, Gradients, Inputs, Operator, Program, Pulls, Wants, X, own_mask
from .torch_state import is_vectorised


def run(program: Program, form: Any, mask: Tensor | None, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results at every step, (B, T, N), and the last state, (B, S).

    Args:
        program: to run.
        form: of the cell.
        mask: (B, T) bool, false where the state is kept, or ``None``.
        *inputs: see :data:`~tauflow.kernels.engine.program.Inputs`.
    """
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    if isinstance(program, Operator) and (program.uncompiled or torch.compiler.is_compiling()):
        wants = [tensor.requires_grad for tensor in inputs] if keep else []
        y, last, *_ = sequence(
            list(inputs), mask, program.name, " ".join(program.encode(form)), wants
        )
        return y, last
    if keep:
        return _Node.apply(program, form, own_mask(mask), *inputs)  # type: ignore[no-any-return, no-untyped-call]
    out = program.allocate(form, inputs, ())
    program.forward(form, mask, inputs, out, ())
    return out.y, out.last


class _Node(torch.autograd.Function):
    """A sequence as one node of the graph."""

    @staticmethod
    def forward(
        ctx: Any, program: Program, form: Any, mask: Tensor | None, *inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        wants = ctx.needs_input_grad[3:]
        out = program.allocate(form, inputs, wants)
        program.forward(form, mask, inputs, out, wants)
        ctx.program, ctx.form, ctx.mask, ctx.count = program, form, mask, len(inputs)
        kept: list[Tensor | None] = list(inputs)
        if not wants[STATE]:  # the caller's, who may change it
            kept[STATE] = inputs[STATE].clone()
        if program.copies_x and not wants[X]:
            kept[X] = None
        _save(ctx, *kept, *(out.y,)[: program.reads_y], *out.tape)
        ctx.set_materialize_grads(False)
        return out.y, out.last

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Any, ...]:
        saved, form, wants = _saved(ctx), ctx.form, ctx.needs_input_grad[3:]
        inputs, tape, pulls = [*saved[: ctx.count]], saved[ctx.count :], Pulls(*incoming)
        if inputs[X] is None:
            steps = inputs[GAPS].shape[1]
            inputs[X] = tape[0].view(steps, -1, tape[0].shape[1]).transpose(0, 1)
        if must_replay(pulls):
            found = replay(ctx.program, form, ctx.mask, inputs, pulls, wants)
        else:
            found = ctx.program.backward(form, ctx.mask, inputs, tape, pulls, wants)
        return None, None, None, *found


def _save(ctx: Any, *tensors: Tensor | None) -> None:
    """Save tensors for the backward pass, with what they are now.

    Autograd notices what changes a saved tensor in place, but not what puts another one behind it:
    ``parameter.data = smaller`` leaves no trace, and the loops back would read beyond its end.
    """
    ctx.save_for_backward(*tensors)
    ctx.kept_as = [None if one is None else (one.shape, one.dtype, one.stride()) for one in tensors]


def _saved(ctx: Any) -> tuple[Any, ...]:
    """Return what :func:`_save` saved, laid out as it was: the loops go by strides.

    Hooks on saved tensors, such as ``torch.autograd.graph.save_on_cpu``, keep values and shapes.

    Raises:
        ShapeError, DtypeError: one has become another tensor since.
    """
    tensors = ctx.saved_tensors  # once: a checkpoint unpacks no tensor twice
    found: list[Tensor | None] = []
    for tensor, was in zip(tensors, ctx.kept_as, strict=True):
        if was is None:
            found.append(None)
            continue
        if tensor.shape != was[0]:
            raise shape_error("backward", _WHAT, tensor, str(tuple(was[0])), _ADVICE)
        if tensor.dtype is not was[1]:
            raise DtypeError(
                f"backward: {_WHAT} has dtype {tensor.dtype}, expected {was[1]}. {_ADVICE}"
            )
        found.append(tensor if tensor.stride() == was[2] else _laid_out(tensor, was[2]))
    return tuple(found)


def _laid_out(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """Return a tensor with other strides; as it is if several entries share a place in them."""
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, strides, strict=True)):
        return tensor
    return torch.empty_strided(
        tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


_WHAT = "a tensor of the forward pass"
_ADVICE = "It was replaced, through .data perhaps, before backward(); call forward again."

OPERATORS: dict[str, Operator] = {}
"""The programs that compilers can trace, by name."""


# Schemas are spelled out: PyTorch 2.6 infers none from `collections.abc.Sequence`.
@torch.library.custom_op(
    "tauflow::sequence",
    mutates_args=(),
    schema="(Tensor[] inputs, Tensor? mask, str program, str form, bool[] wants) -> Tensor[]",
)
def sequence(
    inputs: Sequence[Tensor],
    mask: Tensor | None,
    program: str,
    form: str,
    wants: Sequence[bool],
) -> list[Tensor]:
    """Return what a program's :class:`~tauflow.kernels.engine.program.Buffers` hold, in a row.

    Args:
        inputs: of the run.
        mask: (B, T) bool, or ``None``.
        program: name in :data:`OPERATORS`.
        form: of the cell, its words in a row.
        wants: which inputs want gradients; empty if none does.
    """
    runs = OPERATORS[program]
    decoded = runs.decode(form.split())
    out = runs.allocate(decoded, inputs, wants)
    with on_device(inputs[X]):
        runs.forward(decoded, mask, inputs, out, wants)
    return [out.y, out.last, *(out.tape if wants else ())]


@sequence.register_fake
def _(
    inputs: Sequence[Tensor],
    mask: Tensor | None,
    program: str,
    form: str,
    wants: Sequence[bool],
) -> list[Tensor]:
    runs = OPERATORS[program]
    out = runs.allocate(runs.decode(form.split()), inputs, wants)
    return [out.y, out.last, *(out.tape if wants else ())]


@torch.library.custom_op(
    "tauflow::sequence_backward",
    mutates_args=(),
    schema=(
        "(Tensor[] inputs, Tensor? mask, Tensor[] tape, Tensor[] pulls, str program, str form, "
        "bool[] wants, SymInt[] sizes) -> Tensor[]"
    ),
)
def sequence_backward(
    inputs: Sequence[Tensor],
    mask: Tensor | None,
    tape: Sequence[Tensor],
    pulls: Sequence[Tensor],
    program: str,
    form: str,
    wants: Sequence[bool],
    sizes: Sequence[int],
) -> list[Tensor]:
    """Return the gradients of the inputs of :func:`sequence`, empty where not wanted.

    Args:
        inputs: of the run.
        mask: of the run.
        tape: that it wrote.
        pulls: incoming gradients.
        program: its name.
        form: of the cell, its words in a row.
        wants: which gradients are wanted.
        sizes: of the inputs when it ran; see :func:`_saved`.

    Raises:
        ShapeError: an input has become another tensor since.
    """
    runs = OPERATORS[program]
    if sizes_of(inputs) != list(sizes):
        raise ShapeError(f"backward: {_WHAT} has another shape now. {_ADVICE}")
    with on_device(inputs[X]):
        found = runs.backward(runs.decode(form.split()), mask, inputs, tape, Pulls(*pulls), wants)
    taken: set[int] = set()  # memory of what is returned, which no two may share
    return [
        _own(gradient, tensor, taken) if want else tensor.new_empty(0)
        for gradient, tensor, want in zip(found, inputs, wants, strict=True)
    ]


def sizes_of(tensors: Sequence[Tensor]) -> list[int]:
    """Return the sizes of all axes of all tensors in a row."""
    return [size for tensor in tensors for size in tensor.shape]


def _own(gradient: Tensor | None, like: Tensor, taken: set[int]) -> Tensor:
    """Return a gradient as an operator may: contiguous, and something where there is none."""
    if gradient is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    gradient = gradient.to(like.dtype).contiguous()
    place = gradient.untyped_storage().data_ptr()
    if place in taken:
        return gradient.clone()
    taken.add(place)
    return gradient


@sequence_backward.register_fake
def _(
    inputs: Sequence[Tensor],
    mask: Tensor | None,
    tape: Sequence[Tensor],
    pulls: Sequence[Tensor],
    program: str,
    form: str,
    wants: Sequence[bool],
    sizes: Sequence[int],
) -> list[Tensor]:
    return [
        tensor.new_empty(tensor.shape if want else (0,))
        for tensor, want in zip(inputs, wants, strict=True)
    ]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, mask, ctx.program, ctx.form, _ = inputs
    results, tape = output[:2], output[0 if OPERATORS[ctx.program].reads_y else 2 :]
    if OPERATORS[ctx.program].reads_y:
        del tape[1]
    _save(ctx, *tensors, mask, *tape)
    ctx.count, ctx.sizes = len(tensors), sizes_of(tensors)
    ctx.results = [(result.shape, result.dtype) for result in results]
    ctx.set_materialize_grads(False)  # the tape's would be as large as the tape


def _pull_back(ctx: Any, incoming: Sequence[Tensor | None]) -> tuple[Any, ...]:
    saved = _saved(ctx)
    inputs, (mask, *tape) = saved[: ctx.count], saved[ctx.count :]
    wants = [bool(want) for want in ctx.needs_input_grad[0]]
    pulls = Pulls(*incoming[:2])
    if must_replay(pulls):
        runs = OPERATORS[ctx.program]
        form = runs.decode(ctx.form.split())
        return list(replay(runs, form, mask, inputs, pulls, wants)), None, None, None, None
    given = [
        inputs[X].new_zeros(shape, dtype=dtype) if pull is None else pull
        for pull, (shape, dtype) in zip(pulls, ctx.results, strict=True)
    ]
    found = sequence_backward(
        list(inputs), mask, tape, given, ctx.program, ctx.form, wants, ctx.sizes
    )
    gradients = [g if want else None for g, want in zip(found, wants, strict=True)]
    return gradients, None, None, None, None


sequence.register_autograd(_pull_back, setup_context=_keep)


def on_device(tensor: Tensor) -> AbstractContextManager[object]:
    """Make a tensor's device the one that kernels are launched on."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def must_replay(pulls: Sequence[Tensor | None]) -> bool:
    """Whether the running backward pass is to be differentiated, or is vectorised over pulls."""
    if torch.is_grad_enabled():  # create_graph=True
        return True
    return any(pull is not None and is_vectorised(pull) for pull in pulls)


def replay(
    program: Program, form: Any, mask: Tensor | None, inputs: Inputs, pulls: Pulls, wants: Wants
) -> Gradients:
    """Return the gradients of the inputs by running the cell's steps again, in single precision."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        own = [
            _leaf(value, create_graph) if want else value
            for value, want in zip(inputs, wants, strict=True)
        ]
        y, last = steps(program, form, mask, *own)
        results = y if pulls.y is None else y[..., : pulls.y.shape[-1]], last
        pulled = [(r, pull) for r, pull in zip(results, pulls, strict=True) if pull is not None]
        found = iter(
            torch.autograd.grad(
                [result for result, _ in pulled],
                [value for value, want in zip(own, wants, strict=True) if want],
                [pull for _, pull in pulled],
                create_graph=create_graph,
                allow_unused=True,
            )
        )
    return [next(found) if want else None for want in wants]


def steps(
    program: Program, form: Any, mask: Tensor | None, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the results of a program by the cell's own steps."""
    kind = inputs[STATE].dtype
    x, h, dt, *parameters = (
        tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
        for tensor in inputs
    )
    # unbind, for the gradient of an index would be a full-sized tensor for every step
    outputs = []
    for t, step in enumerate(zip(x.unbind(1), dt.unbind(1), strict=True)):
        after = program.advance(form, h, step, *parameters)
        h = after if mask is None else torch.where(mask[:, t, None], after, h)
        outputs.append(h)
    y = torch.stack(outputs, dim=1)
    return y.to(kind), h.to(kind)


def _leaf(value: Tensor, create_graph: bool) -> Tensor:
    """Return the input under a node of its own, past which its gradient is not pulled."""
    return value.view_as(value) if create_graph else value.detach().requires_grad_()
