"""Batches of sequences, as data sets return them and training takes them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from operator import index as whole_number
from typing import Any, SupportsIndex

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data._utils.collate import default_collate_fn_map

from tauflow._internal.sanitize import format_count
from tauflow.errors import DataError, DtypeError, ShapeError

from ._internal.checks import check_bool_tensor, shape_error

_MAX_ELEMENTS = 1 << 22
"""How many numbers of a field are taken at a time where a whole split is looked at."""


@dataclass(frozen=True, repr=False)
class SequenceBatch:
    """Sequences with time steps, masks and targets; a whole split is one indexable batch.

    It is a data set of ``torch.utils.data``: ``DataLoader(batch, batch_size=32)``, ``Subset``,
    ``random_split`` and ``ConcatDataset`` take it as it is, and a loader's batches are of this
    class. Sequences of different lengths are padded with zeros at their ends, and masked.

    Args:
        x: inputs, (B, T, I), or images, (B, T, C, H, W); finite wherever ``mask`` and ``observed``
            are true; or integer ids of tokens, (B, T, 1), for a model that embeds them.
        y: targets: (B, T, O) or (B, T) for one per step, (B, O) or (B,) for one per sequence;
            integer for classes, floating point otherwise.
        dt: time elapsed since the previous sample, (B, T); the unit is the data set's.
        mask: (B, T) bool, false at padding.
        observed: bool, in the shape of x, which features were measured.
        y_mask: (B, T) bool, which steps have a target, or (B, T, O), which values are known, false
            at padding; defaults to ``mask`` in losses. Of targets (B, O), one row per sequence,
            (B, 1, O), which values are known.
        weight: (B,), above 0, how much each sequence counts in losses and metrics; a mean over
            entries then is a weighted one.
    """

    x: Tensor
    y: Tensor
    dt: Tensor | None = None
    mask: Tensor | None = None
    observed: Tensor | None = None
    y_mask: Tensor | None = None
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not isinstance(value, Tensor):
                raise DtypeError(
                    f"SequenceBatch: {field.name} must be a torch.Tensor, got "
                    f"{type(value).__name__}. Convert it with torch.as_tensor({field.name})."
                )
            if value is not None and field.name in ("mask", "observed", "y_mask"):
                check_bool_tensor("SequenceBatch", **{field.name: value})
        if self.x.ndim not in (3, 5):
            raise ShapeError(
                f"SequenceBatch: x has shape {tuple(self.x.shape)}, expected (B, T, I), or "
                "(B, T, C, H, W) for images. Add the missing axis with x.unsqueeze(...)."
            )
        batch, steps = self.x.shape[:2]
        if self.y.shape[:1] != (batch,):
            raise ShapeError(
                f"SequenceBatch: y has shape {tuple(self.y.shape)}, but x has "
                f"{format_count(batch, 'sequence')}. "
                "Give one row of targets per sequence."
            )
        known_values: tuple[int, ...] = (batch, steps)
        if self.y_mask is not None and self.y_mask.ndim == 3:
            known_values = (batch, 1, *self.y.shape[1:]) if self.y.ndim == 2 else self.y.shape
        for name, expected in (
            ("dt", (batch, steps)),
            ("mask", (batch, steps)),
            ("observed", tuple(self.x.shape)),
            ("y_mask", tuple(known_values)),
            ("weight", (batch,)),
        ):
            value = getattr(self, name)
            if value is not None and tuple(value.shape) != expected:
                raise shape_error(
                    "SequenceBatch", name, value, str(expected), "It goes with x, entry by entry."
                )

    def __len__(self) -> int:
        return self.x.shape[0]

    def __repr__(self) -> str:
        """Show shapes and types: the numbers would fill pages."""
        shapes = (
            f"{name}={tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
            for name, value in self.tensors().items()
        )
        return f"SequenceBatch({', '.join(shapes)})"

    def __getitem__(self, index: SupportsIndex | slice | Sequence[int] | Tensor) -> "SequenceBatch":
        """Select sequences, by one number (a batch of one), several, a mask of them, or a slice.

        A slice shares memory, everything else copies.

        Raises:
            IndexError: there is no such sequence.
        """
        rows = index if isinstance(index, slice) else _to_index(index, len(self))
        return self._map_tensors(lambda value: value[rows])

    def __getitems__(self, index: Sequence[int]) -> "SequenceBatch":
        """Select the sequences of a batch at once, as loaders do."""
        return self[index]

    @property
    def valid(self) -> Tensor:
        """The mask, (B, T), true everywhere if the batch has none."""
        if self.mask is not None:
            return self.mask
        return torch.ones(self.x.shape[:2], dtype=torch.bool, device=self.x.device)

    @property
    def sequence_target_mask(self) -> Tensor | None:
        """Which values of targets (B, O), one row per sequence, are known; ``None`` if all are."""
        if self.y_mask is None or self.y_mask.ndim != 3 or self.y.ndim != 2:
            return None
        return self.y_mask[:, 0]

    @property
    def lengths(self) -> Tensor:
        """Steps of each sequence up to its last valid one, (B,), as int64."""
        counted = torch.arange(1, self.x.shape[1] + 1, device=self.x.device)
        return (self.valid * counted).amax(1)

    def trim_padding(self, *, has_label_sets: bool = False) -> "SequenceBatch":
        """Return the batch without the steps at its end that are padding in every sequence.

        What stays, at least one step, shares memory. Targets (B, O) of real numbers with O as long
        as the sequences may be one per step or one per sequence: without a ``y_mask``, which says
        that they are one per step, nothing is cut.

        Args:
            has_label_sets: whether integers (B, O) may be O labels of a sequence, with which it is
                as with real numbers; else they are classes, one per step.
        """
        length = self.x.shape[1]
        if self.mask is None or not self.mask.numel():
            return self
        counts = self.mask.any(0)
        if self.y_mask is None:
            alike = self.y.ndim == 2 and self.y.shape[1] == length
            if alike and (
                has_label_sets or self.y.is_floating_point() or self.y.dtype is torch.bool
            ):
                return self
        elif self.y_mask.shape[1] != length:
            return self
        else:
            counts = counts | self.y_mask.reshape(len(self), length, -1).any(-1).any(0)
        steps = int((counts * torch.arange(1, length + 1, device=counts.device)).amax())
        return self if steps == length else self.with_steps(max(steps, 1))

    def with_steps(self, steps: int, *, per_step: bool | None = None) -> "SequenceBatch":
        """Return the first steps of every sequence, or the sequences padded at their ends.

        What is cut shares memory. Padding is zero, and false in the masks; ``mask`` is made.

        Args:
            steps: to have.
            per_step: whether targets are one per step, which changes with the sequences; by default
                if they have a second axis, as long as the sequences.
        """
        length = self.x.shape[1]
        of_sequences = self.sequence_target_mask is not None
        if per_step is None:
            per_step = self.y.ndim > 1 and self.y.shape[1] == length and not of_sequences
        per_sequence = {"weight"} if per_step else {"weight", "y"}
        if of_sequences:
            per_sequence.add("y_mask")
        per_row = {
            name: value for name, value in self.tensors().items() if name not in per_sequence
        }
        if steps <= length:
            return replace(self, **{name: value[:, :steps] for name, value in per_row.items()})
        per_row["mask"] = self.valid
        return replace(
            self,
            **{
                name: F.pad(value, (*(0, 0) * (value.ndim - 2), 0, steps - length))
                for name, value in per_row.items()
            },
        )

    def to(
        self,
        device: str | torch.device | torch.dtype | None = None,
        dtype: torch.dtype | None = None,
        *,
        non_blocking: bool = False,
    ) -> "SequenceBatch":
        """Move every tensor to a device, and those of real numbers to a dtype, or either alone.

        Weights stay in single precision at least: in half, 257 would count as 256, or as infinity
        what is above 65504.
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        moved = self._map_tensors(
            lambda value: value.to(
                device, dtype if value.is_floating_point() else None, non_blocking=non_blocking
            )
        )
        if dtype is None or self.weight is None or not self.weight.is_floating_point():
            return moved
        weight = self.weight.to(device, promote_to_float32(dtype), non_blocking=non_blocking)
        return replace(moved, weight=weight)

    def pin_memory(self) -> "SequenceBatch":
        """Copy every tensor to page-locked memory, from where it goes faster to a GPU."""
        return self._map_tensors(Tensor.pin_memory)

    def tensors(self) -> dict[str, Tensor]:
        """Return the fields that are there, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def iter_slices(self) -> Iterator[tuple[int, "SequenceBatch"]]:
        """Yield the batch in slices of few enough sequences to compute with each as a whole.

        What has to look at a split that may be larger than memory goes through these.

        Yields:
            The number of the first sequence of a slice, and the slice.
        """
        largest = max(value[:1].numel() for value in self.tensors().values())
        size = max(1, _MAX_ELEMENTS // max(1, largest))
        for first in range(0, len(self), size):
            yield first, self[first : first + size]

    def mean_over_sequences(self, values: Tensor) -> Tensor:
        """Return the mean of values, (..., B), over sequences, each counted by its ``weight``.

        With weights, values in half precision have a mean in single.
        """
        if self.weight is None:
            return values.mean(-1)
        weight = self.weight.to(promote_to_float32(values.dtype))
        return (values * weight).sum(-1) / weight.sum()

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "SequenceBatch":
        return SequenceBatch(**{name: change(value) for name, value in self.tensors().items()})


def check_batch(name: str, data: object) -> None:
    """Raise if data are no batch.

    Args:
        name: of the argument, for the message.
        data: what was given.

    Raises:
        DtypeError: they are a tensor, or anything else.
    """
    if not isinstance(data, SequenceBatch):
        raise DtypeError(
            f"{name} must be a tauflow.SequenceBatch, got {type(data).__name__}. Put all sequences "
            "into one: SequenceBatch(x, y, dt), with any y if there are no targets."
        )


def check_finite_batch(name: str, data: SequenceBatch) -> None:
    """Raise if inputs are not finite where they were measured, or dt at steps that count.

    Args:
        name: of the batch, for the message.
        data: the sequences.

    Raises:
        DataError: one is not.
    """
    for first, piece in data.iter_slices():
        measured = torch.isfinite(piece.x)
        if piece.observed is not None:
            measured |= ~piece.observed
        finite = {"x": measured.flatten(2).all(-1)}
        if piece.dt is not None:
            finite["dt"] = torch.isfinite(piece.dt)
        for part, good in finite.items():
            bad = ~good if piece.mask is None else ~good & piece.mask
            if not bool(bad.any()):
                continue
            row, step = bad.nonzero()[0].tolist()
            advice = "Fill the value in" + (", mark it with observed=False" if part == "x" else "")
            raise DataError(
                f"{part} of {name} is not finite at sequence {first + row}, step {step}. "
                f"{advice}, or mark the step with mask=False."
            )


def promote_to_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which to count values of another: a half one is too coarse for it."""
    return torch.promote_types(dtype, torch.float32)


def collate(batches: Sequence[SequenceBatch]) -> SequenceBatch:
    """Join batches into one, padded to the longest of them; the ``collate_fn`` of data loaders.

    Raises:
        DataError: one has a field that another lacks.
        ShapeError: they differ in more than their numbers of sequences and of steps.
    """
    if isinstance(batches, SequenceBatch):  # selected at once
        return batches
    names = [batch.tensors().keys() - {"mask"} for batch in batches]
    for name in sorted(set().union(*names) - names[0].intersection(*names)):
        raise DataError(
            f"collate: {name} is there in some of the "
            f"{format_count(len(batches), 'batch', 'batches')} only. Give it in all "
            "of them, or in none."
        )
    steps = [batch.x.shape[1] for batch in batches]
    if min(steps) < max(steps) or len({batch.mask is None for batch in batches}) > 1:
        per_step = all(batch.y.shape[1:2] == batch.x.shape[1:2] for batch in batches)
        batches = [
            replace(batch, mask=batch.valid).with_steps(max(steps), per_step=per_step)
            for batch in batches
        ]
    parts = [batch.tensors() for batch in batches]
    for name in parts[0]:
        shapes = {tuple(part[name].shape[1:]) for part in parts}
        if len(shapes) > 1:
            raise ShapeError(
                f"collate: {name} of one sequence has the shapes {sorted(shapes)}. Sequences may "
                "differ in their number of steps only, and so may targets per step."
            )
    return SequenceBatch(**{name: torch.cat([p[name] for p in parts]) for name in parts[0]})


def _to_index(index: Any, count: int) -> Tensor:
    """Return what selects sequences as a tensor of indices or a mask."""
    if isinstance(index, Tensor) and index.ndim:
        return index
    try:
        number = whole_number(index)
    except TypeError:
        return torch.as_tensor(index, dtype=None if len(index) else torch.long)
    if not -count <= number < count:
        raise IndexError(f"SequenceBatch: there is no sequence {number} among {count}.")
    return torch.tensor([number])


def _default_collate(batches: Any, *, collate_fn_map: object) -> SequenceBatch:
    return collate(batches)


default_collate_fn_map[SequenceBatch] = _default_collate
