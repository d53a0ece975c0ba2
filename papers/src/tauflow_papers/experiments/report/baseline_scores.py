"""What predictions without learning score on the data of published tables, kept with the results.

Scoring them needs the data, showing them a small file only: ``baselines.json``, a list with an
entry for every data set, set of options and metric.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.json_io import parse_json
from tauflow.data.registry import DATASETS, is_available
from tauflow.errors import DataError
from tauflow.runs.baselines import score_baselines
from tauflow.runs.job import Say, load_dataset, say_nothing
from tauflow.runs.report.metric_format import format_score
from tauflow_papers.experiments.spec.experiment import Experiment, Row

from .next_step_baselines import score_next_step_baselines
from .query_baselines import score_boosting

BASELINES_FILE = "baselines.json"

BaselineKey = tuple[str, str, str]
"""Data set, options of its loader as JSON, metric."""
BaselineScores = Mapping[str, float]


def _make_key(row: Row) -> BaselineKey:
    return row.part.dataset, json.dumps(dict(row.part.options), sort_keys=True), row.metric


def read_baseline_scores(path: Path) -> dict[BaselineKey, BaselineScores]:
    """Read what was scored; nothing if there is no such file.

    Raises:
        DataError: the file holds something else.
    """
    if not path.is_file():
        return {}
    try:
        return {
            (entry["dataset"], json.dumps(entry["options"], sort_keys=True), entry["metric"]): {
                str(name): float(score) for name, score in entry["scores"].items()
            }
            for entry in parse_json(path.read_bytes())
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path} holds no scores of naive baselines ({error}). Remove it, and write it "
            "again with 'tauflow report --baselines'."
        ) from error


def update_baseline_scores(
    experiments: Iterable[Experiment],
    path: Path,
    *,
    data: Path | None = None,
    say: Say = say_nothing,
) -> None:
    """Score naive baselines on the test parts of tables, and keep them; what is there stays.

    Args:
        experiments: the tables.
        path: the file.
        data: folder of the data files.
        say: called with what is scored, and for which data sets the files are missing.

    Raises:
        DataError: the file, or one of a data set, holds something else.
    """
    baseline_scores = read_baseline_scores(path)
    rows = {
        _make_key(row): row for experiment in experiments for row in experiment.rows if row.metric
    }
    for key, row in sorted(rows.items()):
        name = row.part.dataset
        if key in baseline_scores or name not in DATASETS:
            continue
        if not is_available(name, data):
            say(f"{name}: not here, see 'tauflow data get {name}'.")
            continue
        loaded = load_dataset(row.part, data)
        scores = dict(score_baselines(loaded, row.metric))
        if loaded.card.query_targets:
            scores |= {"boosting of last values": score_boosting(loaded, row.metric)}
        elif loaded.card.forecast and loaded.card.per_step:
            scores |= score_next_step_baselines(loaded, row.metric)
        say(f"{name} {dict(row.part.options) or ''}: {format_baseline_scores(scores, row.metric)}.")
        baseline_scores[key] = scores
        entries = [
            {"dataset": dataset, "options": json.loads(options), "metric": metric, "scores": values}
            for (dataset, options, metric), values in sorted(baseline_scores.items())
        ]
        write_atomically(path, (json.dumps(entries, indent=1) + "\n").encode())


def describe_baselines(
    experiment: Experiment, scored: Mapping[BaselineKey, BaselineScores]
) -> list[str]:
    """Return a line for each part of a table that was scored, in the table's order."""
    lines = {}
    for row in experiment.rows:
        if scores := scored.get(_make_key(row)):
            part = f" ({row.part.name})" if row.part.name else ""
            lines[row.part.name] = (
                f"Without learning{part}: {format_baseline_scores(scores, row.metric)}."
            )
    return list(lines.values())


def format_baseline_scores(scores: BaselineScores, metric: str) -> str:
    """Return names and scores as words."""
    return "; ".join(f"{name} {format_score(score, metric)}" for name, score in scores.items())
