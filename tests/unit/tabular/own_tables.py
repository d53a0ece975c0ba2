"""Small tables made by hand, with what must become of them."""

import csv

import numpy as np

from tauflow.tabular.transform import transform

NAN = float("nan")


def visits(**changes):
    """Return twelve ids of three rows, as a mapping; ``changes`` replace or add columns."""
    ids = [f"p{number:02d}" for number in range(12)]
    rows = range(36)
    columns = {
        "patient": [name for name in ids for _ in range(3)],
        "hours": [0.0, 1.5, 4.0] * 12,
        "a": [float(row) for row in rows],
        "b": [float(row % 5) for row in rows],
        "died": ["yes" if (row // 3) % 2 else "no" for row in rows],
    }
    return {**columns, **changes}


def transform_table(data, table, **options):
    """Return ids and the batch of another table than that of some data."""
    return transform(data.schema, table, **options)


def changed(column, row, value):
    """Return a column of :func:`visits` with another value in one row."""
    cells = list(visits()[column])
    cells[row] = value
    return {column: cells}


def write(path, columns, delimiter=","):
    """Write columns as CSV; NaN and None become empty cells."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(["" if cell is None or cell != cell else cell for cell in row])
    return path


def by_id(data):
    """Return {id: (part name, batch of one sequence, its number of valid steps)}."""
    pieces_by_id = {}
    for part in ("train", "valid", "test"):
        batch = getattr(data, part)
        for place, name in enumerate(data.schema.ids[part]):
            sequence = batch[place : place + 1]
            steps = sequence.x.shape[1] if sequence.mask is None else int(sequence.mask.sum())
            pieces_by_id[name] = (part, sequence, steps)
    return pieces_by_id


def unpadded(data):
    """Return {id: inputs in the units of the table, (steps, I), NaN where not observed}."""
    values = {}
    for name, (_, piece, steps) in by_id(data).items():
        x = data.schema.unscale_inputs(piece.x.double())[0, :steps].numpy()
        if piece.observed is not None:
            x = np.where(piece.observed[0, :steps].numpy(), x, NAN)
        values[name] = x
    return values
