"""The page of what :mod:`benchmarks.truth` has measured."""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]
_PROCESSES = {
    "hawkes1": "Hawkes 1: one exponential kernel",
    "hawkes2": "Hawkes 2: two kernels, one 20 times as fast",
    "self_correcting": "self-correcting: rate exp(t − events so far)",
    "stationary_poisson": "stationary Poisson, rate 1",
    "stationary_renewal": "renewal, log-normal intervals of mean 1, deviation 6",
    "nonstationary_poisson": "Poisson, rate 1 + 0.99 sin(2πt/100)",
    "nonstationary_renewal": "renewal, gamma intervals, in a clock of that rate",
}
_LANGUAGES = {
    "a5": "word problem of A5 (20 / 100)",
    "parity": "parity (40 / 256)",
    "cycle": "cycle of five places (40 / 256)",
    "arithmetic": "arithmetic modulo 5 (40 / 256)",
    "copying": "selective copying (64 / 128)",
}
_EVENT_MODELS = {"neural-hawkes": "neural Hawkes process", "s2p2": "S2P2"}
_CELLS = {"slice": "SLiCE", "lstm": "LSTM", "min-gru": "minGRU", "s6": "S6", "cfc": "CfC"}


def run(arguments: argparse.Namespace) -> None:
    """Write the tables of all runs that are stored into the page."""
    from .truth import read_rows  # which imports this module

    events, words = (
        read_rows(arguments.results / f"truth-{board}.jsonl") for board in ("events", "languages")
    )
    text = arguments.path.read_text(encoding="utf-8")
    for name, table in (("events", make_events(events)), ("languages", make_languages(words))):
        first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(first)
        text = before + first + table + last + rest.partition(last)[2]
    arguments.path.write_text(text, encoding="utf-8")


def make_events(rows: Sequence[Row]) -> str:
    """Return the table of the processes whose streams were drawn."""
    drawn = [row for row in rows if row["streams"] == "drawn"]
    constant = {
        (row["task"], row["seed"]): {
            **row,
            "model": "constant",
            "excess": row["constant_rate_excess"],
        }
        for row in drawn
    }
    columns = {"constant": "constant rate", **_EVENT_MODELS}
    return _make_table(
        [*drawn, *constant.values()],
        _PROCESSES,
        columns,
        "process",
        lambda rows: _mean(rows, "excess", 3),
    )


def make_languages(rows: Sequence[Row]) -> str:
    """Return the table of state tracking."""
    return _make_table(
        rows,
        _LANGUAGES,
        _CELLS,
        "task (lengths)",
        lambda rows: " / ".join(_mean(rows, f"{n}accuracy", 0, 100) for n in ("", "longer_")),
    )


def _make_table(
    rows: Iterable[Row],
    tasks: dict[str, str],
    models: dict[str, str],
    head: str,
    tell: Callable[[Sequence[Row]], str],
) -> str:
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["task"], row["model"]].append(row)
    lines = [f"| {head} | {' | '.join(models.values())} |", f"| --- |{' ---: |' * len(models)}"]
    for task, title in tasks.items():
        cells = [
            tell(groups[task, model]) if (task, model) in groups else "not run" for model in models
        ]
        if any((task, model) in groups for model in models):
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _mean(rows: Sequence[Row], name: str, digits: int, factor: float = 1.0) -> str:
    """Return the mean over seeds, with the deviation of several."""
    if any(row[name] is None for row in rows):
        return "overflows"
    values = factor * np.array([row[name] for row in rows])
    spread = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
    mean = round(float(values.mean()), digits) + 0.0  # without the sign of -0
    return f"{mean:.{digits}f}{spread}"
