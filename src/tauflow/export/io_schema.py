"""Schema of a model's inputs and outputs: units, names and scales."""

import math
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from tauflow._internal.checks import check_positive
from tauflow._internal.sanitize import format_count
from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError
from tauflow.tabular.schema import Schema


class _HasCard(Protocol):
    """What knows the card of its data, and their table if they came from one."""

    @property
    def card(self) -> DatasetCard: ...

    @property
    def schema(self) -> Schema | None: ...


_SCALES = ("x_mean", "x_scale", "y_mean", "y_scale")
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9 .,:;()\[\]=+_-]")
_ROUNDING = 1e-3  # numbers that are further apart, in units of the scale, lose digits that count
CONSTANT_SCALE = 1e30
"""Scale of an input that was constant in training, of which nothing but 0 is to reach the model."""


@dataclass(frozen=True)
class IOSchema:
    """Names, units and scales of the inputs and outputs of an exported model.

    Args:
        time_unit: unit of the time steps, that of the cell's time constants.
        inputs: names of the I inputs, in order.
        outputs: names of the O outputs, in order.
        x_mean: what was subtracted from every input, (I,); empty where nothing was scaled.
        x_scale: what the inputs were divided by then, (I,); of an input that was constant in
            training :data:`CONSTANT_SCALE`, which leaves 0 of it.
        y_mean: mean that makes outputs what they were before scaling, y * scale + mean, (O,).
        y_scale: the scale of that.
        time_scale: what times, as the data have them, are divided by for time steps of the time
            unit.
        y: what outputs are, ``"logits"`` of classes or ``"values"``; empty if not known.

    Raises:
        ArgumentError: a scale is no finite number, or 0, or one of two is missing; the time's is
            not above 0.
    """

    time_unit: str = ""
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    x_mean: Sequence[float] = ()
    x_scale: Sequence[float] = ()
    y_mean: Sequence[float] = ()
    y_scale: Sequence[float] = ()
    time_scale: float = 1.0
    y: str = ""

    def __post_init__(self) -> None:
        for name in ("time_unit", "y"):
            if not isinstance(getattr(self, name), str):
                raise ArgumentError(f"{name} must be a text, got {getattr(self, name)!r}.")
        read: dict[str, Any] = {name: _read_names(self, name) for name in ("inputs", "outputs")}
        read |= {name: _read_numbers(self, name) for name in _SCALES}
        read["time_scale"] = check_positive(time_scale=self.time_scale)
        for name, value in read.items():  # the class is frozen
            object.__setattr__(self, name, value)
        for side in "xy":
            if len(getattr(self, f"{side}_mean")) != len(getattr(self, f"{side}_scale")):
                raise ArgumentError(
                    f"give {side}_mean and {side}_scale, of one length, or neither."
                )
        if self.y_mean and not self.x_mean:
            raise ArgumentError("outputs are scaled, but inputs are not. Give x_mean 0, x_scale 1.")

    @classmethod
    def from_data(cls, data: _HasCard) -> "IOSchema":
        """Return the schema of a data set, with scales if it came from a table.

        Args:
            data: the data, or a predictor of a model that was trained on them.
        """
        unit, table = data.card.time_unit, data.schema
        y = "values" if data.card.task == "regress" else "logits"
        if table is None:
            return cls(time_unit=unit, y=y)
        # The outputs of labels are logits, and no values of the table.
        known = _SCALES[: 2 if table.labels else 4]
        scales = {name: getattr(table, name) for name in known}
        scales["x_scale"] = torch.where(table.x_scale == 0, CONSTANT_SCALE, table.x_scale.double())
        return cls(
            time_unit=unit,
            inputs=table.inputs,
            outputs=table.outputs,
            time_scale=table.gap,
            y=y,
            **{name: v.double().tolist() for name, v in scales.items() if v is not None},
        )

    def scaling(self) -> tuple[Tensor, ...]:
        """Return the scales as tensors: none, those of the inputs, or those of the outputs too."""
        pairs = [getattr(self, name) for name in _SCALES if len(getattr(self, name))]
        return tuple(torch.tensor(values, dtype=torch.float64) for values in pairs)

    def warn_precision_loss(self, dtype: torch.dtype) -> None:
        """Warn of inputs that lose digits where their numbers before scaling have a dtype.

        Args:
            dtype: of what goes in.

        Warns:
            UserWarning: numbers of the dtype are more than a thousandth of the scale apart at the
                mean of an input.
        """
        names = resolve_names("x", self.inputs, len(self.x_mean))
        resolutions = [abs(mean) * torch.finfo(dtype).eps for mean in self.x_mean]
        lost = [
            f"{name} (mean {mean:.7g}, scale {scale:.3g})"
            for name, mean, scale, each in zip(
                names, self.x_mean, self.x_scale, resolutions, strict=True
            )
            if each > _ROUNDING * abs(scale)
        ]
        if lost:
            warnings.warn(
                f"{str(dtype).removeprefix('torch.')} holds few digits of inputs far from zero: "
                f"{', '.join(lost)}. Subtract a constant from such a column before training, or "
                "export without scaled=True (--scaled) and scale outside in double precision.",
                UserWarning,
                stacklevel=4,
            )

    def check(self, inputs: int, outputs: int) -> None:
        """Raise :class:`ArgumentError` unless there is one entry for each input and output."""
        for side, name, size in (("x", "inputs", inputs), ("y", "outputs", outputs)):
            for field in (name, f"{side}_mean", f"{side}_scale"):
                count = len(getattr(self, field))
                if count not in (0, size):
                    raise ArgumentError(
                        f"{field} has {format_count(count, 'entry', 'entries')}, but the model "
                        f"has {size} {name}. Give one "
                        "for each, in order."
                    )

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as data that JSON can hold."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def _read_names(schema: IOSchema, name: str) -> tuple[str, ...]:
    values: object = getattr(schema, name)
    names = tuple(values) if isinstance(values, Iterable) else (None,)
    if isinstance(values, str) or not all(isinstance(each, str) for each in names):
        raise ArgumentError(f"{name} must be a list of names, got {values!r}.")
    return tuple(map(str, names))


def _read_numbers(schema: IOSchema, name: str) -> tuple[float, ...]:
    """Return a scale as numbers of Python, whatever held them."""
    values, is_mean = getattr(schema, name), "mean" in name
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        numbers = (math.nan,)
    if not all(map(math.isfinite, numbers)) or not (is_mean or all(numbers)):
        raise ArgumentError(
            f"{name} must hold finite numbers{', none of them 0' * (not is_mean)}, in a list, got "
            f"{values!r}."
        )
    return numbers


def resolve_names(kind: str, names: Sequence[str], count: int) -> list[str]:
    """Return names, or ``x0``, ``x1``, ... if no names are given."""
    return list(names) or [f"{kind}{index}" for index in range(count)]


def sanitize_comment(text: str) -> str:
    """Return a text as it may stand in a comment of C: signs that could end one are left out."""
    return _UNSAFE_CHARACTERS.sub("?", text)[:80]
