"""The three parts of a table: of whole ids, of groups of ids, or of the rows of each id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from tauflow._internal.registry import suggest_name
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError

from .cell_values import Indices
from .frame import Frame
from .options import BY_TIME, SPLITS, TableOptions, normalise_fractions
from .sequences import Sequences, concat_sequences, format_names
from .target import Target

_SPLIT_NAMES = {"train": "training", "valid": "validation", "test": "test"}
_BY_TIME_ADVICE = (
    "if there are targets in the rows, cut each id by time: split_by='time' (--split-by time)"
)
_ADVICE = (
    f"Use more ids, or {_BY_TIME_ADVICE}. Where ids are pieces of long recordings, such as patient "
    "and day, name what they are pieces of, the patient, as group (--group): pieces of one "
    "recording in two parts would be a leak."
)
_ADVICE_ON_GROUPS = f"Use more groups, or leave the group out and, {_BY_TIME_ADVICE}."


@dataclass(frozen=True)
class TableSplits:
    """What is for training, validation and test.

    Args:
        target: what is predicted, from the sequences of all parts.
        sequences: sequences of ``"train"``, ``"valid"`` and ``"test"``.
        training_sequences: those for training with all their rows.
        description: the parts were made.
        notes: what a reader must know.
        groups: the group of every id, if parts were drawn by group.
        weights: how much every id counts in training, if that was said.
    """

    target: Target
    sequences: Mapping[str, Sequences]
    training_sequences: Sequences
    description: str
    notes: tuple[str, ...]
    groups: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def add_weights(self, train: SequenceBatch) -> SequenceBatch:
        """Return the sequences of the training split with their weights, if there are any."""
        if not self.weights:
            return train
        weights = [self.weights[name] for name in self.sequences["train"].ids]
        return replace(train, weight=torch.tensor(weights))


def make_splits(
    target: Target, options: TableOptions, groups: Mapping[str, str] | None
) -> TableSplits:
    """Return the three parts.

    Args:
        target: what is predicted.
        options: what the user says of the table.
        groups: the group of every id, if they are drawn by group; or its part, if the user says.

    Raises:
        DataError: there are too few ids, groups or rows; a part has no target.
        ArgumentError: there is one target per id, and ids are to be cut.
    """
    if options.split_by == BY_TIME:
        return _split_by_time(target, options)
    if options.has_explicit_split:
        return _split_explicitly(target, options, groups or {})
    return _split_by_id(target, options, groups)


def get_explicit_splits(
    table: Frame, options: TableOptions, sequences: Sequences
) -> dict[str, str]:
    """Return the part that every id is in, as the user says.

    Raises:
        DataError: an id is in two parts, or in none, or there is no such id or part.
    """
    if options.split_column is not None:
        column = options.split_column
        part_names = get_groups(table, column, sequences, "part")
        wrong = next((name for name, part in part_names.items() if part not in SPLITS), None)
        if wrong is not None:
            raise DataError(
                f"{table.where}: column {column!r} holds {part_names[wrong]!r} for id {wrong!r}, "
                f"expected {', '.join(SPLITS)}. Correct it."
            )
        return part_names
    assert isinstance(options.split, Mapping)
    parts: dict[str, str] = {}
    known = set(sequences.ids)
    for part, ids in options.split.items():
        for id_ in ids:
            # Whole numbers may be 2 here and 2.0 there.
            other = id_.removesuffix(".0") if id_.endswith(".0") else f"{id_}.0"
            name = other if id_ not in known and other in known else id_
            if parts.setdefault(name, part) != part:
                raise DataError(
                    f"split: id {name!r} is in {parts[name]!r} and in {part!r}: what is tested "
                    "would have been trained on. Name it in one of them."
                )
            if name not in known:
                raise DataError(
                    f"split[{part!r}] names id {name!r}, and {table.where} has no rows of "
                    f"it.{suggest_name(name, known)} Correct it, or leave it out."
                )
    rest = [name for name in sequences.ids if name not in parts]
    if rest:
        raise DataError(
            f"split leaves out {format_count(len(rest), 'id')}: {format_names(rest)}. Name "
            "each, or remove their rows."
        )
    return parts


def _split_explicitly(
    target: Target, options: TableOptions, split_of_id: Mapping[str, str]
) -> TableSplits:
    of_each = np.array([split_of_id[name] for name in target.sequences.ids])
    keep = {part: of_each == part for part in SPLITS}
    for part in ("train", "test"):
        if not keep[part].any():
            raise DataError(
                f"no id of the {_SPLIT_NAMES[part]} split has a target. Name others for {part!r}."
            )
    parts = {part: target.sequences.select(mask) for part, mask in keep.items()}
    by = "as given" if options.split_column is None else f"by column {options.split_column!r}"
    counts = _format_counts([len(part_sequences) for part_sequences in parts.values()])
    note = f"{format_count(len(of_each), 'id')}: {counts}, {by}."
    return TableSplits(
        target, parts, target.all_rows.select(keep["train"]), f"{by}: {counts}", (note,)
    )


def get_groups(
    table: Frame, column: str, sequences: Sequences, what: str = "group"
) -> dict[str, str]:
    """Return the group of every id.

    Args:
        table: the table.
        column: of the groups.
        sequences: the rows of each id.
        what: the groups are.

    Raises:
        DataError: a row has no group, or an id is in two of them.
    """
    advice = "Say what the id of the row belongs to, or remove the row."
    table.check_filled(column, f"a {what}", advice, DataError)
    names, codes = table.texts(column)
    firsts, owners = sequences.rows[sequences.starts], sequences.sequence_index
    others = np.flatnonzero(codes[sequences.rows] != codes[firsts][owners])
    if others.size:
        row, owner = int(sequences.rows[others[0]]), int(owners[others[0]])
        raise DataError(
            f"{table.describe_cell(row, column)} holds {names[codes[row]]!r}, but "
            f"{table.describe_row(int(firsts[owner]))} of the same id, {sequences.ids[owner]!r}, "
            f"holds {names[codes[firsts[owner]]]!r}: an id in two {what}s cannot be in one part "
            f"with both. Correct the {what}, or make the id tell more, such as patient and day for "
            "day."
        )
    return {name: names[codes[row]] for name, row in zip(sequences.ids, firsts, strict=True)}


def read_weights(table: Frame, column: str, sequences: Sequences) -> dict[str, float]:
    """Return the weight of every id.

    Raises:
        DataError: it is no number above 0, or differs within an id.
    """
    table.check_name(column, "weight")
    table.check_filled(column, "a weight", "Fill it in, or remove the id.", DataError)
    values = table.numbers(column)[sequences.rows]
    firsts = values[sequences.starts]
    wrong = np.flatnonzero((values != firsts[sequences.sequence_index]) | (values <= 0))
    if wrong.size:
        row = int(sequences.rows[wrong[0]])
        raise DataError(
            f"{table.describe_value(row, column)}, expected a weight above 0 that is the same in "
            "all rows of the id. Correct it."
        )
    return dict(zip(sequences.ids, firsts.tolist(), strict=True))


def _split_by_id(
    target: Target, options: TableOptions, groups: Mapping[str, str] | None
) -> TableSplits:
    ids, fractions = target.sequences.ids, normalise_fractions(options.split)
    owners = ids if groups is None else tuple(groups[name] for name in ids)
    names, codes = np.unique(np.array(owners), return_inverse=True)
    classes = None
    if target.is_class and not target.per_step:
        classes = _find_rarest_class(target.y[target.first_rows(target.sequences)], codes)
    drawn = split_ids(names.tolist(), fractions, options.split_seed, classes, grouped=options.group)
    keep = {part: np.isin(codes, places) for part, places in zip(SPLITS, drawn, strict=True)}
    parts = {part: target.sequences.select(mask) for part, mask in keep.items()}
    counts, seed = [len(part_sequences) for part_sequences in parts.values()], options.split_seed
    by, note = (
        "by id",
        f"{format_count(len(ids), 'id')}: {_format_counts(counts)}, drawn with seed {seed}.",
    )
    if groups is not None:
        by = f"by group ({options.group!r})"
        note = (
            f"{format_count(len(ids), 'id')} in {format_count(len(names), 'group')} of "
            f"{options.group!r}: {_format_counts(counts)}; of the groups "
            f"{_format_counts([len(places) for places in drawn])}, drawn with seed {seed}."
        )
    how = f"{by}, {_format_fractions(fractions)}, seed {seed}"
    alike = target.all_rows is target.sequences
    trained = parts["train"] if alike else target.all_rows.select(keep["train"])
    return TableSplits(target, parts, trained, how, (note,), groups or {})


def _find_rarest_class(classes: Indices, codes: Indices) -> Indices:
    """Return the class of each group, (G,): of its ids' classes the one that fewest ids have.

    So groups with a rare class, of which there are few, are spread evenly.

    Args:
        classes: of each id, (N,).
        codes: number of the group of each id, (N,).
    """
    order = np.lexsort((classes, np.bincount(classes)[classes]))
    _, first = np.unique(codes[order], return_index=True)
    one_of_each: Indices = classes[order][first]
    return one_of_each


def split_ids(
    ids: Sequence[str],
    split: tuple[float, float, float],
    seed: int,
    classes: Indices | None = None,
    *,
    grouped: str | None = None,
) -> tuple[Indices, Indices, Indices]:
    """Draw the parts; which ids they hold does not depend on the order of the ids.

    Args:
        ids: names of N sequences, or groups of them.
        split: fractions of training, validation and test split; each but an empty one gets at least
            one id.
        seed: of the draw.
        classes: class of each sequence, (N,): parts then hold each class in about the same
            proportion, and the training split at least one id of each.
        grouped: column that the names are of, if they are those of groups; for messages.

    Returns:
        Positions of the ids of each part, increasing.

    Raises:
        DataError: there are too few ids.
    """
    rng = np.random.RandomState(seed)
    count = len(ids)
    drawn = np.argsort(np.array(ids))[rng.permutation(count)]
    for_test = max(1, round(split[2] * count))
    for_valid = max(1, round(split[1] * count)) if split[1] > 0 else 0
    for_training = np.zeros(0, np.int64)
    if classes is not None:
        drawn = drawn[np.argsort(classes[drawn], kind="stable")]
        _, firsts = np.unique(classes[drawn], return_index=True)
        for_training, drawn = drawn[firsts], np.delete(drawn, firsts)
    room = len(drawn) - (0 if len(for_training) else 1)  # at least one id is for training
    if room < for_test + for_valid:
        what = (
            f"{format_count(count, 'id')} of {format_count(len(for_training), 'class', 'classes')}"
            if len(for_training)
            else f"{format_count(count, 'id')}"
        )
        if grouped is not None:
            what = f"{format_count(count, 'group')} of {grouped!r}"
        each = ", one of each class kept for training," if len(for_training) else ""
        raise DataError(
            f"{what}{each} cannot be split into parts of {split[0]:.2g}, {split[1]:.2g} and "
            f"{split[2]:.2g}. {_ADVICE if grouped is None else _ADVICE_ON_GROUPS}"
        )
    test, drawn = _take_evenly(drawn, for_test)
    valid, drawn = _take_evenly(drawn, for_valid)
    return np.sort(np.concatenate([for_training, drawn])), np.sort(valid), np.sort(test)


def _take_evenly(order: Indices, count: int) -> tuple[Indices, Indices]:
    """Take ``count`` of the entries at equal distances; return them and what is left."""
    places = ((np.arange(count) + 0.5) * len(order) / max(count, 1)).astype(np.int64)
    return order[places], np.delete(order, places)


def _split_by_time(target: Target, options: TableOptions) -> TableSplits:
    if not target.per_step:
        holders = " and ".join(map(repr, options.targets))
        raise ArgumentError(
            f"split_by='time' cuts each id into three sequences, and {holders} holds one "
            "target per id: the answers of the test would be those of the training. Split by id, "
            "or name a target that changes from row to row."
        )
    fractions, least = normalise_fractions(options.split), 2 if target.is_next_step else 1
    if options.window is not None and target.horizon:
        least = options.window + target.horizon
    ends, short = _find_bounds(target, fractions, least)
    wholes, parts, dropped = {}, {}, 0
    for place, part in enumerate(SPLITS):
        part_rows = target.all_rows.crop(ends[:, place], ends[:, place + 1])
        # The row that a part ends with is a target only: the next one is another part's.
        cut_off = target.is_next_step and not target.horizon
        inputs = part_rows.drop_last() if cut_off else part_rows
        there, keep = part_rows.lengths > 0, inputs.any(target.has_target)
        dropped += int((there & ~keep).sum())
        wholes[part], parts[part] = part_rows.select(keep), inputs.select(keep)
        if there.any() and not keep.any():
            raise DataError(
                f"no row of the {_SPLIT_NAMES[part]} split has a target: where ids are cut by "
                "time, rows with targets must lie in every split. Split at other fractions "
                "(--split), or by id."
            )
    rows = [len(part_sequences.rows) for part_sequences in wholes.values()]
    sizes = [len(part_sequences) for part_sequences in parts.values()]
    pieces = f"sequences: {', '.join(f'{n:,}' for n in sizes)}"
    notes = [
        f"{format_count(len(ends), 'id')}, cut by time: {_format_counts(rows, 'rows ')}, "
        f"{pieces if max(sizes) > 1 else 'one sequence each'}; the first time step of each is 0."
    ]
    if short:
        notes.append(
            f"{format_count(len(short), 'id')} with fewer than "
            f"{format_count(_compute_min_rows(fractions, least), 'row')}, used "
            f"for training only: {format_names(short)}."
        )
    if dropped:
        notes.append(
            f"Left out: {format_count(dropped, 'sequence')} cut from ids, without a target."
        )
    cut = replace(
        target,
        sequences=concat_sequences(parts.values()),
        all_rows=concat_sequences(wholes.values()),
    )
    how = f"by time within each id, {_format_fractions(fractions)} of its rows"
    return TableSplits(cut, parts, wholes["train"], how, tuple(notes))


def _find_bounds(
    target: Target, fractions: tuple[float, float, float], least: int
) -> tuple[Indices, list[str]]:
    """Return where parts of each id begin and end, (N, 4), and the ids too short to be cut."""
    ids, lengths = target.all_rows.ids, target.all_rows.lengths.tolist()
    cuts = [find_cuts(length, fractions, least) for length in lengths]
    if not any(cuts):
        raise DataError(
            f"no id has the {format_count(_compute_min_rows(fractions, least), 'row')} that it "
            f"takes to cut it by time; the longest, {ids[int(np.argmax(lengths))]!r}, has "
            f"{max(lengths)}. Split by id, or check that the id is that of a sequence, not of a "
            "row."
        )
    ends = [
        (0, *(cut or (length, length)), length) for cut, length in zip(cuts, lengths, strict=True)
    ]
    short = [name for name, cut in zip(ids, cuts, strict=True) if cut is None]
    return np.array(ends, np.int64), short


def find_cuts(count: int, split: tuple[float, float, float], least: int) -> tuple[int, int] | None:
    """Return where to cut a row of entries into its training, validation and test split.

    Args:
        count: of the entries.
        split: fractions of the parts.
        least: how many entries each part but an empty one must have.

    Returns:
        Where the second and the third part begin; ``None`` if there are too few entries.
    """
    middle = least if split[1] > 0 else 0
    if count < 2 * least + middle:
        return None
    first = min(max(round(split[0] * count), least), count - middle - least)
    second = min(max(round((split[0] + split[1]) * count), first + middle), count - least)
    return first, second if middle else first


def _compute_min_rows(fractions: tuple[float, float, float], least: int) -> int:
    return least * (3 if fractions[1] > 0 else 2)


def _format_fractions(fractions: tuple[float, float, float]) -> str:
    train, valid, test = fractions
    return f"{train:.2g}, {valid:.2g} and {test:.2g}"


def _format_counts(counts: list[int], what: str = "") -> str:
    train, valid, test = counts
    return f"{train:,} {what}for training, {valid:,} for validation, {test:,} for the test"
