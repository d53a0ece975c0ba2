"""Notes on what happened to the rows of a table, as counted where it happened."""

from tauflow._internal.sanitize import format_count

from .options import TableOptions
from .sequences import Sequences
from .table import Table


def make_row_notes(table: Table, sequences: Sequences, options: TableOptions) -> tuple[str, ...]:
    """Return notes on how cells were read, and how many rows were merged and out of order.

    Args:
        table: the table after merging.
        sequences: its rows by id, after sorting.
        options: what the user says of it.
    """
    notes = list(table.notes)
    if table.merged_count:
        keys = "time" if options.id is None else "id and time"
        what, total = "row", len(table) + table.merged_count
        if options.long is not None:
            keys, what = f"{keys.replace(' and', ',')} and variable", "value"
            total = table.merged_count + sum(
                int((~table.find_missing(v)).sum()) for v in table.variables
            )
        notes.append(
            f"Merged: {table.merged_count:,} of {format_count(total, what)}, with the same {keys} "
            f"as an earlier one (duplicates={options.duplicates!r})."
        )
    if sequences.unsorted:
        whose = "" if options.id is None else " of the same id"
        notes.append(
            f"Sorted by time (sort=True): {sequences.unsorted:,} of "
            f"{format_count(len(sequences.rows), 'row')} came earlier than the row before{whose}."
        )
    return tuple(notes)
