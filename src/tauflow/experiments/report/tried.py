"""What a table's rows give with other settings: runs that look for the cause of a difference."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tauflow.experiments.run import results
from tauflow.experiments.run.job import job_of
from tauflow.experiments.run.results import DONE, RunRecord
from tauflow.experiments.spec.experiment import READY, Experiment, Row
from tauflow.experiments.spec.variation import VARIED

from .table import show_spread, summarise


@dataclass(frozen=True)
class Tried:
    """Runs of one row with other settings.

    Args:
        row: name of the row.
        changes: what is different, by name of the setting.
        records: the runs, of different seeds.
    """

    row: str
    changes: Mapping[str, Any]
    records: tuple[RunRecord, ...]


def read_tried(experiment: Experiment, results_dir: Path) -> tuple[list[Tried], list[str]]:
    """Return the runs of a table's rows with other settings.

    They are in files of their own, as ``tauflow reproduce TABLE --set`` writes them.

    Returns:
        The runs, by row and setting, and one warning for each line that is torn.

    Raises:
        DataError: a line is whole JSON but not a record.
    """
    ready = {row.name: row for row in experiment.rows if row.status == READY}
    found: dict[tuple[str, str], tuple[dict[str, Any], list[RunRecord]]] = {}
    warnings: list[str] = []
    for path in sorted(results_dir.glob(f"{experiment.name}{VARIED}*.jsonl")):
        records, torn = results.read(path)
        warnings += torn
        for record in records:
            if record.status != DONE or record.test is None or record.row not in ready:
                continue
            changes = _changes(experiment, ready[record.row], record)
            key = record.row, json.dumps(changes, sort_keys=True)
            found.setdefault(key, (changes, []))[1].append(record)
    order = list(ready)
    groups = [Tried(row, said, tuple(runs)) for (row, _), (said, runs) in found.items() if said]
    return sorted(groups, key=lambda one: order.index(one.row)), warnings


def _changes(experiment: Experiment, row: Row, record: RunRecord) -> dict[str, Any]:
    """Return the settings of a run that are not its row's, but for the seed."""
    own = _flat(job_of(experiment, row, record.seed).config)
    run = _flat(record.config)
    return {name: run.get(name) for name in {**own, **run} if own.get(name) != run.get(name)}


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(config["dataset_options"]) | {"dataset": config["dataset"]}
    model = dict(config["model"])
    flat |= model.pop("options") | model
    return flat | dict(config["recipe"])


def told(tried: Iterable[Tried], row: Row, ddof: int) -> str:
    """Return what the runs of a row with other settings gave, in one sentence; empty without."""
    texts = []
    for one in tried:
        if one.row == row.name:
            scores = [record.test for record in one.records if record.test is not None]
            runs = "1 run" if len(scores) == 1 else f"{len(scores)} runs"
            mean, std = summarise(scores, ddof)
            names = ", ".join(f"{name} {value}" for name, value in one.changes.items())
            texts.append(f"{names}: {show_spread(mean, std, None, row.metric)} ({runs})")
    return f"With other settings: {'; '.join(texts)}." if texts else ""
