"""Files of finished runs: JSON lines, one for each run of a table."""

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tauflow.errors import DataError
from tauflow.runs.results import RunRecord
from tauflow.runs.time_limits import format_duration

_SCORE_KEYS = ("valid", "test", "criterion")
_MOST_EPOCHS = 32

FAILED = "failed"
STOPPED = "stopped"
"""Status of a run whose time was up; such a record is never kept in a file."""


def find_divergence(record: RunRecord) -> int | None:
    """Return the last epoch of a run that diverged and stopped before its end; else ``None``."""
    recipe = record.config["recipe"]
    if (
        record.epochs is None
        or record.epochs >= record.planned_epochs
        or recipe.get("on_divergence") != "stop"
    ):
        return None
    patience = recipe.get("patience")
    if patience is None or record.best_epoch is None:
        return record.epochs
    stages = len(recipe.get("curriculum") or ()) * (recipe.get("curriculum_epochs") or 0)
    # As BestWeights.is_patience_exhausted; a file may hold no recipe of today.
    has_waited = record.epochs - max(record.best_epoch, stages) >= patience
    return None if has_waited else record.epochs


def format_record(record: RunRecord, name: str = "", split: str = "test") -> str:
    """Return one line about a finished or failed run.

    Args:
        record: the run.
        name: what to call it; by default by its row and seed.
        split: whose score to tell, ``"test"`` or ``"valid"``.
    """
    name = name or f"{record.row}, seed {record.seed}"
    if record.status == FAILED:
        return f"{name}: FAILED: {record.error}"
    score = record.test if split == "test" else record.valid
    number = "not scored" if score is None else f"{score:.4g}"
    epoch = "" if record.epochs is None else f" at epoch {record.best_epoch} of {record.epochs}"
    duration = format_duration(record.seconds or 0.0)
    return f"{name}: {split} {record.metric} {number}{epoch}, {duration}"


def check_writable(path: Path) -> None:
    """Make the folder of a results file, and see that lines can be added, before hours are spent.

    Raises:
        OSError: they cannot.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    place = path if path.exists() else path.parent
    if not os.access(place, os.W_OK) or path.is_dir():
        raise OSError(errno.EACCES, "results cannot be written there", str(path))


def append_record(path: Path, record: RunRecord) -> None:
    """Append a record to a results file, creating it if need be.

    The line goes out in one write to a file opened for appending, so that two programs may write to
    one file, and a program that is killed leaves at most one torn line, which :func:`read_records`
    skips.

    Raises:
        OSError: the line cannot be written, or not as a whole, as on a full disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = record.to_json() + "\n"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        if _is_torn(handle):
            line = "\n" + line  # keep the torn line apart from this one
        rest = memoryview(line.encode())
        while rest:  # a disk that fills up takes a part of it, and fails at the next call only
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(handle)


def _is_torn(handle: int) -> bool:
    """Whether the file has content that does not end with a line break."""
    size = os.lseek(handle, 0, os.SEEK_END)
    if size == 0:
        return False
    os.lseek(handle, size - 1, os.SEEK_SET)
    return os.read(handle, 1) != b"\n"


def compact_history(record: RunRecord) -> RunRecord:
    """Return a record with the part of its history that reports and curves show.

    Of a long run these are the first epoch and every second, fourth, eighth, ... one, at most
    ``_MOST_EPOCHS``, the last and the selected one, and those of the extremes of each score, all
    with six digits. Strides of different runs divide each other, so that curves of runs of
    different lengths have epochs in common. The scores of the record stay exact.
    """
    rows = {row["epoch"]: row for row in record.history}
    last, stride = max(rows, default=0), 1
    while last > stride * _MOST_EPOCHS:
        stride *= 2
    epochs = {record.best_epoch, last, *range(1, last, stride)}
    for key in _SCORE_KEYS:
        scores = {epoch: row[key] for epoch, row in rows.items() if row.get(key) is not None}
        epochs |= {pick(scores, key=scores.__getitem__) for pick in (min, max) if scores}
    shortened = (_shorten(row) for epoch, row in rows.items() if epoch in epochs)
    return replace(record, history=tuple(shortened))


def _shorten(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: float(f"{row[name]:.6g}") if isinstance(row[name], float) else row[name]
        for name in ("epoch", "train_loss", *_SCORE_KEYS)
        if name in row
    }


def read_records(path: Path) -> tuple[list[RunRecord], list[str]]:
    """Read a results file.

    Returns:
        The records in order, and one warning for each line that a killed program left torn.

    Raises:
        DataError: a line is whole JSON but not a record.
    """
    records: list[RunRecord] = []
    warnings: list[str] = []
    if not path.exists():
        return records, warnings
    text = path.read_text(encoding="utf-8", errors="replace")  # a line may be torn inside a letter
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            records.append(RunRecord.from_json(line))
        except json.JSONDecodeError:
            warnings.append(
                f"{path}, line {number} is torn (a program was stopped while writing it); "
                "it is left out, and its run counts as not done."
            )
        except DataError as error:
            raise DataError(
                f"{path}, line {number} is not a run record: {error}. Remove the line, "
                "or read the file with the version of tauflow that wrote it."
            ) from error
    return records, warnings
