"""Batches of a split through PyTorch's ``DataLoader``, of sequences of like lengths if wished."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

from tauflow._internal.checks import check_at_least
from tauflow.batch import SequenceBatch, collate

_BATCHES_PER_POOL = 100
"""Out of how many batches' sequences, drawn at random, those of like lengths are put together."""


class BucketBatchSampler(Sampler[list[int]]):
    """Indices of batches whose sequences are of like lengths, for ``DataLoader(batch_sampler=)``.

    Args:
        data: the sequences.
        batch_size: sequences of a batch.
        shuffle: whether to draw again, in each epoch, who goes with whom among those of like
            lengths and in which order the batches come; else they come from the shortest to the
            longest.
        drop_last: whether to leave out what does not fill a batch.
        generator: of the draws; torch's global one if ``None``.
    """

    def __init__(
        self,
        data: SequenceBatch,
        batch_size: int,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.lengths = data.lengths.tolist()
        self.generator, self.shuffle = generator, shuffle
        order = RandomSampler(self.lengths, generator=generator) if shuffle else range(len(data))
        self._batch_sampler = BatchSampler(
            order, check_at_least(1, batch_size=batch_size), drop_last
        )

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield batches, and draw at the first: loaders with workers begin twice."""
        drawn = list(self._batch_sampler)
        pool = _BATCHES_PER_POOL if self.shuffle else len(drawn)
        size, batches = self._batch_sampler.batch_size, []
        for first in range(0, len(drawn), pool):
            rows = sorted(chain(*drawn[first : first + pool]), key=self.lengths.__getitem__)
            batches += [rows[start : start + size] for start in range(0, len(rows), size)]
        if self.shuffle:
            order = torch.randperm(len(batches), generator=self.generator)
            batches = [batches[i] for i in order.tolist()]
        yield from batches


def make_data_loader(
    data: SequenceBatch,
    batch_size: int,
    *,
    per_step: bool | None = None,
    bucket_by_length: bool = False,
    shuffle: bool = False,
    drop_last: bool = False,
    generator: torch.Generator | None = None,
    **options: Any,
) -> DataLoader[SequenceBatch]:
    """Return a loader of the batches of a split; see :meth:`tauflow.data.TaskData.loader`.

    Args:
        data: the split.
        batch_size: sequences of a batch.
        per_step: whether targets are one per step; see :meth:`SequenceBatch.with_steps`.
        bucket_by_length: whether a batch's sequences are of like lengths, and end with the longest.
        shuffle: whether to draw the order of the sequences in each epoch.
        drop_last: whether to leave out the last batch if it is smaller.
        generator: of the draws; torch's global one if ``None``.
        **options: of ``torch.utils.data.DataLoader``.
    """
    source: Any = data  # no subclass of Dataset, which DataLoader does not ask for either
    if not bucket_by_length:
        return DataLoader(
            source,
            check_at_least(1, batch_size=batch_size),
            shuffle=shuffle,
            drop_last=drop_last,
            generator=generator,
            collate_fn=collate,
            **options,
        )
    batches = BucketBatchSampler(
        data, batch_size, shuffle=shuffle, drop_last=drop_last, generator=generator
    )
    ended = partial(_collate_trimmed, per_step=per_step)
    return DataLoader(
        source, batch_sampler=batches, collate_fn=ended, generator=generator, **options
    )


def _collate_trimmed(batches: list[SequenceBatch], per_step: bool | None) -> SequenceBatch:
    batch = collate(batches)
    return batch.with_steps(max(1, int(batch.lengths.max())), per_step=per_step)
