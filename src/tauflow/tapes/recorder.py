"""What torch is asked to do while a step runs once, written on a tape."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import tape as codes
from .graph import MAKERS, tensors_in
from .rules import OTHERS, RULES, RULES_OF_MANY, Rule
from .rules_back import RULES_BACK, RULES_OF_MANY_BACK
from .tape import CannotRecordError, Place, Tape

aten = torch.ops.aten


class Recorder(TorchDispatchMode):
    """Writes what is done to tensors that it knows on a tape."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = Tape()
        self._places: dict[int, Place] = {}  # of the whole memory of storages
        self._outside: dict[int, int] = {}  # numbers of storages that only instructions fetch
        self._alive: list[Any] = []  # so that no storage takes the place of another

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch's compiler is imported, which takes seconds

    def begin(self, tensor: Tensor) -> Place:
        """Know a tensor; return its place."""
        place = self.tape.new(tensor.shape)
        self._know(tensor, place)
        return place

    def begin_outside(self, tensor: Tensor, number: int) -> None:
        """Know a tensor that stays where it is: what is read of it is fetched before any step."""
        self._alive.append(tensor)
        self._outside[tensor.untyped_storage()._cdata] = number

    def place(self, value: Any) -> Place:
        """Return where an operand is."""
        if not isinstance(value, Tensor):
            return self.tape.constant(float(value))
        storage = value.untyped_storage()._cdata
        offset, shape, strides = int(value.storage_offset()), tuple(value.shape), value.stride()
        if storage in self._outside:
            return self.tape.fetched(self._outside[storage], Place(-1, offset, shape, strides))
        if storage not in self._places:
            return self.tape.constant(value.detach().to(torch.float32).numpy())
        return Place(self._places[storage].region, offset, shape, strides)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Do what is asked, and write it down."""
        kwargs = kwargs or {}
        tensors = tensors_in([*args, *kwargs.values()])
        packet = function.overloadpacket
        known = packet not in MAKERS and any(map(self._knows, tensors))
        places = self._replaced(function, args, kwargs) if known else None
        out = function(*args, **kwargs)
        self._alive += [*tensors, *tensors_in([out])]
        if torch.Tag.nondeterministic_seeded in function.tags:
            raise CannotRecordError(f"{function} draws numbers")
        if not known:
            return out
        if places is not None:
            self._places[args[0].untyped_storage()._cdata] = places
            return out
        made = tensors_in([out])
        if made and all(map(self._knows, made)):
            return out  # views
        _refuse_dtypes(made)
        of_many = RULES_OF_MANY.get(packet) or RULES_OF_MANY_BACK.get(packet)
        if of_many is not None and all(one.is_contiguous() for one in made):
            for one, place in zip(made, of_many(self, *args, **kwargs), strict=True):
                self._know(one, self._row_major(place))
            return out
        if len(made) != 1:
            raise CannotRecordError(f"recorded steps have no {function}")
        out = made[0].contiguous()
        self._alive.append(out)
        rule = _rule(packet, function)
        self._know(out, rule(self, tuple(out.shape), *args, **kwargs))
        return out

    def _replaced(self, function: Any, args: Any, kwargs: Any) -> Place | None:
        """Return where the numbers are that take the place of an operand's, if they do."""
        if not function._schema.is_mutable:
            return None
        name, whole = function._schema.name.split("::")[1], args[0]
        held = whole.untyped_storage()
        own = held._cdata not in self._outside and held.nbytes() == whole.numel() * whole.itemsize
        if not name.endswith("_") or not own or not whole.is_contiguous():
            raise CannotRecordError(f"{function} changes numbers")
        rule = _rule(getattr(aten, name[:-1], None), function)
        return rule(self, tuple(whole.shape), *args, **kwargs)

    def _know(self, tensor: Tensor, place: Place) -> None:
        self._alive.append(tensor)
        assert tensor.is_contiguous()
        self._places[tensor.untyped_storage()._cdata] = place

    def _knows(self, tensor: Tensor) -> bool:
        storage = tensor.untyped_storage()._cdata
        return storage in self._places or storage in self._outside

    def _row_major(self, place: Place) -> Place:
        """Return a place whose numbers lie as those of a new tensor do."""
        whole = place.offset == 0 and place.in_a_row()
        return place if whole else self.apply(codes.COPY, place.shape, place)

    def apply(self, code: int, shape: Sequence[int], *operands: Any) -> Place:
        """Add an operation on entries; operands are tensors, numbers or places."""
        places = [one if isinstance(one, Place) else self.place(one) for one in operands]
        out = self.tape.new(shape)
        self.tape.write(code, out, *(place.expanded(shape) for place in places))
        return out


def _refuse_dtypes(made: Sequence[Tensor]) -> None:
    for one in made:
        if one.dtype not in (torch.float32, torch.bool):
            kind = str(one.dtype).removeprefix("torch.")
            raise CannotRecordError(f"it computes in {kind}, and recorded steps do in float32 only")


def _rule(packet: Any, function: Any) -> Rule:
    rule = RULES.get(packet) or RULES_BACK.get(packet)
    if rule is None or function._overloadname in OTHERS:
        raise CannotRecordError(f"recorded steps have no {function}")
    return rule
