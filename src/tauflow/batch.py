"""The one container that data sets produce, and that training consumes."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tauflow.checks import boolean_tensor, shape_error
from tauflow.errors import ArgumentError, DtypeError, ShapeError


@dataclass(frozen=True)
class SequenceBatch:
    """Sequences with their gaps, masks and targets; a whole split is one batch, and is indexable.

    Args:
        x: inputs, (B, T, I), or images, (B, T, C, H, W); finite wherever ``mask`` and ``observed``
            are true; or integer ids of tokens, (B, T, 1), for a model that embeds them.
        y: targets: (B, T, O) or (B, T) for one per step, (B, O) or (B,) for one per sequence;
            integer for classes, floating point otherwise.
        dt: time elapsed since the previous sample, (B, T); the unit is the data set's.
        mask: (B, T) bool, false at padding.
        observed: bool, in the shape of x, which features were measured.
        y_mask: (B, T) bool, which steps have a target, or (B, T, O), which values are known;
            defaults to ``mask`` in losses.
    """

    x: Tensor
    y: Tensor
    dt: Tensor | None = None
    mask: Tensor | None = None
    observed: Tensor | None = None
    y_mask: Tensor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not isinstance(value, Tensor):
                raise DtypeError(
                    f"SequenceBatch: {field.name} must be a torch.Tensor, got "
                    f"{type(value).__name__}. Convert it with torch.as_tensor({field.name})."
                )
            if value is not None and field.name in ("mask", "observed", "y_mask"):
                boolean_tensor("SequenceBatch", **{field.name: value})
        if self.x.ndim not in (3, 5):
            raise ShapeError(
                f"SequenceBatch: x has shape {tuple(self.x.shape)}, expected (B, T, I), or "
                "(B, T, C, H, W) for images. Add the missing axis with x.unsqueeze(...)."
            )
        batch, steps = self.x.shape[:2]
        if self.y.shape[:1] != (batch,):
            raise ShapeError(
                f"SequenceBatch: y has shape {tuple(self.y.shape)}, but x has {batch} sequences. "
                "Give one row of targets per sequence."
            )
        entries = self.y_mask is not None and self.y_mask.ndim == 3
        for name, expected in (
            ("dt", (batch, steps)),
            ("mask", (batch, steps)),
            ("observed", tuple(self.x.shape)),
            ("y_mask", tuple(self.y.shape) if entries else (batch, steps)),
        ):
            value = getattr(self, name)
            if value is not None and tuple(value.shape) != expected:
                raise shape_error(
                    "SequenceBatch", name, value, str(expected), "It goes with x, entry by entry."
                )

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, index: Tensor | slice) -> "SequenceBatch":
        """Select sequences; a slice shares memory, an index tensor copies."""
        if isinstance(index, int):
            raise ArgumentError(
                f"SequenceBatch: one sequence is a batch of one: use batch[{index}:{index + 1}]."
            )
        return self._map(lambda value: value[index])

    def to(self, device: str | torch.device) -> "SequenceBatch":
        """Move every tensor to a device."""
        return self._map(lambda value: value.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> "SequenceBatch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: change(value) for name, value in values.items() if value is not None}
        return SequenceBatch(**changed)
