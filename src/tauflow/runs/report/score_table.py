"""The scores of a run on a table as texts: of the network and of baselines, with intervals."""

from collections.abc import Sequence

from tauflow.runs.baseline_comparison import PredictionScores, TestScores
from tauflow.runs.portfolio import AUTO
from tauflow.runs.results import RunRecord
from tauflow.training.objectives import SINGLE_CLASS_METRICS

from .metric_format import format_metric_name, format_score, get_display_scale

_SHORT_NAMES = {
    "auroc": "AUROC",
    "brier": "Brier score",
    "ece": "calibration error",
    "rmse": "RMSE",
    "mse": "MSE",
    "mae": "MAE",
    "r2": "R²",
}
_SQUARED_METRIC, _ERROR_METRICS = "mse", ("rmse", "mae", "huber")


def make_headers(scores: TestScores) -> list[str]:
    """Return the headings of a table of scores, of which the first column has names."""
    return ["model", *(format_heading(name, scores) for name in scores.metrics)]


def format_heading(name: str, scores: TestScores) -> str:
    """Return the heading of a metric, with the unit of the table if it has that."""
    base, of, target = name.partition(" of ")
    short = _SHORT_NAMES.get(base)
    text = f"{short}{of}{target}" if short else format_metric_name(name)
    if name in _ERROR_METRICS and scores.unit:
        return f"{text}, {scores.unit}"
    return f"{text}, {scores.unit}²" if name == _SQUARED_METRIC and scores.unit else text


def format_values(prediction: PredictionScores, scores: TestScores) -> list[str]:
    """Return a name and its scores, in the order of :func:`make_headers`."""
    return [
        prediction.name,
        *(format_metric_value(prediction.values[name], name) for name in scores.metrics),
    ]


def format_intervals(prediction: PredictionScores, scores: TestScores) -> list[str]:
    """Return the intervals of scores in the order of :func:`make_headers`, if there are any."""
    intervals = [prediction.intervals.get(name) for name in scores.metrics]
    if not any(intervals):
        return []
    texts = [
        ""
        if ends is None
        else f"{format_metric_value(ends[0], name)} to {format_metric_value(ends[1], name)}"
        for ends, name in zip(intervals, scores.metrics, strict=True)
    ]
    return ["", *texts]


def format_metric_value(value: float, metric: str) -> str:
    """Return a score as text: of errors, which have units, four digits."""
    base = metric.partition(" of ")[0]
    if base in (*_ERROR_METRICS, _SQUARED_METRIC):
        return f"{value:.4g}"
    return f"{value:.3f}" if base == "r2" else format_score(value, metric)


def make_tiles(scores: TestScores) -> list[tuple[str, str]]:
    """Return the scores that a report begins with, the first one with its interval."""
    first, *others = scores.metrics[:3]
    ends = format_intervals(scores.network, scores)
    ours = format_values(scores.network, scores)
    beside = f" (95 %: {ends[1]})" if ends and ends[1] else ""
    return [
        (f"test {format_heading(first, scores)}{beside}", ours[1]),
        *(
            (f"test {format_heading(metric, scores)}", text)
            for metric, text in zip(others, ours[2:], strict=False)
        ),
    ]


def make_caption(scores: TestScores, records: Sequence[RunRecord]) -> str:
    """Say what the scores are of, what selected the epoch, and what the intervals are made of."""
    sentences = ["Scores on the test split."]
    if scores.positive:
        names = [
            format_heading(metric, scores)
            for metric in scores.metrics
            if metric in SINGLE_CLASS_METRICS
        ]
        verb = "is" if len(names) == 1 else "are"
        text = " and ".join(names)
        sentences.append(f"{text[:1].upper()}{text[1:]} {verb} of {scores.positive!r}.")
    if scores.unit == "":
        sentences.append("Errors are in standard deviations of each target, averaged over targets.")
    if len(records) == 1 and records[0].row != AUTO:
        sentences.append(_describe_selected_epoch(records[0], scores))
    return " ".join([*sentences, scores.interval_note])


def _describe_selected_epoch(record: RunRecord, scores: TestScores) -> str:
    """Say which epoch the weights are of, with the scores that training saw."""
    text = f"Weights of epoch {record.best_epoch} of {record.epochs}"
    if record.valid is None or record.test is None:
        return f"{text}."
    name = _SHORT_NAMES.get(record.metric) or format_metric_name(record.metric).removesuffix(", %")
    scaled = " of scaled targets" if scores.unit is not None else ""
    valid, test = (
        get_display_scale(record.metric) * score for score in (record.valid, record.test)
    )
    how = "with" if record.config["recipe"].get("select_by") else "selected by"
    return f"{text}, {how} a validation {name}{scaled} of {valid:.4g} (test {test:.4g})."


def describe_better_baseline(scores: TestScores) -> list[str]:
    """Say so in a sentence where the network is not better than the best baseline."""
    best, name = scores.best_baseline, scores.metrics[0]
    if best is None or not scores.is_beaten:
        return []
    ours, theirs = (
        format_metric_value(prediction.values[name], name) for prediction in (scores.network, best)
    )
    heading, percent, _ = format_heading(name, scores).partition(", %")
    of = percent.removeprefix(",")
    model, baseline = scores.network.name, f"{best.name[:1].upper()}{best.name[1:]}"
    if ours == theirs:
        return [f"{baseline} scores as well as {model}: {heading} {theirs}{of}."]
    return [f"{baseline} scores better than {model}: {heading} {theirs}{of} against {ours}{of}."]
