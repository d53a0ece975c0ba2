"""What torch is asked to do while a step runs once, written on a tape: one rule an operation."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import tape as codes
from .tape import Array, CannotRecordError, Place, Tape, row_major

aten = torch.ops.aten


class Recorder(TorchDispatchMode):
    """Writes what is done to tensors that it knows on a tape."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = Tape()
        self._regions: dict[int, int] = {}  # of storages
        self._alive: list[Any] = []  # so that no storage takes the place of another

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch's compiler is imported, which takes seconds

    def begin(self, tensor: Tensor) -> Place:
        """Know a tensor; return its place."""
        place = self.tape.new(tensor.shape)
        self._know(tensor, place)
        return place

    def place(self, value: Any) -> Place:
        """Return where an operand is."""
        if not isinstance(value, Tensor):
            return self.tape.constant(float(value))
        region = self._region(value)
        if region is None:
            return self.tape.constant(value.detach().to(torch.float32).numpy())
        return Place(region, int(value.storage_offset()), tuple(value.shape), value.stride())

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Do what is asked, and write it down."""
        kwargs = kwargs or {}
        out = function(*args, **kwargs)
        given = [*args, *kwargs.values()]
        tensors = [value for value in _flat(given) if isinstance(value, Tensor)]
        self._alive += [*tensors, *_flat([out])]
        packet = function.overloadpacket
        if torch.Tag.nondeterministic_seeded in function.tags:
            raise CannotRecordError(f"{function} draws numbers")
        if packet in _MAKERS or all(self._region(tensor) is None for tensor in tensors):
            return out
        if function._schema.is_mutable:
            raise CannotRecordError(f"{function} changes numbers")
        made = [value for value in _flat([out]) if isinstance(value, Tensor)]
        if made and all(self._region(value) is not None for value in made):
            return out  # views
        rule = _RULES.get(packet)
        if (
            rule is None
            or function._overloadname in _OTHERS
            or len(made) != 1
            or made[0].dtype not in (torch.float32, torch.bool)
        ):
            raise CannotRecordError(f"the machine has no {function}")
        out = made[0].contiguous()
        self._alive.append(out)
        self._know(out, rule(self, tuple(out.shape), *args, **kwargs))
        return out

    def _know(self, tensor: Tensor, place: Place) -> None:
        self._alive.append(tensor)
        assert tensor.is_contiguous()
        self._regions[tensor.untyped_storage()._cdata] = place.region

    def _region(self, tensor: Tensor) -> int | None:
        return self._regions.get(tensor.untyped_storage()._cdata)

    def apply(self, code: int, shape: Sequence[int], *operands: Any) -> Place:
        """Add an operation on entries; operands are tensors, numbers or places."""
        places = [one if isinstance(one, Place) else self.place(one) for one in operands]
        out = self.tape.new(shape)
        self.tape.write(code, out, *(place.expanded(shape) for place in places))
        return out


def _flat(values: Any) -> list[Any]:
    flat = []
    for value in values:
        flat += _flat(value) if isinstance(value, list | tuple) else [value]
    return flat


Rule = Callable[..., Place]


def _of_one(code: int) -> Rule:
    return lambda r, shape, a, **_: r.apply(code, shape, a)


def _of_two(code: int) -> Rule:
    return lambda r, shape, a, b: r.apply(code, shape, a, b)


def _swapped(code: int) -> Rule:
    return lambda r, shape, a, b: r.apply(code, shape, b, a)


def _sum_of(code: int) -> Rule:
    def rule(r: Recorder, shape: tuple[int, ...], a: Any, b: Any, *, alpha: float = 1) -> Place:
        scaled = b if alpha == 1 else r.apply(codes.MUL, _shape_of(b), b, alpha)
        return r.apply(code, shape, a, scaled)

    return rule


def _shape_of(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _reversed_difference(
    r: Recorder, shape: tuple[int, ...], a: Tensor, b: float, alpha: float = 1
) -> Place:
    return r.apply(codes.SUB, shape, b, a if alpha == 1 else r.apply(codes.MUL, shape, a, alpha))


def _added_product(
    r: Recorder, shape: tuple[int, ...], a: Tensor, b: Tensor, c: Tensor, *, value: float = 1
) -> Place:
    scaled = c if value == 1 else r.apply(codes.MUL, tuple(c.shape), c, value)
    return r.apply(codes.ADD_PRODUCT, shape, a, b, scaled)


def _clamped(
    r: Recorder, shape: tuple[int, ...], a: Any, low: Any = None, high: Any = None
) -> Place:
    out = r.place(a)
    if low is not None:
        out = r.apply(codes.MAXIMUM, shape, out, low)
    return out if high is None else r.apply(codes.MINIMUM, shape, out, high)


def _powered(r: Recorder, shape: tuple[int, ...], a: Tensor, exponent: Any) -> Place:
    if exponent == 2:
        return r.apply(codes.MUL, shape, a, a)
    if exponent == 0.5:
        return r.apply(codes.SQRT, shape, a)
    raise CannotRecordError(f"the machine has no power {exponent}")


def _softplus(
    r: Recorder, shape: tuple[int, ...], a: Tensor, beta: float = 1, threshold: float = 20
) -> Place:
    if (beta, threshold) != (1, 20):
        raise CannotRecordError("the machine has one softplus only")
    return r.apply(codes.SOFTPLUS, shape, a)


def _gelu(r: Recorder, shape: tuple[int, ...], a: Tensor, *, approximate: str = "none") -> Place:
    if approximate != "none":
        raise CannotRecordError("the machine has the exact GELU only")
    return r.apply(codes.GELU, shape, a)


def _copied(r: Recorder, shape: tuple[int, ...], a: Tensor, *_: Any, **__: Any) -> Place:
    return r.apply(codes.COPY, shape, a)


def _tiled(r: Recorder, shape: tuple[int, ...], a: Tensor, repeats: Sequence[int]) -> Place:
    place = r.place(a)
    own = (1,) * (len(repeats) - len(place.shape)) + place.shape
    if any(n != 1 and count != 1 for n, count in zip(own, repeats, strict=True)):
        raise CannotRecordError("the machine does not repeat more than one entry")
    return r.apply(codes.COPY, shape, place)


def _part(whole: Place, dim: int, start: int, size: int) -> Place:
    shape = (*whole.shape[:dim], size, *whole.shape[dim + 1 :])
    return Place(whole.region, whole.offset + start * whole.strides[dim], shape, whole.strides)


def _joined(r: Recorder, shape: tuple[int, ...], parts: Sequence[Tensor], dim: int = 0) -> Place:
    out, start = r.tape.new(shape), 0
    dim %= len(shape)
    for part in parts:
        if part.numel():
            r.tape.copy(_part(out, dim, start, part.shape[dim]), r.place(part))
            start += part.shape[dim]
    return out


def _stacked(r: Recorder, shape: tuple[int, ...], parts: Sequence[Tensor], dim: int = 0) -> Place:
    dim %= len(shape)
    return _joined(r, shape, [part.unsqueeze(dim) for part in parts], dim)


def _padded(
    r: Recorder, shape: tuple[int, ...], a: Tensor, pad: Sequence[int], value: float = 0
) -> Place:
    out = r.apply(codes.COPY, shape, value)
    inner, of = out, r.place(a)
    for at, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = len(shape) - 1 - at
        if before < 0 or after < 0:
            raise CannotRecordError("the machine does not cut by padding")
        inner = _part(inner, dim, before, of.shape[dim])
    r.tape.copy(inner, of)
    return out


def _reduced(
    code: int, r: Recorder, a: Place, dims: Sequence[int] | None
) -> tuple[Place, tuple[int, ...]]:
    dims = tuple(d % len(a.shape) for d in (dims if dims else range(len(a.shape))))
    out = r.tape.new([1 if d in dims else n for d, n in enumerate(a.shape)])
    r.tape.reduce(code, a, dims, out)
    return out, dims


def _sum(
    r: Recorder,
    shape: tuple[int, ...],
    a: Tensor,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    **_: Any,
) -> Place:
    out, _dims = _reduced(codes.SUM_EACH, r, r.place(a), dims)
    return Place(out.region, 0, shape, row_major(shape))


def _mean(r: Recorder, shape: tuple[int, ...], a: Tensor, *dims: Any, **kwargs: Any) -> Place:
    total = _sum(r, shape, a, *dims, **kwargs)
    return r.apply(codes.MUL, shape, total, math.prod(shape) / a.numel())


def _any(
    r: Recorder, shape: tuple[int, ...], a: Tensor, dim: int = 0, keepdim: bool = False
) -> Place:
    out, _dims = _reduced(codes.MAX_EACH, r, r.place(a), [dim])
    return Place(out.region, 0, shape, row_major(shape))


def _softmax(r: Recorder, shape: tuple[int, ...], a: Tensor, dim: int, half: bool) -> Place:
    place = r.place(a)
    most, _dims = _reduced(codes.MAX_EACH, r, place, [dim])
    raised = r.apply(codes.EXP, shape, r.apply(codes.SUB, shape, place, most))
    total, _dims = _reduced(codes.SUM_EACH, r, raised, [dim])
    return r.apply(codes.DIV, shape, raised, total)


def _mm(r: Recorder, shape: tuple[int, ...], a: Tensor, b: Tensor) -> Place:
    return r.tape.multiply(r.place(a), r.place(b), r.tape.constant(np.zeros(shape[1])))


def _mv(r: Recorder, shape: tuple[int, ...], a: Tensor, v: Tensor) -> Place:
    out = _mm(r, (*shape, 1), a, v.unsqueeze(1))
    return Place(out.region, 0, shape, (1,))


def _addmm(
    r: Recorder,
    shape: tuple[int, ...],
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Place:
    if (beta, alpha) != (1, 1):
        raise CannotRecordError("the machine adds products as they are")
    return r.tape.multiply(r.place(a), r.place(b), r.place(bias))


_MAKERS = {
    *(aten.zeros_like, aten.ones_like, aten.full_like, aten.empty_like),
    *(aten.new_zeros, aten.new_ones, aten.new_full),
}
"""What reads of a tensor no more than its shape."""

_OTHERS = {"Tensor_mode", "Scalar_mode"}
"""Variants of operations that do something else."""

_RULES: dict[Any, Rule] = {
    aten.add: _sum_of(codes.ADD),
    aten.sub: _sum_of(codes.SUB),
    aten.rsub: _reversed_difference,
    aten.mul: _of_two(codes.MUL),
    aten.div: _of_two(codes.DIV),
    aten.maximum: _of_two(codes.MAXIMUM),
    aten.minimum: _of_two(codes.MINIMUM),
    aten.clamp: _clamped,
    aten.hardtanh: lambda r, shape, a, low=-1, high=1: _clamped(r, shape, a, low, high),
    aten.lt: _of_two(codes.LESS),
    aten.le: _of_two(codes.LESS_EQUAL),
    aten.gt: _swapped(codes.LESS),
    aten.ge: _swapped(codes.LESS_EQUAL),
    aten.eq: _of_two(codes.EQUAL),
    aten.bitwise_or: _of_two(codes.MAXIMUM),
    aten.logical_or: _of_two(codes.MAXIMUM),
    aten.bitwise_and: _of_two(codes.MUL),
    aten.logical_and: _of_two(codes.MUL),
    aten.bitwise_not: lambda r, shape, a: r.apply(codes.SUB, shape, 1, a),
    aten.logical_not: lambda r, shape, a: r.apply(codes.EQUAL, shape, a, 0),
    aten.where: lambda r, shape, a, b, c: r.apply(codes.WHERE, shape, a, b, c),
    aten.lerp: lambda r, shape, a, b, c: r.apply(codes.LERP, shape, a, b, c),
    aten.addcmul: _added_product,
    aten.neg: lambda r, shape, a: r.apply(codes.MUL, shape, a, -1),
    aten.reciprocal: lambda r, shape, a: r.apply(codes.DIV, shape, 1, a),
    aten.pow: _powered,
    aten.tanh: _of_one(codes.TANH),
    aten.sigmoid: _of_one(codes.SIGMOID),
    aten.exp: _of_one(codes.EXP),
    aten.relu: _of_one(codes.RELU),
    aten.softplus: _softplus,
    aten.silu: lambda r, shape, a: r.apply(codes.MUL, shape, a, r.apply(codes.SIGMOID, shape, a)),
    aten.gelu: _gelu,
    aten.abs: _of_one(codes.ABS),
    aten.sqrt: _of_one(codes.SQRT),
    aten.floor: _of_one(codes.FLOOR),
    aten.round: _of_one(codes.ROUND),
    aten.sign: _of_one(codes.SIGN),
    aten.log: _of_one(codes.LOG),
    aten.expm1: _of_one(codes.EXPM1),
    aten.sin: _of_one(codes.SIN),
    aten.cos: _of_one(codes.COS),
    aten.clone: _copied,
    aten._to_copy: _copied,
    aten.repeat: _tiled,
    aten.cat: _joined,
    aten.stack: _stacked,
    aten.constant_pad_nd: _padded,
    aten.sum: _sum,
    aten.mean: _mean,
    aten.any: _any,
    aten._softmax: _softmax,
    aten.mm: _mm,
    aten.mv: _mv,
    aten.addmm: _addmm,
}


class Recorded(NamedTuple):
    """A step as instructions.

    Args:
        instructions: (K, COLUMNS).
        floats: the memory of all numbers.
        inputs: where in it each of what the step is given begins.
        output: where what it emits begins.
        width: of what it emits.
    """

    instructions: Array
    floats: Array
    inputs: list[int]
    output: int
    width: int


@torch.no_grad()
def record(step: Callable[..., tuple[Tensor, Tensor]], *given: Tensor) -> Recorded:
    """Run a step once and return it as instructions.

    Args:
        step: returns what it emits, (B, M), and the next state.
        *given: what it is called with, the state first. The instructions leave the next state in
            the place of the state.

    Raises:
        CannotRecordError: there is no instruction for something that the step does.
    """
    recorder = Recorder()
    tape, places = recorder.tape, [recorder.begin(tensor) for tensor in given]
    with recorder:
        emitted, after = step(*given)
    out = tape.new(emitted.shape)
    tape.copy(out, recorder.place(emitted))
    state = recorder.place(after)
    if state.region == places[0].region:  # a part of the old one, which the copy would overwrite
        tape.copy(aside := tape.new(state.shape), state)
        state = aside
    tape.copy(places[0], state)
    rows, floats, starts = tape.assembled([place.region for place in (*places, out)])
    inputs = [starts[place.region] for place in places]
    return Recorded(rows, floats, inputs, starts[out.region], emitted.shape[1])
