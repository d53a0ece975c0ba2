"""The one container that data sets produce, and that training consumes."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tauflow.errors import ShapeError


@dataclass(frozen=True)
class SequenceBatch:
    """Sequences with their gaps, masks and targets; a whole split is one batch, and is indexable.

    Args:
        x: inputs, (B, T, I), finite wherever ``mask`` is true.
        y: targets: (B, T, O) or (B, T) for one per step, (B, O) or (B,) for one per sequence;
            integer for classes, floating point otherwise.
        dt: time elapsed since the previous sample, (B, T); the unit is the data set's.
        mask: (B, T) bool, false at padding.
        observed: (B, T, I) bool, which features were measured.
        y_mask: (B, T) bool, which steps have a target; defaults to ``mask`` in losses.
    """

    x: Tensor
    y: Tensor
    dt: Tensor | None = None
    mask: Tensor | None = None
    observed: Tensor | None = None
    y_mask: Tensor | None = None

    def __post_init__(self) -> None:
        if self.x.ndim != 3:
            raise ShapeError(
                f"SequenceBatch: x has shape {tuple(self.x.shape)}, expected (B, T, I). "
                "Add the missing axis with x.unsqueeze(...)."
            )
        batch, steps = self.x.shape[:2]
        for name, expected in (
            ("y", (batch,)),
            ("dt", (batch, steps)),
            ("mask", (batch, steps)),
            ("observed", tuple(self.x.shape)),
            ("y_mask", (batch, steps)),
        ):
            value: Tensor | None = getattr(self, name)
            if value is not None and tuple(value.shape[: len(expected)]) != expected:
                raise ShapeError(
                    f"SequenceBatch: {name} has shape {tuple(value.shape)}, but x has shape "
                    f"{tuple(self.x.shape)}: {name} must begin with {expected}."
                )

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, index: Tensor | slice) -> "SequenceBatch":
        """Select sequences; a slice shares memory, an index tensor copies."""
        return self._map(lambda value: value[index])

    def to(self, device: str | torch.device) -> "SequenceBatch":
        """Move every tensor to a device."""
        return self._map(lambda value: value.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> "SequenceBatch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: change(value) for name, value in values.items() if value is not None}
        return SequenceBatch(**changed)
