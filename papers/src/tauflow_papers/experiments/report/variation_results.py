"""What a table's rows give with other settings: runs that look for the cause of a difference."""

import glob
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tauflow.runs.results import DONE, RunRecord
from tauflow.training.metrics import METRICS
from tauflow_papers.experiments.run import result_file
from tauflow_papers.experiments.run.grid_search import get_validation_score, make_search_jobs
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.spec.experiment import READY, Experiment, Row
from tauflow_papers.experiments.spec.variation import VARIATION_INFIX

from .table import compute_mean_std, format_mean_std


@dataclass(frozen=True)
class VariationRuns:
    """Runs of one row with other settings.

    Args:
        row: name of the row.
        changes: what is different, by name of the setting.
        records: the runs, of different seeds.
    """

    row: str
    changes: Mapping[str, Any]
    records: tuple[RunRecord, ...]


def read_variations(
    experiment: Experiment, results_dir: Path, known: Collection[str]
) -> tuple[list[VariationRuns], list[str]]:
    """Return the runs of a table's rows with other settings.

    ``tauflow reproduce TABLE --set`` writes them to separate files. Of a row that searches, the
    runs of the setting with the best validation score are returned.

    Args:
        experiment: the table.
        results_dir: folder of the results.
        known: names of all tables, whose files are their own.

    Returns:
        The runs, by row and setting, and one warning for each line that is torn.

    Raises:
        DataError: a line is whole JSON but not a record.
    """
    ready = {row.name: row for row in experiment.rows if row.status == READY}
    groups: list[VariationRuns] = []
    warnings: list[str] = []
    for path in sorted(results_dir.glob(f"{glob.escape(experiment.name)}{VARIATION_INFIX}*.jsonl")):
        if path.stem in known or not path.is_file():
            continue
        records, torn = result_file.read_records(path)
        warnings += torn
        for name, row in ready.items():
            runs = [r for r in records if r.row == name and r.status == DONE]
            groups += _group_row_runs(experiment, row, runs)
    return sorted(
        _merge_variations(groups), key=lambda variation: list(ready).index(variation.row)
    ), warnings


def _group_row_runs(
    experiment: Experiment, row: Row, runs: Iterable[RunRecord]
) -> list[VariationRuns]:
    """Return a row's runs of one file, by what is different in them.

    Of a row that searches, these are the runs of the setting that it would take: by the metric
    that selects epochs, on the validation part, of the first seed. Runs on the data that it
    searches on do not belong to the row.
    """
    groups: dict[str, list[RunRecord]] = {}
    searching = _get_search_data_options(experiment, row)
    for record in runs:
        options = _flatten_config(record.config)
        of_search = searching and all(options.get(name) == v for name, v in searching.items())
        if record.test is not None and not of_search:
            key = json.dumps(_find_changes(experiment, row, record), sort_keys=True)
            groups.setdefault(key, []).append(record)
    groups.pop("{}", None)
    if row.search and len(groups) > 1:
        best = max(groups, key=lambda key: _get_rank_score(groups[key], row.metric))
        groups = {best: groups[best]}
    return [VariationRuns(row.name, json.loads(key), tuple(runs)) for key, runs in groups.items()]


def _get_search_data_options(experiment: Experiment, row: Row) -> dict[tuple[str, str], Any]:
    """Return the data options of a row's search that are not those of the row itself."""
    if row.search_part is None:
        return {}
    settings_of_table = _flatten_config(make_job(experiment, row, 0, row.search[0]).config)
    other = _flatten_config(make_search_jobs(experiment, row)[0].config)
    return {k: v for k, v in other.items() if k[0] == "data" and settings_of_table.get(k) != v}


def _get_rank_score(records: Iterable[RunRecord], metric: str) -> float:
    """Return what the first seed of a setting says for it, the higher the better."""
    first = min(records, key=lambda record: record.seed)
    value = get_validation_score(first)
    metric = first.config["recipe"].get("select_by") or metric
    if value is None or math.isnan(value):
        return -math.inf
    return value if METRICS[metric].higher_is_better else -value


def _merge_variations(variations: Iterable[VariationRuns]) -> list[VariationRuns]:
    """Join what is the same in several files; a run counts once."""
    groups: dict[tuple[str, str], dict[str, RunRecord]] = {}
    for variation in variations:
        key = variation.row, json.dumps(variation.changes, sort_keys=True)
        groups.setdefault(key, {}).update({run.config_hash: run for run in variation.records})
    return [
        VariationRuns(
            row, json.loads(changes), tuple(sorted(runs.values(), key=lambda run: run.seed))
        )
        for (row, changes), runs in groups.items()
    ]


def _find_changes(experiment: Experiment, row: Row, record: RunRecord) -> dict[str, Any]:
    """Return the settings of a run that are not its row's, but for the seed.

    Of a row that searches, what it searches is told, too. What a run does not say had no name yet
    when it was made.
    """
    planned = _flatten_config(make_job(experiment, row, record.seed).config)
    run = _flatten_config(record.config)
    changes = {name: value for name, value in run.items() if planned.get(name) != value}
    if changes:
        changes.update(
            {name: run[name] for name in get_searched_settings(experiment, row) if name in run}
        )
    places = Counter(name for _, name in changes)
    return {
        name if places[name] == 1 else f"{place}.{name}": value
        for (place, name), value in changes.items()
    }


def get_searched_settings(experiment: Experiment, row: Row) -> dict[tuple[str, str], list[Any]]:
    """Return the settings that are not the same wherever a row searches, with all their values."""
    tried = [
        _flatten_config(make_job(experiment, row, 0, setting).config) for setting in row.search
    ]
    values = {name: [setting[name] for setting in tried] for name in (tried[0] if tried else ())}
    return {
        name: choices
        for name, choices in values.items()
        if any(value != choices[0] for value in choices)
    }


def is_at_search_boundary(experiment: Experiment, row: Row, record: RunRecord) -> bool:
    """Whether a number that a row searched is the smallest or the largest of those tried."""
    run = _flatten_config(record.config)
    numbers = {
        name: values
        for name, values in get_searched_settings(experiment, row).items()
        if all(isinstance(value, int | float) for value in values)
    }
    return any(run.get(name) in (min(values), max(values)) for name, values in numbers.items())


def _flatten_config(config: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Return the settings of a configuration by place and name."""
    model = dict(config.get("model") or {})
    places = {
        "data": {**(config.get("dataset_options") or {}), "dataset": config.get("dataset")},
        "model": {**(model.pop("options", None) or {}), **model},
        "recipe": config.get("recipe") or {},
    }
    return {(place, k): v for place, values in places.items() for k, v in values.items()}


def describe_variations(variations: Iterable[VariationRuns], row: Row, ddof: int) -> str:
    """Return what the runs of a row with other settings gave, in one sentence; empty without."""
    texts = []
    for variation in variations:
        if variation.row == row.name:
            scores = [record.test for record in variation.records if record.test is not None]
            runs = "1 run" if len(scores) == 1 else f"{len(scores)} runs"
            mean, std = compute_mean_std(scores, ddof)
            names = ", ".join(f"{name} {value}" for name, value in variation.changes.items())
            texts.append(f"{names}: {format_mean_std(mean, std, None, row.metric)} ({runs})")
    return f"With other settings: {'; '.join(texts)}." if texts else ""
