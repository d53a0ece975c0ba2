"""Tasks of tables with one target per sequence, for ``python -m benchmarks defaults``."""

import io
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from tauflow.estimators import SequenceClassifier, SequenceRegressor

Array = NDArray[Any]
Scores = dict[str, float]
STAYS = 1000
SET_SIZE = 4000
_STATIC = ("Age", "Gender", "Height", "ICUType")
ESTIMATORS: dict[str, dict[str, Any]] = {
    "default": {},
    "one network": {"ensemble": 1},
    "auto": {"model": "auto"},
}


@dataclass(frozen=True)
class Sequences:
    """A task with one target per sequence.

    Args:
        title: of the task.
        error: name of the score that is compared, the lower the better.
        X: features of each, (T_i, I), NaN where missing.
        t: times of each, (T_i,).
        y: targets, (N,).
        folds: pairs of training and test sequences.
        scored: scores of predictions: probabilities of classes, (N, K), or numbers, (N,).
        trivial: name and answer of what needs no learning, given training targets and test rows.
    """

    title: str
    error: str
    X: Sequence[Array]
    t: Sequence[Array]
    y: Array
    folds: Sequence[tuple[Array, Array]]
    scored: Callable[[Array, Array], Scores]
    trivial: dict[str, Callable[[Array, Array], Array]]
    classes: bool = field(default=True, kw_only=True)

    @cached_property
    def summaries(self) -> Array:
        """Features of each sequence for boosting, (N, K)."""
        return _summaries(self.X, self.t)

    @property
    def simple(self) -> tuple[str, ...]:
        """Methods that are no network."""
        return (*self.trivial, "boosting")

    def with_folds(self, folds: Sequence[tuple[Array, Array]]) -> "Sequences":
        """Return the task with other folds."""
        task = replace(self, folds=folds)
        task.__dict__["summaries"] = self.summaries  # which are those of the same sequences
        return task

    def answer(self, method: str, fold: int) -> Array:
        """Return what a method, fitted to the training sequences of a fold, predicts."""
        train, test = self.folds[fold]
        if method in self.trivial:
            return self.trivial[method](self.y[train], test)
        if method == "boosting":
            return _boost(self, train, test)
        X, t = (
            [[values[n] for n in part] for part in (train, test)] for values in (self.X, self.t)
        )
        kind = SequenceClassifier if self.classes else SequenceRegressor
        fitted = kind(**ESTIMATORS[method], random_state=fold).fit(X[0], self.y[train], t=t[0])
        predict = fitted.predict_proba if self.classes else fitted.predict
        return np.asarray(predict(X[1], t=t[1]))


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


def _boost(task: Sequences, train: Array, test: Array) -> Array:
    summaries = task.summaries
    if task.classes:
        classifier = HistGradientBoostingClassifier(random_state=0)
        fitted = classifier.fit(summaries[train], task.y[train])
        return np.asarray(fitted.predict_proba(summaries[test]))
    regressor = HistGradientBoostingRegressor(random_state=0)
    return np.asarray(regressor.fit(summaries[train], task.y[train]).predict(summaries[test]))


def _of_two(y: Array, probability: Array) -> Scores:
    p = probability[:, 1]
    return {
        "AUROC": roc_auc_score(y, p),
        "average precision": average_precision_score(y, p),
        "Brier score": float(np.mean((p - y) ** 2)),
    }


def _of_classes(y: Array, probability: Array) -> Scores:
    return {"error rate": 1 - accuracy_score(y, probability.argmax(1))}


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


def load_physionet(data: Path, first: int = 0, count: int = STAYS) -> Sequences:
    """Return stays of PhysioNet 2012, in the order of sets and numbers, and who died."""
    frames = []
    for part in "ab" if first + count > SET_SIZE else "a":
        with tarfile.open(data / f"physionet2012/set-{part}.tar.xz") as archive:
            for member in archive:
                if member.name.endswith(".txt"):
                    content = archive.extractfile(member)
                    assert content is not None
                    frame = pandas.read_csv(io.BytesIO(content.read()))
                    frames.append(frame.assign(stay=int(Path(member.name).stem)))
    ordered = sorted(frames, key=lambda frame: int(frame["stay"].iloc[0]))
    long = pandas.concat(ordered[first : first + count])
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
    files = sorted((data / "physionet2012").glob("Outcomes-?.txt"))
    outcomes = pandas.concat(pandas.read_csv(path, index_col="RecordID") for path in files)
    y = outcomes["In-hospital_death"].loc[np.unique(table["stay"])].to_numpy()
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(y, y))
    title = f"PhysioNet 2012: death in hospital, {len(y)} stays, {y.sum()} died, five folds"
    title += f", from stay {first + 1:,} on" if first else ""
    return Sequences(title, "Brier score", X, t, y, folds, _of_two, {"base rate": _base_rate})


def physionet(data: Path) -> Sequences:
    """Death in hospital, with PhysioNet 2012."""
    return load_physionet(data)


def later_stays(data: Path) -> Sequences:
    """Death in hospital, with stays that chose neither the five folds nor ``input_limit``."""
    return load_physionet(data, 3000)


def characters(data: Path) -> Sequences:
    """Twenty letters from pen strokes of which 70 % of the samples are lost."""
    stored = np.load(data / "character_trajectories/character_trajectories.npz")
    random = np.random.default_rng(0)
    X, t, y = [], [], []
    for trial in np.flatnonzero(stored["part"] == 1):
        length = int(stored["length"][trial])
        chosen = np.sort(random.choice(length, int(0.3 * length), replace=False))
        X.append(stored["X"][trial, chosen].astype(np.float64))
        t.append(chosen.astype(np.float64))
        y.append(int(stored["y"][trial]))
    order = random.permutation(len(y))
    folds = [(order[:700], order[700:])]
    title = f"Pen strokes: 20 letters, 700 to learn from, {len(y) - 700} for the test"
    trivial = {"base rate": _base_rate}
    return Sequences(title, "error rate", X, t, np.array(y), folds, _of_classes, trivial)


def pbcseq(data: Path) -> Sequences:
    """Death of people with a liver disease, from their visits of the first year."""
    table = pandas.read_csv(data / "tables/pbcseq.csv.gz")
    table = table[table["day"] <= 365].assign(sex=(table["sex"] == "f").astype(float))
    features = [name for name in table.columns if name not in ("id", "futime", "status", "day")]
    groups, X, t = _grouped(table, "id", "day", features)
    y = np.array([int(rows["status"].iloc[0] == 2) for rows in groups])
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(y, y))
    title = f"pbcseq: death later, from the visits of a year, {len(y)} people, {y.sum()} died"
    return Sequences(title, "Brier score", X, t, y, folds, _of_two, {"base rate": _base_rate})


def toenail(data: Path) -> Sequences:
    """Whether an infection is severe at the last visit of each patient, from those before."""
    table = pandas.read_csv(data / "tables/toenail.csv.gz")
    for name, value in {"outcome": "moderate or severe", "treatment": "terbinafine"}.items():
        table[name] = (table[name] == value).astype(float)
    _, X, t = _grouped(table, "patientID", "time", ("outcome", "treatment"))
    X, t, y = _hide_last(X, t)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(y, y))
    title = f"toenail infection: severe at the last visit, {len(y)} people, five folds"
    trivial = {"base rate": _base_rate}
    return Sequences(title, "Brier score", X, t, y.astype(int), folds, _of_two, trivial)


def wages(data: Path) -> Sequences:
    """The last logarithm of a wage of each person, from all before."""
    table = pandas.read_csv(data / "tables/wages.csv.gz")
    features = ("lnw", "ged", "postexp", "black", "hispanic", "hgc", "uerate")
    return _ask_for_last("wages", table, "id", "exper", features)


def fev(data: Path) -> Sequences:
    """The last lung function of each patient, from all before."""
    table = pandas.read_csv(data / "tables/fev.csv.gz")
    return _ask_for_last("lung function", table, "ptnum", "days", ("fev", "acute"))


def _ask_for_last(
    name: str, table: pandas.DataFrame, id: str, time: str, features: Sequence[str]
) -> Sequences:
    """Return the task of the last value of the first feature of each id."""
    _, X, t = _grouped(table, id, time, features)
    X, t, y = _hide_last(X, t)
    last = np.array([rows[-1, 0] for rows in X])
    folds = list(KFold(5, shuffle=True, random_state=0).split(y))
    trivial = {
        "mean": lambda y, test: np.full(len(test), y.mean()),
        "last value": lambda y, test: last[test],
    }
    title = f"{name}: the last of each person, {len(y)} people, five folds"
    return Sequences(title, "MAE", X, t, y, folds, _of_numbers, trivial, classes=False)


def _hide_last(X: Any, t: Any) -> tuple[Any, Any, Array]:
    """Return sequences of two rows or more without their last row, and its first feature."""
    several = [place for place, rows in enumerate(X) if len(rows) > 1]
    y = np.array([X[place][-1, 0] for place in several])
    X, t = ([values[place][:-1] for place in several] for values in (X, t))
    return X, t, y


TABLES = {
    reader.__name__: reader
    for reader in (physionet, later_stays, characters, pbcseq, toenail, wages, fev)
}
