"""What a report says of a table of a user's own: its columns, its errors, and how to go on."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tauflow.data.card import TaskData
from tauflow.data.table.info import TableInfo
from tauflow.data.table.options import GAP_AHEAD, MEASURED
from tauflow.experiments.run.task import TaskRun

from .answered import Answered
from .document import Pairs

_WORST = 10
_FEATURES = 30
"""How many ids, or features, are listed at most."""


@dataclass(frozen=True)
class Listing:
    """A small table of a report.

    Args:
        title: its heading.
        headers: of the columns, of which the first holds names.
        rows: their texts.
        caption: what they mean.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str


def predict_command(run: TaskRun) -> str:
    """Return the command that uses the model of a run on another table; nothing if there is none.

    Of a forecast with any gaps, the next row is looked for as far ahead as rows are on average.
    """
    info = run.data.table
    if info is None:
        return ""
    words = ["tauflow", "predict", str(run.directory), "--csv", "new.csv", "--out", "answers.csv"]
    if GAP_AHEAD in info.inputs and not info.options.known:
        words += ["--ahead", f"{info.ahead:.4g}"]
    return shlex.join(words)


def understood(data: TaskData) -> Pairs:
    """Return what was made of the columns of a table."""
    info, card = data.table, data.card
    assert info is not None
    options, targets = info.options, info.options.targets
    shares = _missing(data, info)
    told = [f"{name} ({100 * share:.2g} % missing)" if share else name for name, share in shares]
    rest = [f"and {len(told) - _FEATURES} more"] if len(told) > _FEATURES else []
    train, valid, test = card.sizes
    known = [
        ("task", f"{info.task}, one target per {'row' if card.per_step else 'id'}"),
        ("id", options.id),
        ("time", _time(info)),
        ("a gap of 1", card.time_unit),
        ("group", options.group),
        ("target", ", ".join(targets) or "the next values of all features"),
        ("classes", ", ".join(info.outputs[:_FEATURES]) if info.y_scale is None else None),
        ("features", ", ".join(told[:_FEATURES] + rest)),
        ("other inputs", ", ".join(name for name in info.inputs if name not in dict(shares))),
        ("sequences", f"{train} for training, {valid} for validation, {test} for the test"),
        ("split", card.split),
    ]
    return [(name, text) for name, text in known if text]


def _time(info: TableInfo) -> str:
    if info.options.time is None:
        return "none: rows are one step apart"
    kind = "dates, counted in" if info.dated else "numbers, in"
    return f"{info.options.time} ({kind} {info.unit})"


def _missing(data: TaskData, info: TableInfo) -> list[tuple[str, float]]:
    """Return the features, and the share of the rows of all parts in which each is missing."""
    added = {GAP_AHEAD, *map(MEASURED.format, info.inputs)}
    names = [name for name in info.inputs if name not in added]
    rows, absent = 0, torch.zeros(len(names))
    for part in (data.train, data.valid, data.test):
        if part is None:
            continue
        there = torch.ones(part.x.shape[:2], dtype=torch.bool) if part.mask is None else part.mask
        rows += int(there.sum())
        for place, name in enumerate(names):
            if part.observed is not None:
                absent[place] += (~part.observed[..., place] & there).sum()
            elif MEASURED.format(name) in info.inputs:
                measured = part.x[..., info.inputs.index(MEASURED.format(name))] > 0
                absent[place] += (~measured & there).sum()
    return list(zip(names, (absent / max(rows, 1)).tolist(), strict=True))


def errors(found: Answered, data: TaskData) -> list[Listing]:
    """List the error of every target in its own unit; nothing of a single one, or of classes.

    First comes what is far off for how much it varies; of a forecast over a horizon, the next row.
    """
    info = data.table
    assert info is not None
    if info.y_scale is None or info.y_mean is None or len(info.outputs) < 2:
        return []
    ours = (found.predicted - found.truth).square().nanmean(0).sqrt()
    mean = (info.y_mean.to(found.truth) - found.truth).square().nanmean(0).sqrt()
    scores, order = {"model": ours, "training mean": mean}, (ours / info.y_scale).argsort()
    title, caption = "Errors of each target", "the worst first"
    places = order.flip(0).tolist()
    if horizon := data.card.horizon:
        last = info.unscale_inputs(data.test.x[:, -1])[:, : len(ours) // horizon]
        scores["as now"] = (last.repeat(1, horizon) - found.truth).square().nanmean(0).sqrt()
        title, caption = "Errors by horizon", "the next row first; as now: the last row's value"
        places = list(range(len(ours)))
    rows = [[info.outputs[n], *(f"{one[n]:.4g}" for one in scores.values())] for n in places]
    caption = f"Root mean squared test errors in units of the table, {caption}."
    return [Listing(title, ("target", *scores), rows, caption)]


def worst_ids(found: Answered, data: TaskData) -> list[Listing]:
    """List the ids of the test part that are predicted worst."""
    info = data.table
    assert info is not None
    ids = info.ids["test"]
    if len(ids) < 2:
        return []
    if info.y_scale is None:
        at = found.truth.unsqueeze(1)
        each = found.predicted.gather(1, at).squeeze(1)
        scores = _by_owner(each, found.owners, len(ids))
        order = scores.argsort()
        headers = ("id", "chance given to the truth")
        caption = "Test ids whose true class was held for least likely, on average over their rows."
    else:
        scaled = (found.predicted - found.truth) / info.y_scale
        scores = _by_owner(scaled.square().nanmean(1), found.owners, len(ids)).sqrt()
        order = scores.argsort(descending=True)
        headers = ("id", "error")
        caption = "Test ids by root mean squared error, in standard deviations of the targets."
        if len(info.outputs) == 1:
            scores = scores * float(info.y_scale)
            caption = f"Test ids by root mean squared error, in units of {info.outputs[0]!r}."
    rows = [[ids[n], f"{scores[n]:.4g}"] for n in order.tolist() if not scores[n].isnan()]
    return [Listing("Worst ids", headers, rows[:_WORST], caption)]


def _by_owner(scores: Tensor, owners: Tensor, count: int) -> Tensor:
    """Return the mean of scores for each sequence, NaN of one without any."""
    there = ~scores.isnan()
    total = torch.zeros(count, dtype=torch.float64)
    total.index_add_(0, owners[there], scores[there].double())
    return total / torch.bincount(owners[there], minlength=count)
