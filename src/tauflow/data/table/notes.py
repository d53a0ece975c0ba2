"""Notes on what happened to the rows of a table, as counted where it happened."""

from .frames import Sequences
from .options import TableOptions
from .sheet import Sheet


def notes_on_rows(sheet: Sheet, sequences: Sequences, options: TableOptions) -> tuple[str, ...]:
    """Return notes on how cells were read, and how many rows were merged and out of order.

    Args:
        sheet: the table after merging.
        sequences: its rows by id, after sorting.
        options: what the user says of it.
    """
    notes = list(sheet.notes)
    if sheet.merged:
        keys = "time" if options.id is None else "id and time"
        what, total = "rows", len(sheet) + sheet.merged
        if options.long is not None:
            keys, what = f"{keys.replace(' and', ',')} and variable", "values"
            total = sheet.merged + sum(int((~sheet.missing(v)).sum()) for v in sheet.variables)
        notes.append(
            f"{sheet.merged:,} of {total:,} {what} have the same {keys} as an earlier "
            f"one, and are merged into it (duplicates={options.duplicates!r})."
        )
    if sequences.unsorted:
        whose = "" if options.id is None else " of the same id"
        notes.append(
            f"{sequences.unsorted:,} of {len(sequences.rows):,} rows are earlier than the row "
            f"before{whose}; the rows are sorted by time (sort=True)."
        )
    return tuple(notes)
