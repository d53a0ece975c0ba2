"""Show a run again, from what is on disk."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tauflow._internal.json_io import parse_json
from tauflow._internal.registry import suggest_name
from tauflow._internal.sanitize import format_count
from tauflow.errors import CheckpointError, UnknownNameError
from tauflow.predict.files import ESTIMATOR_FILE
from tauflow.runs.job import RECORD_FILE
from tauflow.runs.report.metric_format import format_metric_name, format_score
from tauflow.runs.results import RunRecord
from tauflow.runs.task import REPORT_FILE

from .forecast import FORECAST_SCORES_FILE, make_forecast_command
from .output import print_line, print_record, print_table

Epoch = Mapping[str, Any]
_RUN_FILES = ("run.json", RECORD_FILE, ESTIMATOR_FILE)
"""One of which a run has; of an ensemble each network has a ``run.json``."""


def show_run(run: str, runs: Path) -> None:
    """Print what is known of a run.

    Args:
        run: its directory, or its name below ``runs``.
        runs: the folder of runs.

    Raises:
        UnknownNameError: there is no such run.
        CheckpointError: a file of the run is damaged.
    """
    if not show_run_if_there(run, runs):
        known = list_runs(runs)
        raise UnknownNameError(
            f"there is no run {run!r}.{suggest_name(run, known)} Known: {', '.join(known)}."
        )


def show_run_if_there(run: str, runs: Path) -> bool:
    """Print what is known of a run, if there is one of this name, and return whether there is."""
    for directory in (Path(run), runs / run):
        if any((directory / name).is_file() for name in _RUN_FILES):
            _show_run(directory)
            return True
    return False


def list_runs(runs: Path) -> list[str]:
    """Return the names of the runs in a folder."""
    folders = {path.parent for name in _RUN_FILES for path in runs.glob(f"*/*/{name}")}
    return sorted(str(path.relative_to(runs)) for path in folders)


def _show_run(directory: Path) -> None:
    record = directory / RECORD_FILE
    if (directory / ESTIMATOR_FILE).is_file():
        _show_forecaster(directory)
        return
    if not record.is_file():
        _show_without_record(directory)
        return
    try:
        run = RunRecord.from_json(record.read_text(encoding="utf-8", errors="replace"))
    except ValueError as error:
        raise CheckpointError(
            f"{record} is damaged: {error}. Delete it and give the run's command again, with "
            "--resume."
        ) from error
    print_record(run)
    _print_epochs(run.history, run.metric)
    print_line(f"Run:    {directory}")
    report = directory / REPORT_FILE
    if report.is_file():
        print_line(f"Report: {report.resolve()}")


def _show_forecaster(directory: Path) -> None:
    """Print the scores of a run of 'tauflow forecast', and what to do with it."""
    scores = directory / FORECAST_SCORES_FILE
    if scores.is_file():
        with scores.open(newline="", encoding="utf-8", errors="replace") as file:
            headers, *rows = csv.reader(file)
        cells = [[_format_cell(cell) for cell in row] for row in rows]
        print_table(headers, cells, numbers=range(1, len(headers)))
    print_line(f"Run:    {directory}")
    print_line(f"Next:   {make_forecast_command(directory)}")


def _format_cell(cell: str) -> str:
    try:
        return f"{float(cell):.4g}"
    except ValueError:
        return cell


def _show_without_record(directory: Path) -> None:
    """Say how far a run came that was stopped or still runs, or that no command began.

    Only commands leave a record of a finished run; ``tauflow.train`` leaves its log.
    """
    file, history = directory / "run.json", _read_log(directory / "log.jsonl")
    try:
        begun = parse_json(file.read_bytes())
        planned, metric = int(begun["recipe"]["epochs"]), str(begun.get("metric", ""))
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{file} is damaged. Restore it from a copy, or delete {directory} and train again."
        ) from error
    trouble = directory / "error.txt"
    if len(history) >= planned and not trouble.is_file():
        print_line(f"{directory} has trained all of its {format_count(planned, 'epoch')}:")
        _print_epochs(history, metric)
        print_line(
            "A command that was stopped at its end has still to be given again, for its record."
        )
        return
    print_line(f"{directory} is not finished: {len(history)} of {format_count(planned, 'epoch')}.")
    if trouble.is_file():
        lines = trouble.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        print_line(f"It failed: {lines[-1] if lines else 'no message'}")
    print_line("Give its command again to continue; 'tauflow run' needs --resume for that.")


def _read_log(log: Path) -> list[Epoch]:
    """Return the epochs of a log, up to a line that is being written."""
    history: list[Epoch] = []
    lines = log.read_bytes().splitlines() if log.is_file() else []
    for line in lines:
        try:
            row = parse_json(line)
        except ValueError:
            break
        if not isinstance(row, dict) or "epoch" not in row:
            break
        history.append(row)
    return history


def _print_epochs(history: Sequence[Epoch], metric: str) -> None:
    """Print the scores after epochs, in the unit of the table of the run's scores."""
    rows = [
        [
            str(row["epoch"]),
            _format_number(row.get("train_loss")),
            *(format_score(row.get(part), metric) for part in ("valid", "test")),
        ]
        for row in _subsample_epochs(history)
    ]
    headers = ("epoch", "training loss", "validation", "test")
    print_table(headers, rows, title=format_metric_name(metric), numbers=range(4))


def _subsample_epochs(history: Sequence[Epoch], most: int = 12) -> list[Epoch]:
    """Return at most about a dozen epochs, the first and the last among them."""
    step = max(1, -(-len(history) // most))
    epochs = list(history[::step])
    return epochs if not history or epochs[-1] is history[-1] else [*epochs, history[-1]]


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
