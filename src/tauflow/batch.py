"""The one container that data sets produce, and that training consumes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tauflow.checks import boolean_tensor, shape_error
from tauflow.errors import ArgumentError, DtypeError, ShapeError

_NUMBERS = 1 << 22
"""How many numbers of a field are taken at a time where a whole split is looked at."""


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

    def tensors(self) -> dict[str, Tensor]:
        """Return the fields that are there, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def pieces(self) -> Iterator[tuple[int, "SequenceBatch"]]:
        """Yield the batch in slices of few enough sequences to compute with each as a whole.

        What has to look at a split that may be larger than memory goes through these.

        Yields:
            The number of the first sequence of a slice, and the slice.
        """
        largest = max(value[:1].numel() for value in self.tensors().values())
        size = max(1, _NUMBERS // max(1, largest))
        for first in range(0, len(self), size):
            yield first, self[first : first + size]

    def _map(self, change: Callable[[Tensor], Tensor]) -> "SequenceBatch":
        return SequenceBatch(**{name: change(value) for name, value in self.tensors().items()})
