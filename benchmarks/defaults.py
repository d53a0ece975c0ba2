"""What defaults reach on six real tasks, beside gradient boosting and trivial answers.

Every network is an estimator as it comes: nothing but the model is said. Boosting is scikit-learn's
HistGradientBoosting as it comes, on summaries of each sequence. Settings were chosen on other data
than these test parts, see docs/comparison.md, but for the five folds of a classifier and the limit
of its inputs, which were chosen on the stays of ``physionet``.
"""

import argparse
import io
import json
import sys
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, average_precision_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold

from tauflow.batch import SequenceBatch
from tauflow.data.summary_features import compute_summary_features
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor
from tauflow.runs.results import describe_machine, get_versions

Array = NDArray[Any]
Scores = dict[str, float]
MODELS = ("gru-d", "cfc", "gru")
BOOSTING = "gradient boosting"
STAYS = 1000
_DAY = 24
_STATIC = ("Age", "Gender", "Height", "ICUType")


@dataclass(frozen=True)
class Sequences:
    """A task with one target per sequence.

    Args:
        title: of the task.
        X: features of each, (T_i, I), NaN where missing.
        t: times of each, (T_i,).
        y: targets, (N,).
        folds: pairs of training and test sequences.
        scored: scores of predictions: probabilities of classes, (N, K), or numbers, (N,).
        trivial: name and answer of what needs no learning, given training targets and test rows.
    """

    title: str
    X: Sequence[Array]
    t: Sequence[Array]
    y: Array
    folds: Sequence[tuple[Array, Array]]
    scored: Callable[[Array, Array], Scores]
    trivial: dict[str, Callable[[Array, Array], Array]]
    classes: bool = field(default=True, kw_only=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("data", type=Path, help="folder of the data files")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep both numbers and text under ``--results``."""
    warnings.simplefilter("ignore")  # features that a fold never measures
    torch.set_num_threads(1)
    found = {}
    for name in arguments.tasks:
        title, rows = TASKS[name](arguments.data, arguments.models)
        found[name] = {"title": title, "scores": rows}
        print(table_of(title, rows), flush=True)
    texts = [table_of(one["title"], one["scores"]) for one in found.values()]
    facts = {"tasks": found, "machine": describe_machine(), "versions": get_versions()}
    arguments.results.mkdir(parents=True, exist_ok=True)
    stem = arguments.results / f"defaults-{date.today().isoformat()}"
    stem.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    told = ", ".join(
        f"{key} {value}" for key, value in {**describe_machine(), **get_versions()}.items()
    )
    text = "\n".join([f"# Defaults on real tasks, {date.today().isoformat()}", "", *texts, told])
    stem.with_suffix(".md").write_text(text + "\n", encoding="utf-8")


def table_of(title: str, rows: dict[str, list[Scores]]) -> str:
    """Return a Markdown table: mean and standard deviation over the folds of each score."""
    names = list(next(iter(rows.values()))[0])
    lines = [title, "", f"| | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    for label, scores in rows.items():
        cells = []
        for name in names:
            values = [one[name] for one in scores]
            spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.3f}{spread}")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _compared(task: Sequences, models: Sequence[str]) -> tuple[str, dict[str, list[Scores]]]:
    """Return the scores of everything on each fold, with the seconds of the processor."""
    rows: dict[str, list[Scores]] = {}

    def note(name: str, test: Array, answer: Callable[[], Array]) -> None:
        started = time.process_time()
        found = task.scored(task.y[test], answer())
        rows.setdefault(name, []).append({**found, "CPU s": time.process_time() - started})
        print(name, rows[name][-1], file=sys.stderr, flush=True)

    summaries = _summaries(task.X, task.t)
    for fold, (train, test) in enumerate(task.folds):
        for name, constant in task.trivial.items():
            note(name, test, partial(constant, task.y[train], test))
        note(BOOSTING, test, partial(_boosted, task, summaries, train, test))
        for model in models:
            note(f"`{model}`", test, partial(_learned, task, model, train, test, seed=fold))
    return task.title, rows


def _summaries(X: Sequence[Array], t: Sequence[Array]) -> Array:
    longest, size = max(map(len, X)), X[0].shape[1]
    x = np.full((len(X), longest, size), np.nan)
    dt, mask = np.zeros(x.shape[:2]), np.zeros(x.shape[:2], np.bool_)
    for place, (rows, times) in enumerate(zip(X, t, strict=True)):
        x[place, : len(rows)] = rows
        dt[place, : len(rows)] = np.diff(times, prepend=times[:1])
        mask[place, : len(rows)] = True
    batch = SequenceBatch(
        torch.from_numpy(np.nan_to_num(x)),
        torch.zeros(len(X)),
        dt=torch.from_numpy(dt),
        mask=torch.from_numpy(mask),
        observed=torch.from_numpy(~np.isnan(x)),
    )
    return compute_summary_features(batch).values


def _boosted(task: Sequences, summaries: Array, train: Array, test: Array) -> Array:
    if task.classes:
        classifier = HistGradientBoostingClassifier(random_state=0)
        fitted = classifier.fit(summaries[train], task.y[train])
        return np.asarray(fitted.predict_proba(summaries[test]))
    regressor = HistGradientBoostingRegressor(random_state=0)
    return np.asarray(regressor.fit(summaries[train], task.y[train]).predict(summaries[test]))


def _learned(task: Sequences, model: str, train: Array, test: Array, *, seed: int) -> Array:
    X, t = ([[one[n] for n in part] for part in (train, test)] for one in (task.X, task.t))
    kind = SequenceClassifier if task.classes else SequenceRegressor
    fitted = kind(model=model, random_state=seed).fit(X[0], task.y[train], t=t[0])
    predict = fitted.predict_proba if task.classes else fitted.predict
    return np.asarray(predict(X[1], t=t[1]))


def _of_two(y: Array, probability: Array) -> Scores:
    p = probability[:, 1]
    return {
        "AUROC": roc_auc_score(y, p),
        "average precision": average_precision_score(y, p),
        "Brier score": float(np.mean((p - y) ** 2)),
    }


def _of_classes(y: Array, probability: Array) -> Scores:
    return {"accuracy": accuracy_score(y, probability.argmax(1))}


def _of_numbers(y: Array, answer: Array) -> Scores:
    return {
        "MAE": float(np.abs(answer - y).mean()),
        "RMSE": float(np.sqrt(np.mean((answer - y) ** 2))),
    }


def _base_rate(y: Array, test: Array) -> Array:
    classes = int(y.max()) + 1
    rates = np.bincount(y, minlength=classes) / len(y)
    return np.broadcast_to(rates, (len(test), classes))


def _grouped(table: pandas.DataFrame, id: str, time: str, features: Sequence[str]) -> Any:
    """Return the features and times of each id, in order of ids and times."""
    groups = [rows for _, rows in table.sort_values([id, time]).groupby(id)]
    X = [rows[list(features)].to_numpy(np.float64) for rows in groups]
    return groups, X, [rows[time].to_numpy(np.float64) for rows in groups]


def load_physionet(data: Path, first: int = 0) -> Sequences:
    """Return 1,000 stays of PhysioNet 2012, set A, in the order of their numbers, and who died."""
    frames = []
    with tarfile.open(data / "physionet2012/set-a.tar.xz") as archive:
        for member in archive:
            if member.name.endswith(".txt"):
                content = archive.extractfile(member)
                assert content is not None
                frame = pandas.read_csv(io.BytesIO(content.read()))
                frames.append(frame.assign(stay=int(Path(member.name).stem)))
    ordered = sorted(frames, key=lambda frame: int(frame["stay"].iloc[0]))
    kept = ordered[first : first + STAYS]
    long = pandas.concat(kept)
    long = long[
        long["Parameter"].notna() & (long["Parameter"] != "RecordID") & (long["Value"] != -1)
    ]
    clock = long["Time"].str.split(":", expand=True).astype(float)
    long = long.assign(hours=clock[0] + clock[1] / 60)
    table = long.pivot_table(
        index=["stay", "hours"], columns="Parameter", values="Value", aggfunc="last"
    )
    features = list(table.columns)
    table = table.reset_index()
    for name in _STATIC:  # one value per stay
        table[name] = table.groupby("stay")[name].transform("first")
    _, X, t = _grouped(table, "stay", "hours", features)
    outcomes = pandas.read_csv(data / "physionet2012/Outcomes-a.txt", index_col="RecordID")
    y = outcomes["In-hospital_death"].loc[np.unique(table["stay"])].to_numpy()
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(y, y))
    title = f"PhysioNet 2012: death in hospital, {len(y)} stays, {y.sum()} died, five folds"
    title += f", from stay {first + 1:,} on" if first else ""
    return Sequences(title, X, t, y, folds, _of_two, {"base rate": _base_rate})


def physionet(data: Path, models: Sequence[str]) -> tuple[str, dict[str, list[Scores]]]:
    """Death in hospital, with PhysioNet 2012."""
    return _compared(load_physionet(data), models)


def later_stays(data: Path, models: Sequence[str]) -> tuple[str, dict[str, list[Scores]]]:
    """Death in hospital, with stays that chose neither the five folds nor ``input_limit``."""
    return _compared(load_physionet(data, 3000), models)


def characters(data: Path, models: Sequence[str]) -> tuple[str, dict[str, list[Scores]]]:
    """Twenty letters from pen strokes of which 70 % of the samples are lost."""
    stored = np.load(data / "character_trajectories/character_trajectories.npz")
    random = np.random.default_rng(0)
    X, t, y = [], [], []
    for trial in np.flatnonzero(stored["part"] == 1):
        length = int(stored["length"][trial])
        kept = np.sort(random.choice(length, int(0.3 * length), replace=False))
        X.append(stored["X"][trial, kept].astype(np.float64))
        t.append(kept.astype(np.float64))
        y.append(int(stored["y"][trial]))
    order = random.permutation(len(y))
    folds = [(order[:700], order[700:])]
    title = f"Pen strokes: 20 letters, 700 to learn from, {len(y) - 700} for the test"
    return _compared(
        Sequences(title, X, t, np.array(y), folds, _of_classes, {"base rate": _base_rate}), models
    )


def pbcseq(data: Path, models: Sequence[str]) -> tuple[str, dict[str, list[Scores]]]:
    """Death of people with a liver disease, from their visits of the first year."""
    table = pandas.read_csv(data / "tables/pbcseq.csv.gz")
    table = table[table["day"] <= 365].assign(sex=(table["sex"] == "f").astype(float))
    features = [name for name in table.columns if name not in ("id", "futime", "status", "day")]
    groups, X, t = _grouped(table, "id", "day", features)
    y = np.array([int(rows["status"].iloc[0] == 2) for rows in groups])
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(y, y))
    title = f"pbcseq: death later, from the visits of a year, {len(y)} people, {y.sum()} died"
    return _compared(Sequences(title, X, t, y, folds, _of_two, {"base rate": _base_rate}), models)


def wages(data: Path, models: Sequence[str]) -> tuple[str, dict[str, list[Scores]]]:
    """The last logarithm of a wage of each person, from all before."""
    table = pandas.read_csv(data / "tables/wages.csv.gz")
    features = ("lnw", "ged", "postexp", "black", "hispanic", "hgc", "uerate")
    groups, X, t = _grouped(table, "id", "exper", features)
    several = [place for place, rows in enumerate(groups) if len(rows) > 1]
    y = np.array([X[place][-1, 0] for place in several])
    X, t = ([one[place][:-1] for place in several] for one in (X, t))
    last = np.array([rows[-1, 0] for rows in X])
    folds = list(KFold(5, shuffle=True, random_state=0).split(y))
    trivial = {
        "mean": lambda y, test: np.full(len(test), y.mean()),
        "last value": lambda y, test: last[test],
    }
    title = f"wages: the last of each person, {len(y)} people, five folds"
    return _compared(Sequences(title, X, t, y, folds, _of_numbers, trivial, classes=False), models)


def power(data: Path, models: Sequence[str]) -> tuple[str, dict[str, list[Scores]]]:
    """Hourly power of a household, 24 hours ahead, from a week before."""
    path = data / "household_power_hourly/household_power_consumption_hourly.csv.gz"
    table = pandas.read_csv(path, index_col=0, parse_dates=True)
    value = table["Global_active_power"].to_numpy(np.float64)
    hour = 2 * np.pi * table.index.hour.to_numpy() / _DAY
    X = np.stack([value, np.sin(hour), np.cos(hour)], axis=1)
    cut, week = 24000, 7 * _DAY
    origins = np.arange(cut, len(X) - _DAY, 101)
    true = np.stack([value[at : at + _DAY] for at in origins])
    rows: dict[str, list[Scores]] = {}

    def note(name: str, answers: Iterator[Array]) -> None:
        started = time.process_time()
        found = _of_numbers(true, np.stack(list(answers)))
        rows[name] = [{**found, "CPU s": time.process_time() - started}]

    note("as a day ago", (value[at - _DAY : at] for at in origins))
    note("as a week ago", (value[at - week : at - week + _DAY] for at in origins))
    note(BOOSTING, _boosted_ahead(value, hour, range(week, cut - _DAY, 5), origins))
    for model in models:
        note(f"`{model}`", _forecasts(model, X, cut, origins))
    title = f"Hourly power of a household, 24 hours ahead, {cut} hours to learn from"
    return f"{title}, {len(origins)} forecasts", rows


def _forecasts(model: str, X: Array, cut: int, origins: Array, seed: int = 0) -> Iterator[Array]:
    forecaster = SequenceForecaster(
        model=model, horizon=_DAY, targets=[0], window=4 * _DAY, random_state=seed
    )
    forecaster.fit(X[:cut])
    for at in origins:
        yield forecaster.predict(X[at - 7 * _DAY : at])[:, 0]


def _boosted_ahead(
    value: Array, hour: Array, learned: Sequence[int], origins: Array
) -> Iterator[Array]:
    """Yield the forecasts of boosting on values before, one row for each hour ahead."""

    def features(at: int) -> Array:
        ahead = np.arange(_DAY)
        same = np.stack([value[at + ahead - day * _DAY] for day in range(1, 8)], axis=1)
        recent = np.broadcast_to(value[at - _DAY : at], (_DAY, _DAY))
        when = hour[at + ahead]
        return np.column_stack([same, recent, ahead, np.sin(when), np.cos(when)])

    model = HistGradientBoostingRegressor(random_state=0)
    model.fit(
        np.concatenate([features(at) for at in learned]),
        np.concatenate([value[at : at + _DAY] for at in learned]),
    )
    for at in origins:
        yield np.asarray(model.predict(features(int(at))))


TASKS = {one.__name__: one for one in (physionet, later_stays, characters, pbcseq, wages, power)}
