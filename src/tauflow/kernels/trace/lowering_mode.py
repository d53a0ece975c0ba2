"""What torch is asked to do while a step runs once, written as a program."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import program as codes
from .graph import SHAPE_ONLY_OPS, find_tensors
from .ops import MULTI_OUTPUT_RULES, RULES, UNSUPPORTED_OVERLOADS, Rule
from .pointwise_ops import POINTWISE_RULES
from .program import ProgramBuilder, Register, TracingError

aten = torch.ops.aten


class LoweringMode(TorchDispatchMode):
    """Writes what is done to tensors that it knows into a program.

    Args:
        builder: written to; a new one by default.
    """

    def __init__(self, builder: ProgramBuilder | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.builder = ProgramBuilder() if builder is None else builder
        self._registers: dict[int, Register] = {}  # of the whole memory of storages
        self._parameter_numbers: dict[
            int, int
        ] = {}  # numbers of storages that only instructions fetch
        self._alive: list[Any] = []  # so that no storage takes the place of another

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch's compiler is imported, which takes seconds

    def register_input(self, tensor: Tensor) -> Register:
        """Know a tensor; return its place."""
        place = self.builder.new(tensor.shape)
        self._register(tensor, place)
        return place

    def register_parameter(self, tensor: Tensor, number: int) -> None:
        """Know a tensor that stays where it is: what is read of it is fetched before any step."""
        self._alive.append(tensor)
        self._parameter_numbers[tensor.untyped_storage()._cdata] = number

    def get_register(self, value: Any) -> Register:
        """Return where an operand is."""
        if isinstance(value, Register):
            return value
        if not isinstance(value, Tensor):
            return self.builder.constant(float(value))
        storage = value.untyped_storage()._cdata
        offset, shape, strides = int(value.storage_offset()), tuple(value.shape), value.stride()
        if storage in self._parameter_numbers:
            return self.builder.fetch(
                self._parameter_numbers[storage], Register(-1, offset, shape, strides)
            )
        if storage not in self._registers:
            return self.builder.constant(value.detach().to(torch.float32).numpy())
        return Register(self._registers[storage].buffer, offset, shape, strides)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Do what is asked, and write it down."""
        kwargs = kwargs or {}
        tensors = find_tensors([*args, *kwargs.values()])
        packet = function.overloadpacket
        known = packet not in SHAPE_ONLY_OPS and any(map(self._is_registered, tensors))
        places = self._lower_in_place(function, args, kwargs) if known else None
        out = function(*args, **kwargs)
        self._alive += [*tensors, *find_tensors([out])]
        if torch.Tag.nondeterministic_seeded in function.tags:
            raise TracingError(f"{function} draws numbers")
        if not known:
            return out
        if places is not None:
            self._registers[args[0].untyped_storage()._cdata] = places
            return out
        made = find_tensors([out])
        if made and all(map(self._is_registered, made)):
            return out  # views
        _check_dtypes(made)
        of_many = MULTI_OUTPUT_RULES.get(packet)
        if of_many is not None and all(tensor.is_contiguous() for tensor in made):
            for tensor, place in zip(made, of_many(self, *args, **kwargs), strict=True):
                self._register(tensor, self._to_row_major(place))
            return out
        if len(made) != 1:
            raise TracingError(f"traced steps have no {function}")
        out = made[0].contiguous()
        self._alive.append(out)
        place = _get_rule(packet, function)(self, tuple(out.shape), *args, **kwargs)
        assert place.shape == out.shape
        self._register(out, place)
        return out

    def _lower_in_place(self, function: Any, args: Any, kwargs: Any) -> Register | None:
        """Return where the numbers are that take the place of an operand's, if they do."""
        if not function._schema.is_mutable:
            return None
        name, operand = function._schema.name.split("::")[1], args[0]
        held = operand.untyped_storage()
        is_ours = (
            held._cdata not in self._parameter_numbers
            and held.nbytes() == operand.numel() * operand.itemsize
        )
        if not name.endswith("_") or not is_ours or not operand.is_contiguous():
            raise TracingError(f"{function} changes numbers")
        rule = _get_rule(getattr(aten, name[:-1], None), function)
        return rule(self, tuple(operand.shape), *args, **kwargs)

    def _register(self, tensor: Tensor, register: Register) -> None:
        self._alive.append(tensor)
        assert tensor.is_contiguous()
        self._registers[tensor.untyped_storage()._cdata] = register

    def _is_registered(self, tensor: Tensor) -> bool:
        storage = tensor.untyped_storage()._cdata
        return storage in self._registers or storage in self._parameter_numbers

    def _to_row_major(self, register: Register) -> Register:
        """Return a place whose numbers lie as those of a new tensor do."""
        is_row_major = register.offset == 0 and register.is_contiguous()
        return register if is_row_major else self.apply(codes.COPY, register.shape, register)

    def emit(self, code: int, *operands: Any) -> Register:
        """Add an operation on entries, which are broadcast; see :meth:`apply`."""
        places = [*map(self.get_register, operands)]
        return self.apply(code, np.broadcast_shapes(*(place.shape for place in places)), *places)

    def apply(self, code: int, shape: Sequence[int], *operands: Any) -> Register:
        """Add an operation on entries; operands are tensors, numbers or places."""
        places = [*map(self.get_register, operands)]
        out = self.builder.new(shape)
        self.builder.write(code, out, *(place.expand(shape) for place in places))
        return out


def _check_dtypes(outputs: Sequence[Tensor]) -> None:
    for output in outputs:
        if output.dtype not in (torch.float32, torch.bool):
            kind = str(output.dtype).removeprefix("torch.")
            raise TracingError(f"it computes in {kind}, and traced steps do in float32 only")


def _get_rule(packet: Any, function: Any) -> Rule:
    if function._overloadname in UNSUPPORTED_OVERLOADS:
        raise TracingError(f"traced steps have no {function}")
    if packet in RULES:
        return RULES[packet]
    if packet not in POINTWISE_RULES:
        raise TracingError(f"traced steps have no {function}")
    pointwise = POINTWISE_RULES[packet]
    return lambda r, shape, *args, **kwargs: pointwise(r.emit, *args, **kwargs)
