"""Windows of sequences: pieces to learn from, with what comes after them to predict."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tauflow._internal.sanitize import format_count
from tauflow.errors import DataError

from .cell_values import Bools
from .inputs import InputColumns
from .options import FUTURE_NAME_FORMAT, TableOptions
from .sequences import Sequences, concat_sequences
from .split import TableSplits

_FEW_STEPS = 200


def window_splits(split: TableSplits, options: TableOptions, inputs: InputColumns) -> TableSplits:
    """Return the parts with their sequences cut into windows, if that was asked for.

    As a part is cut by itself, no row of a window, nor one that it predicts, is in another part.

    Raises:
        DataError: no sequence of a part is long enough.
    """
    if options.window is None:
        return _warn_single_sequence(split)
    horizon = split.target.horizon
    stride = options.stride or horizon or options.window
    parts: dict[str, Sequences] = {}
    for part, sequences in split.sequences.items():
        cut = sequences.cut_windows(options.window, stride, horizon)
        if len(sequences) and not len(cut):
            raise DataError(
                f"no sequence of the {part} part has the {format_count(options.window, 'row')} of "
                "a window and the "
                f"{horizon} of the horizon after it; the longest has {sequences.lengths.max()}. "
                "Take shorter windows, or split at other fractions (--split)."
            )
        parts[part] = cut
    split = (
        _add_future_targets(split, parts, inputs) if horizon else _drop_without_target(split, parts)
    )
    sizes = [len(windows) for windows in split.sequences.values()]
    windows = format_count(sizes[-1], "window" if len(sizes) < 3 else "test window")
    before = f"{sizes[0]:,} training, {sizes[1]:,} validation and " if len(sizes) == 3 else ""
    counts = f"{before}{windows}"
    after = f", each with the {format_count(horizon, 'row')} after it to predict" if horizon else ""
    note = (
        f"Windows of {format_count(options.window, 'row')}, a new one every {stride}{after}: "
        f"{counts}."
    )
    return replace(split, notes=(*split.notes, note))


def _warn_single_sequence(split: TableSplits) -> TableSplits:
    """Say that a single sequence makes for a single update of the weights per epoch."""
    trained = split.sequences["train"]
    if len(trained) > 1 or len(trained.rows) < _FEW_STEPS:
        return split
    note = (
        f"Warning: 1 training sequence of {format_count(len(trained.rows), 'row')}: one update "
        "per epoch. Set "
        "window= (--window) to cut it into many."
    )
    return replace(split, notes=(*split.notes, note))


def _drop_without_target(split: TableSplits, splits: Mapping[str, Sequences]) -> TableSplits:
    """Return the windows that have a target: of one per id all, or those with one in a row."""
    target = split.target
    if not target.per_step:
        target = target.broadcast_to_all_rows()
    with_targets = {
        part: windows.select(windows.any(target.has_target)) for part, windows in splits.items()
    }
    dropped = sum(map(len, splits.values())) - sum(map(len, with_targets.values()))
    notes = (
        (f"Left out: {format_count(dropped, 'window')} without a target in any row.",)
        if dropped
        else ()
    )
    target = replace(target, sequences=concat_sequences(with_targets.values()))
    return replace(split, sequences=with_targets, target=target, notes=(*split.notes, *notes))


def _add_future_targets(
    split: TableSplits, splits: dict[str, Sequences], inputs: InputColumns
) -> TableSplits:
    """Return the windows with the values after each as its targets, at the row it ends with."""
    target, horizon = split.target, split.target.horizon
    count = len(target.outputs)
    first = inputs.stack_first(count)
    y = np.zeros((len(first), horizon * count))
    known, dropped = np.zeros(y.shape, np.bool_), 0
    missing, total = 0, 0
    for part, part_sequences in split.sequences.items():
        following = np.append(part_sequences.rows, np.zeros(horizon, np.int64))
        place = np.empty(len(first), np.int64)
        place[part_sequences.rows] = np.arange(len(part_sequences.rows))
        ends = splits[part].rows[splits[part].ends - 1]
        after = following[place[ends][:, None] + np.arange(1, horizon + 1)]
        values = first[after].reshape(len(ends), horizon * count)
        known[ends], y[ends] = ~np.isnan(values), np.nan_to_num(values)
        there: Bools = np.asarray(known[ends].any(axis=1))
        dropped += int((~there).sum())
        missing += int((~known[ends[there]]).sum())
        total += known[ends[there]].size
        splits[part] = splits[part].select(there)
    if not all(len(windows) for part, windows in splits.items() if part != "valid"):
        raise DataError(
            f"no window of a part has a value to predict in the {format_count(horizon, 'row')} "
            "after it. Take a longer horizon, or fill in missing values."
        )
    notes = [
        f"Task: forecast of the {format_count(horizon, 'row')} after a window, of "
        f"{', '.join(target.outputs)}."
    ]
    if dropped:
        notes.append(f"Left out: {format_count(dropped, 'window')} without a value to predict.")
    if missing:
        notes.append(
            f"{missing:,} of {format_count(total, 'value')} to predict are missing and do not "
            "count."
        )
    outputs = tuple(
        FUTURE_NAME_FORMAT.format(n, k) for k in range(1, horizon + 1) for n in target.outputs
    )
    cut_target = replace(
        target,
        y=y,
        known=known,
        per_step=False,
        outputs=outputs,
        sequences=concat_sequences(splits.values()),
        notes=(*target.notes, *notes),
    )
    return replace(split, target=cut_target, sequences=splits)
