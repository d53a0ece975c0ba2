"""Remarks on rows whose numbers are off: what was looked into, kept beside the results."""

from collections.abc import Mapping
from pathlib import Path

from tauflow._internal.registry import suggest_name
from tauflow.errors import SpecificationError
from tauflow.runs.toml_files import read_toml
from tauflow_papers.experiments.spec.experiment import Experiment

REMARKS_FILE = "remarks.toml"
MISSING_REMARK = "not looked into yet"

TABLES_KEY = "tables"
"""What is said of whole tables, in the place of a table's name."""

Remarks = Mapping[str, Mapping[str, str]]
"""Remarks by table and row; those of :data:`TABLES_KEY` by table."""


def read_remarks(path: Path) -> Remarks:
    """Read the remarks, a table for each published table and in it a text for each row::

        [cfc-table-7]
        cfc-nogate = "Better than published: the same with the released script's initialisation."

    In the table ``tables``, a text says of a whole table why it has no results.

    Args:
        path: the file; without it there are no remarks.

    Raises:
        SpecificationError: the file is not TOML, or has another form.
    """
    if not path.is_file():
        return {}
    remarks = read_toml(path)
    for table, rows in remarks.items():
        if not isinstance(rows, dict) or not all(isinstance(v, str) for v in rows.values()):
            raise SpecificationError(
                f"{path}: {table!r} must be a table of texts by row, such as\n[{table}]\n"
                'cfc = "What was looked into."'
            )
    return remarks


def check_remarks(path: Path, remarks: Remarks, experiments: Mapping[str, Experiment]) -> None:
    """Refuse remarks that no report would ever show.

    Args:
        path: their file, for messages.
        remarks: what it holds.
        experiments: every known table by name.

    Raises:
        SpecificationError: a table or row does not exist.
    """
    for table in [*remarks.get(TABLES_KEY, {}), *(name for name in remarks if name != TABLES_KEY)]:
        if table not in experiments:
            raise SpecificationError(
                f"{path}: there is no table {table!r}.{suggest_name(table, experiments)} "
                f"Known: {', '.join(sorted(experiments))}."
            )
    for table, rows in remarks.items():
        if table == TABLES_KEY:
            continue
        known = [row.name for row in experiments[table].rows]
        for row in rows:
            if row not in known:
                raise SpecificationError(
                    f"{path}: {table} has no row {row!r}.{suggest_name(row, known)} "
                    f"Known: {', '.join(known)}."
                )
