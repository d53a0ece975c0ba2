"""Series and indexes of pandas that hold the ids or times of sequences."""

from collections.abc import Sequence
from typing import Any

from tauflow.errors import DataError, TimeError

from .times import parses_as_date


def convert_series(X: Any, *, is_series: bool) -> Any:
    """Return frames for Series of pandas, which are sequences of one feature."""
    if is_series and _is_series(X):
        return X.rename("value" if X.name is None else X.name).to_frame()
    if isinstance(X, list) and X and all(_is_series(part) for part in X):
        return [part.rename("value" if part.name is None else part.name).to_frame() for part in X]
    return X


def _is_series(part: Any) -> bool:
    return hasattr(part, "to_frame") and hasattr(part, "index") and not hasattr(part, "columns")


def read_index(
    X: Any, columns: dict[str, Any], arrays: dict[str, Any], *, is_series: bool
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a frame of pandas without an index to read, and what it says of the columns.

    Levels that are named as id or time become columns. Dates and durations are the times where
    nothing else is named, of one series too. Of one step for each of several sequences it names
    these.
    """
    index: Any = getattr(X, "index", None)
    if not hasattr(index, "nlevels"):
        return X, columns, arrays
    id, time = columns.get("id"), columns.get("time")
    levels = [name for name in index.names if name in (id, time) and name not in X.columns]
    levels = [name for name in levels if name is not None]
    X = X.reset_index(level=levels) if levels else X
    has_array = any(arrays[name] is not None for name in ("dt", "t"))
    if len(levels) == index.nlevels or (has_array and not columns):
        return X, columns, arrays
    times, name = _to_times(X.index), time or X.index.name or "index"
    is_read = bool(columns) or is_series
    if is_read and times is not None and name not in X.columns and X.index.name in (None, name):
        return X.set_axis(times).reset_index(names=name), {**columns, "time": name}, arrays
    if is_read or X.index.nlevels > 1:
        _check_index(X, "X", has_times=time is not None)
    return X, columns, arrays


def read_indexes(X: Sequence[Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with the times in the indexes of data frames, if they hold times."""
    indexes = [getattr(frame, "index", None) for frame in X]
    if any(arrays[name] is not None for name in ("dt", "t")):
        return arrays
    times = [_to_times(index) for index in indexes]
    timed = [part is not None for part in times]
    if all(timed):
        return {**arrays, "t": times}
    if any(timed):
        raise TimeError(
            f"X[{timed.index(False)}] has no times in its index, and others have. Give all of them "
            "some."
        )
    for number, frame in enumerate(X):
        _check_index(frame, f"X[{number}]")
    return arrays


def _to_times(index: Any) -> Any:
    """Return an index of pandas as dates or durations; ``None`` if it holds neither."""
    import pandas as pd  # which made the index

    kind = getattr(index, "inferred_type", "")
    if kind == "period":
        return index.to_timestamp()
    if kind in ("datetime64", "datetime", "date"):
        return pd.DatetimeIndex(index)
    if kind in ("timedelta64", "timedelta"):
        return pd.TimedeltaIndex(index)
    return None


def _check_index(frame: Any, where: str, *, has_times: bool = False) -> None:
    """Raise :class:`DataError` if a frame of pandas has an index that says more than its rows do.

    Numbers of rows, and names of rows that are all different and no dates, are left out.
    """
    index = getattr(frame, "index", None)
    unread = [name for name in getattr(index, "names", ()) if name not in (None, *frame.columns)]
    named = ", ".join(map(repr, unread))
    if getattr(index, "nlevels", 1) > 1:
        named = named or "of several levels"
    elif not (named or has_times or index is None or _is_numbering(index)):
        named = f"without a name that holds {index[0]}"
    if named:
        raise DataError(
            f"{where} has the index {named}, which is not read. Name its levels as id= and time=, "
            "make columns of them, reset_index(), or leave them out, reset_index(drop=True). Dates "
            "and durations alone are the times."
        )


def _is_numbering(index: Any) -> bool:
    if index.inferred_type == "string":
        return bool(index.is_unique) and not parses_as_date(index[0])
    return index.inferred_type in ("integer", "boolean", "empty")
