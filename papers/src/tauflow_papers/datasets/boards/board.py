"""A task of the leaderboards: how its table is made, and what is predicted of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_seed
from tauflow.data import from_table
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files

Columns = dict[str, NDArray[Any]]
"""A table: columns of equal length by name."""

SPLIT_OPTION = "split_seed"
SPLIT = "70/15/15 by sequence, or by what groups them, drawn by split_seed; by class where possible"


@dataclass(frozen=True)
class Board:
    """A task of the leaderboards.

    Args:
        card: its description, with the sizes of the split of seed 0.
        read: makes the table from the verified files.
        options: of :func:`tauflow.data.from_table`.
    """

    card: DatasetCard
    read: Callable[[list[Path]], Columns]
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(
        self, root: str | Path | None = None, *, download: bool = True, split_seed: int = 0
    ) -> TaskData:
        """Load the task; scaling is that of the training part.

        Args:
            root: where the files are.
            download: whether to fetch missing files.
            split_seed: of the draw of the parts.

        Raises:
            ArgumentError: the seed is invalid.
            DataError: a file does not hold what it should.
            DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
        """
        check_seed(32, split_seed=split_seed)
        paths = fetch_files(self.card, root, download=download) if self.card.files else []
        data = from_table(
            self.read(paths), name=self.card.name, split_seed=split_seed, **self.options
        )
        read, card = data.card, self.card
        card = replace(
            card,
            input_size=read.input_size,
            sizes=read.sizes,
            notes=(*card.notes, *read.notes),
            season=read.season,
        )
        return TaskData(card, data.train, data.valid, data.test, schema=data.schema)


def flatten_sequences(columns: Columns, mask: NDArray[np.bool_]) -> Columns:
    """Return a table with a row for each valid step, and the sequence of each as ``sequence``.

    Args:
        columns: values of steps, (N, T), or of sequences, (N,).
        mask: which steps there are, (N, T).
    """
    steps = {
        name: np.broadcast_to(values if values.ndim == 2 else values[:, None], mask.shape)[mask]
        for name, values in columns.items()
    }
    return {"sequence": np.nonzero(mask)[0], **steps}
