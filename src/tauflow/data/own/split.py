"""The three parts of a table: of whole ids, of groups of ids, or of the rows of each id."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError, DataError

from .goal import Goal
from .options import BY_TIME, TableOptions
from .parts import cuts_of, fractions_of, split_ids
from .sequences import Sequences, joined, some
from .sheet import Sheet

PARTS = ("train", "valid", "test")
_WORDS = {"train": "training", "valid": "validation", "test": "test"}


@dataclass(frozen=True)
class Split:
    """What is for training, validation and test.

    Args:
        goal: what is predicted, from the sequences of all parts.
        parts: sequences of ``"train"``, ``"valid"`` and ``"test"``.
        trained: those for training with all their rows.
        how: the parts were made.
        notes: what a reader must know.
    """

    goal: Goal
    parts: Mapping[str, Sequences]
    trained: Sequences
    how: str
    notes: tuple[str, ...]


def split_of(goal: Goal, options: TableOptions, groups: Mapping[str, str] | None) -> Split:
    """Return the three parts.

    Args:
        goal: what is predicted.
        options: what the user says of the table.
        groups: the group of every id, if they are drawn by group.

    Raises:
        DataError: there are too few ids, groups or rows; a part has no target.
        ArgumentError: there is one target per id, and ids are to be cut.
    """
    if options.split_by == BY_TIME:
        return _by_time(goal, options)
    return _by_id(goal, options, groups)


def groups_of(sheet: Sheet, column: str, sequences: Sequences) -> dict[str, str]:
    """Return the group of every id.

    Args:
        sheet: the table.
        column: of the groups.
        sequences: the rows of each id.

    Raises:
        DataError: a row has no group, or an id is in two of them.
    """
    missing = sheet.missing(column)
    if missing.any():
        raise DataError(
            f"{sheet.cell(int(np.argmax(missing)), column)} is empty, expected a group. Say what "
            "the id of the row belongs to, or remove the row."
        )
    names = np.array(sheet.texts(column))
    for name, rows in zip(sequences.ids, sequences.rows, strict=True):
        other = rows[names[rows] != names[rows[0]]]
        if other.size:
            raise DataError(
                f"{sheet.cell(int(other[0]), column)} holds {str(names[other[0]])!r}, but "
                f"{sheet.row(int(rows[0]))} of the same id, {name!r}, holds "
                f"{str(names[rows[0]])!r}: an id in two groups cannot be in one part with both. "
                "Correct the group, or make the id tell more, such as patient and day for day."
            )
    firsts = (str(names[rows[0]]) for rows in sequences.rows)
    return dict(zip(sequences.ids, firsts, strict=True))


def _by_id(goal: Goal, options: TableOptions, groups: Mapping[str, str] | None) -> Split:
    ids, fractions = goal.sequences.ids, fractions_of(options.split)
    owners = ids if groups is None else tuple(groups[name] for name in ids)
    names, codes = np.unique(np.array(owners), return_inverse=True)
    classes = None
    if goal.is_class and not goal.per_step:
        classes = _rarest(goal.firsts(goal.sequences), codes)
    drawn = split_ids(names.tolist(), fractions, options.split_seed, classes, grouped=options.group)
    keep = {part: np.isin(codes, places) for part, places in zip(PARTS, drawn, strict=True)}
    parts = {part: goal.sequences.kept(kept) for part, kept in keep.items()}
    counts, seed = [len(one) for one in parts.values()], options.split_seed
    by, note = "by id", f"{len(ids)} ids: {_listed(counts)}, drawn with seed {seed}."
    if groups is not None:
        by = f"by group ({options.group!r})"
        note = (
            f"{len(ids)} ids in {len(names)} groups of {options.group!r}: {_listed(counts)}; of "
            f"the groups {_listed([len(places) for places in drawn])}, drawn with seed {seed}."
        )
    how = f"{by}, {_told(fractions)}, seed {seed}"
    return Split(goal, parts, goal.whole.kept(keep["train"]), how, (note,))


def _rarest(classes: NDArray[Any], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the class of each group, (G,): of its ids' classes the one that fewest ids have.

    So groups with a rare class, of which there are few, are spread evenly.

    Args:
        classes: of each id, (N,).
        codes: number of the group of each id, (N,).
    """
    order = np.lexsort((classes, np.bincount(classes)[classes]))
    _, first = np.unique(codes[order], return_index=True)
    found: NDArray[np.int64] = classes[order][first]
    return found


def _by_time(goal: Goal, options: TableOptions) -> Split:
    if not goal.per_step:
        raise ArgumentError(
            f"split_by='time' cuts each id into three sequences, and {options.target!r} holds one "
            "target per id: the answers of the test would be those of the training. Split by id, "
            "or name a target that changes from row to row."
        )
    fractions, least = fractions_of(options.split), 2 if goal.is_next_step else 1
    ends, short = _ends(goal, fractions, least)
    wholes, parts, dropped = {}, {}, 0
    for place, part in enumerate(PARTS):
        whole = goal.whole.between(ends[:, place], ends[:, place + 1])
        # The row that a part ends with is a target only: the next one is another part's.
        inputs = whole.cut(lambda rows: rows[:-1]) if goal.is_next_step else whole
        there = np.array([len(rows) > 0 for rows in whole.rows])
        keep = np.array([bool(goal.known[rows].any()) for rows in inputs.rows])
        dropped += int((there & ~keep).sum())
        wholes[part], parts[part] = whole.kept(keep), inputs.kept(keep)
        if there.any() and not keep.any():
            raise DataError(
                f"no row of the {_WORDS[part]} part has a target: where ids are cut by time, rows "
                "with targets must lie in every part. Split at other fractions (--split), or by id."
            )
    rows = [sum(map(len, one.rows)) for one in wholes.values()]
    sizes = ", ".join(str(len(one)) for one in parts.values())
    notes = [
        f"{len(ends)} ids, cut by time: {_listed(rows, 'rows ')}, in {sizes} sequences, the first "
        "gap of each 0."
    ]
    if short:
        notes.append(
            f"{len(short)} ids have fewer than {_needed(fractions, least)} rows, and are for "
            f"training alone: {some(short)}."
        )
    if dropped:
        notes.append(f"{dropped} sequences cut from ids have no target and are left out.")
    cut = replace(goal, sequences=joined(parts.values()), whole=joined(wholes.values()))
    how = f"by time within each id, {_told(fractions)} of its rows"
    return Split(cut, parts, wholes["train"], how, tuple(notes))


def _ends(
    goal: Goal, fractions: tuple[float, float, float], least: int
) -> tuple[NDArray[np.int64], list[str]]:
    """Return where parts of each id begin and end, (N, 4), and the ids too short to be cut."""
    lengths = [len(rows) for rows in goal.whole.rows]
    cuts = [cuts_of(length, fractions, least) for length in lengths]
    if not any(cuts):
        name = goal.whole.ids[int(np.argmax(lengths))]
        raise DataError(
            f"no id has the {_needed(fractions, least)} rows that it takes to cut it by time; the "
            f"longest, {name!r}, has {max(lengths)}. Split by id, or check that the id is that of "
            "a sequence, not of a row."
        )
    ends = [
        (0, *(cut or (length, length)), length) for cut, length in zip(cuts, lengths, strict=True)
    ]
    short = [name for name, cut in zip(goal.whole.ids, cuts, strict=True) if cut is None]
    return np.array(ends, np.int64), short


def _needed(fractions: tuple[float, float, float], least: int) -> int:
    return least * (3 if fractions[1] > 0 else 2)


def _told(fractions: tuple[float, float, float]) -> str:
    train, valid, test = fractions
    return f"{train:.2g}, {valid:.2g} and {test:.2g}"


def _listed(counts: list[int], what: str = "") -> str:
    train, valid, test = counts
    return f"{train} {what}for training, {valid} for validation, {test} for the test"
