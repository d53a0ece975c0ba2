"""The scores of a run on a table as texts: of the network and of baselines, with intervals."""

from collections.abc import Sequence

from tauflow.runs.measured import OF_ONE_CLASS
from tauflow.runs.results import RunRecord
from tauflow.runs.scored import Scored, TestScores

from .metric_text import scale_of, show_number, unit

_SHORT = {
    "auroc": "AUROC",
    "brier": "Brier score",
    "rmse": "RMSE",
    "mse": "MSE",
    "mae": "MAE",
    "r2": "R²",
}
_SQUARED, _PLAIN = "mse", ("rmse", "mae", "huber")


def headers(scores: TestScores) -> list[str]:
    """Return the headings of a table of scores, of which the first column has names."""
    return ["model", *(label(name, scores) for name in scores.metrics)]


def label(name: str, scores: TestScores) -> str:
    """Return the heading of a metric, with the unit of the table if it has that."""
    text = _SHORT.get(name) or unit(name)
    if name in _PLAIN and scores.unit:
        return f"{text}, {scores.unit}"
    return f"{text}, {scores.unit}²" if name == _SQUARED and scores.unit else text


def values(one: Scored, scores: TestScores) -> list[str]:
    """Return a name and its scores, in the order of :func:`headers`."""
    return [one.name, *(show(one.values[name], name) for name in scores.metrics)]


def intervals(one: Scored, scores: TestScores) -> list[str]:
    """Return the intervals of scores, in the order of :func:`headers`; nothing if none has one."""
    found = [one.intervals.get(name) for name in scores.metrics]
    if not any(found):
        return []
    texts = [
        "" if ends is None else f"{show(ends[0], name)} to {show(ends[1], name)}"
        for ends, name in zip(found, scores.metrics, strict=True)
    ]
    return ["", *texts]


def show(value: float, metric: str) -> str:
    """Return a score as text: of errors, which have units, four digits."""
    if metric in (*_PLAIN, _SQUARED):
        return f"{value:.4g}"
    return f"{value:.3f}" if metric == "r2" else show_number(value, metric)


def tiles(scores: TestScores) -> list[tuple[str, str]]:
    """Return the scores that a report begins with, the first one with its interval."""
    first, *others = scores.metrics[:3]
    ends = intervals(scores.network, scores)
    ours = values(scores.network, scores)
    beside = f" (95 %: {ends[1]})" if ends and ends[1] else ""
    return [
        (f"test {label(first, scores)}{beside}", ours[1]),
        *(
            (f"test {label(one, scores)}", text)
            for one, text in zip(others, ours[2:], strict=False)
        ),
    ]


def caption(scores: TestScores, records: Sequence[RunRecord]) -> str:
    """Say what the scores are of, what selected the epoch, and what the intervals are made of."""
    told = ["Scores on the test part."]
    if scores.positive:
        names = [label(one, scores) for one in scores.metrics if one in OF_ONE_CLASS]
        verb = "is" if len(names) == 1 else "are"
        text = " and ".join(names)
        told.append(f"{text[:1].upper()}{text[1:]} {verb} of {scores.positive!r}.")
    if scores.unit == "":
        told.append("Errors are in standard deviations of each target, averaged over targets.")
    if len(records) == 1:
        told.append(_selected(records[0], scores))
    return " ".join([*told, scores.how])


def _selected(record: RunRecord, scores: TestScores) -> str:
    """Say which epoch the weights are of, with the scores that training saw."""
    text = f"Weights of epoch {record.best_epoch} of {record.epochs}"
    if record.valid is None or record.test is None:
        return f"{text}."
    name = _SHORT.get(record.metric) or unit(record.metric).removesuffix(", %")
    scaled = " of scaled targets" if scores.unit is not None else ""
    valid, test = (scale_of(record.metric) * one for one in (record.valid, record.test))
    how = "with" if record.config["recipe"].get("select_by") else "selected by"
    return f"{text}, {how} a validation {name}{scaled} of {valid:.4g} (test {test:.4g})."


def verdict(scores: TestScores) -> list[str]:
    """Say so in a sentence where the network is not better than the best baseline."""
    best, name = scores.best, scores.metrics[0]
    if best is None or not scores.is_beaten:
        return []
    ours, theirs = (show(one.values[name], name) for one in (scores.network, best))
    heading, percent, _ = label(name, scores).partition(", %")
    of = percent.removeprefix(",")
    model, baseline = scores.network.name, f"{best.name[:1].upper()}{best.name[1:]}"
    if ours == theirs:
        return [f"{baseline} scores as well as {model}: {heading} {theirs}{of}."]
    return [f"{baseline} scores better than {model}: {heading} {theirs}{of} against {ours}{of}."]
