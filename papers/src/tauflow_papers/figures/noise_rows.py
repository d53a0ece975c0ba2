"""Stored rows of the table ``gnode-figure-3``: fits of noise, for the figures that show them."""

from collections.abc import Mapping, Sequence
from statistics import stdev

from torch import Tensor

from tauflow.data.registry import load_task
from tauflow_papers.theory import NoiseRow

from .stored_rows import StoredRows

NETWORK_NAMES = ("RNN", "mGRU", "GRU", "nODE", "gnODE")
TAUS, SIZES, UNITS = (1, 3, 10, 30, 100), (10, 32, 100, 316), (10, 32, 100, 316, 1000)
"""Time constants (s), neurons and hidden units of the rows."""


def make_noise_rows(
    stored: StoredRows, network: str, rows: Sequence[tuple[float, str]]
) -> tuple[NoiseRow, ...]:
    """Return the lowest training errors of rows of the table ``gnode-figure-3`` that have runs.

    Args:
        stored: its runs.
        network: their name in the picture.
        rows: what is varied, and the name of the row.
    """
    lowest = []
    for value, name in rows:
        entry = stored.get_row(name)
        errors = tuple(r.valid for r in entry.records if r.valid is not None) if entry else ()
        if entry is None or not errors:
            continue
        recipe = entry.records[0].config["recipe"]
        lowest.append(
            NoiseRow(
                network=network,
                value=float(value),
                mean=sum(errors) / len(errors),
                deviation=stdev(errors) if len(errors) > 1 else 0.0,
                errors=errors,
                lr=recipe["lr"],
                weight_decay=recipe["weight_decay"],
                parameters=entry.records[0].parameters or 0,
                finite=True,
            )
        )
    return tuple(lowest)


def load_path() -> Tensor:
    """Return the path of the table's rows."""
    path: Tensor = load_task("ornstein-uhlenbeck").train.y[0]
    return path


def read_over_tau(stored: StoredRows, row: str) -> tuple[NoiseRow, ...]:
    """Return rows such as d-gnode-tau-3 of all networks, by the time constant."""
    return read_networks(stored, {t: row.format("{}", t) for t in TAUS})


def read_over_size(stored: StoredRows, panel: str) -> tuple[NoiseRow, ...]:
    """Return rows such as e-gnode-hidden-size-32 of all networks, by the neurons."""
    return read_networks(stored, {n: f"{panel}-{{}}-hidden-size-{n}" for n in SIZES})


def read_networks(stored: StoredRows, rows: Mapping[float, str]) -> tuple[NoiseRow, ...]:
    """Return rows of all networks, for whose names they have braces, by what is varied."""
    return tuple(
        row
        for name in NETWORK_NAMES
        for row in make_noise_rows(
            stored, name, [(value, text.format(name.lower())) for value, text in rows.items()]
        )
    )


def read_over_units(stored: StoredRows) -> tuple[NoiseRow, ...]:
    """Return the rows of panel C by the hidden units, for each number of neurons."""
    return tuple(
        row
        for n in SIZES
        for row in make_noise_rows(
            stored, f"N = {n}", [(h, f"c-gnode-hidden-size-{n}-units-{h}") for h in UNITS]
        )
    )
