"""Checks of the classes of a target, part by part."""

from collections.abc import Mapping

import numpy as np

from tauflow.errors import DataError

from .sequences import Sequences, format_names
from .target import Target


def check_classes(
    column: str, target: Target, splits: Mapping[str, Sequences], *, resplit_advice: str
) -> None:
    """Refuse classes that a model could not learn, as the training part has none of them.

    Args:
        column: of the target.
        target: its classes.
        splits: sequences of each part.
        resplit_advice: how to split otherwise, for the message.

    Raises:
        DataError: a class occurs in the other parts only.
    """
    trained = _find_classes(target, splits["train"])
    for part, sequences in splits.items():
        found = _find_classes(target, sequences)
        new = {code: name for code, name in found.items() if code not in trained}
        if new:
            names = [repr(target.outputs[code]) for code in new]
            raise DataError(
                f"the {part} part holds classes of {column!r} that the training part lacks: "
                f"{format_names(names)} (id {next(iter(new.values()))!r}). Split {resplit_advice}, "
                "join rare classes, or leave those ids out."
            )


def _find_classes(target: Target, sequences: Sequences) -> dict[int, str]:
    """Return each class that occurs with the first id that has it, in the order of the ids."""
    having = target.known[sequences.rows]
    owners, codes = sequences.sequence_index[having], target.y[sequences.rows[having]]
    first = np.full(len(target.outputs), -1)
    first[codes[::-1]] = owners[::-1]  # where several would be written, the last one stays
    present = np.flatnonzero(first >= 0)
    order = present[np.argsort(first[present], kind="stable")]  # of one id, the lower class first
    return {int(code): sequences.ids[first[code]] for code in order}
