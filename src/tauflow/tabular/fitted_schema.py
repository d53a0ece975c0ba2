"""What is learned of the training split of a table, apart from what is said of the table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import check_one_of, check_positive, check_within
from tauflow.data.imputation import IMPUTE_STRATEGIES
from tauflow.data.scaler import StandardScaler
from tauflow.errors import ArgumentError

from .options import LABELS, TEXT_LABELS, Categories
from .sequences import NO_TIMES
from .shift import Summary
from .times import UNITS

LINEAR = "linear"
"""What stands for a missing value of an imputer: interpolation, of who has no value the mean."""


class Label(NamedTuple):
    """One of several targets with two classes each.

    Args:
        name: of the column.
        classes: what 0 and 1 are called.
        kind: what they are in the table, as of a single target.
    """

    name: str
    classes: tuple[str, ...]
    kind: str = TEXT_LABELS


def _no_numbers() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FittedSchema:
    """What a fit learns of a table; :class:`tauflow.data.Schema` describes the fields."""

    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inputs: tuple[str, ...] = field(default=())
    x_mean: Tensor = field(default_factory=_no_numbers)
    x_scale: Tensor = field(default_factory=_no_numbers)
    outputs: tuple[str, ...] = field(default=())
    y_mean: Tensor | None = field(default=None)
    y_scale: Tensor | None = field(default=None)
    dated: bool = field(default=False)
    zoned: bool | None = field(default=None)
    unit: str = field(default=NO_TIMES)
    gap: float = field(default=1.0)
    ahead: float | None = field(default=None)
    categories: Categories = field(default=())
    unseen: Categories = field(default=())
    variables: tuple[str, ...] = field(default=())
    kind: str = field(default=TEXT_LABELS)
    labels: tuple[Label, ...] = field(default=())
    groups: Mapping[str, str] = field(default_factory=dict)
    fill: str = field(default=IMPUTE_STRATEGIES[1])
    observed: bool = field(default=False)
    summary: Summary = field(default_factory=dict)
    gap_summary: tuple[float, ...] = field(default=())
    limit: float = field(default=0.0)

    @property
    def is_fitted(self) -> bool:
        """Whether means, scales, categories and classes are known."""
        return bool(self.inputs)

    @property
    def is_timed(self) -> bool:
        """Whether its sequences have times."""
        return self.unit != NO_TIMES

    @property
    def is_class(self) -> bool:
        """Whether classes are predicted; of a fitted schema."""
        return self.y_scale is None

    @property
    def input_scaler(self) -> StandardScaler:
        """Means and scales of the inputs."""
        return StandardScaler(self.x_mean.numpy(), self.x_scale.numpy())

    @property
    def target_scaler(self) -> StandardScaler | None:
        """Means and scales of the targets; ``None`` of classes."""
        if self.y_mean is None or self.y_scale is None:
            return None
        return StandardScaler(self.y_mean.numpy(), self.y_scale.numpy())

    def unscale(self, y: Tensor) -> Tensor:
        """Return targets or predictions, (..., O), in the units of the table.

        In double precision: in single, values near 1e8 lie 8 apart.

        Raises:
            ArgumentError: the targets are classes.
        """
        if self.y_mean is None or self.y_scale is None:
            call = "outputs[prediction.argmax(-1)]"
            raise ArgumentError(f"the targets are classes, without a scale; take {call}.")
        return _inverse_transform(y, self.y_mean, self.y_scale)

    def unscale_inputs(self, x: Tensor) -> Tensor:
        """Return inputs, (..., I), as :meth:`unscale` does; the mean where not observed."""
        return _inverse_transform(x, self.x_mean, self.x_scale)

    def check(self) -> None:
        """Raise :class:`ValueError` if the fields could not come from one table."""
        self.input_scaler.check(len(self.inputs))
        scaler = self.target_scaler
        if (self.y_mean is None) is not (self.y_scale is None):
            raise ValueError("values have a mean and a scale, and classes have none")
        if scaler is not None:
            scaler.check(len(self.outputs))
            if scaler.is_constant.any():
                raise ValueError("a scale of the targets is 0")
        check_one_of(LABELS, kind=self.kind)
        check_one_of((*IMPUTE_STRATEGIES, LINEAR), fill=self.fill)
        check_within(1e-30, 1e30, gap=self.gap)  # in single precision, with its reciprocal
        check_positive(ahead=1.0 if self.ahead is None else self.ahead)
        check_positive(limit=self.limit or 1.0)
        if self.dated:
            check_one_of(UNITS, unit=self.unit)


def _inverse_transform(values: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Return values, (..., C), that were scaled, on their own device."""
    if values.device.type == "mps":  # which has no double precision
        mean, scale = mean.float(), scale.float()
    return values * scale.to(values.device) + mean.to(values.device)
