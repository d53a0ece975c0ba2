"""Classification of series beside PyPOTS and aeon: speakers, and deaths in hospital.

Networks of all libraries have one budget: 100 epochs at most in batches of 32, 15 % of the training
series for validation, and an end 10 epochs after the best. tauflow's estimators read times as they
are; PyPOTS and aeon read an even grid (samples of the vowels, hours of the stays), with NaN where
nothing was measured, or for aeon the last value.
"""

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from benchmarks.table_tasks import (
    Array,
    Scores,
    Sequences,
    _base_rate,
    _of_classes,
    load_physionet,
)
from sklearn.preprocessing import StandardScaler

from tauflow.estimators import SequenceClassifier
from tauflow.sequence.precompile import precompile

Results = Iterator[tuple[str, dict[str, list[Scores]]]]
Answer = Callable[[Sequences, Array, Array, Array, int], Array]


def load_vowels(share: float) -> tuple[Sequences, Array]:
    """Return JapaneseVowels with a share of the samples of each sequence, and its even grid."""
    from aeon.datasets import load_japanese_vowels

    (X, y), (X_test, y_test) = (load_japanese_vowels(split=part) for part in ("train", "test"))
    rng = np.random.default_rng(0)
    samples, times = [], []
    for sequence in [*X, *X_test]:
        steps = np.sort(rng.permutation(sequence.shape[1])[: round(share * sequence.shape[1])])
        samples.append(sequence.T[steps])
        times.append(steps.astype(float))
    classes = np.concatenate([y, y_test]).astype(int) - 1
    folds = [(np.arange(len(X)), np.arange(len(X), len(classes)))] * 3
    title = f"JapaneseVowels, {share:.0%} of the samples, 270 training and 370 test sequences"
    trivial = {"base rate": _base_rate}
    task = Sequences(title, "error rate", samples, times, classes, folds, _of_classes, trivial)
    return task, _to_grid(task, 29)


def _to_grid(task: Sequences, steps: int) -> Array:
    """Return (N, T, I) on an even grid: the last value in each unit of time, else NaN."""
    grid = np.full((len(task.X), steps, task.X[0].shape[1]), np.nan)
    for place, (rows, times) in enumerate(zip(task.X, task.t, strict=True)):
        for row, step in zip(rows, np.minimum(times.astype(int), steps - 1), strict=True):
            grid[place, step] = np.where(np.isnan(row), grid[place, step], row)
    return grid


def _tauflow(model: str) -> Answer:
    def answer(task: Sequences, grid: Array, train: Array, test: Array, seed: int) -> Array:
        X, t = (
            [[values[n] for n in part] for part in (train, test)] for values in (task.X, task.t)
        )
        fitted = SequenceClassifier(model=model, random_state=seed).fit(X[0], task.y[train], t=t[0])
        return np.asarray(fitted.predict_proba(X[1], t=t[1]))

    return answer


def _pypots(name: str, **options: int) -> Answer:
    def answer(task: Sequences, grid: Array, train: Array, test: Array, seed: int) -> Array:
        import pypots.classification

        torch.manual_seed(seed)
        train = np.random.default_rng(seed).permutation(train)
        valid, train = np.split(train, [round(0.15 * len(train))])
        scaler = StandardScaler().fit(grid[train].reshape(-1, grid.shape[2]))
        scaled = scaler.transform(grid.reshape(-1, grid.shape[2])).reshape(grid.shape)
        model = getattr(pypots.classification, name)(
            n_steps=grid.shape[1],
            n_features=grid.shape[2],
            n_classes=len(np.unique(task.y)),
            patience=10,
            verbose=False,
            device="cpu",
            **options,
        )
        sets = ({"X": scaled[part], "y": task.y[part]} for part in (train, valid))
        model.fit(*sets)
        return np.asarray(model.predict_proba({"X": scaled[test]}))

    return answer


def _aeon(name: str) -> Answer:
    def answer(task: Sequences, grid: Array, train: Array, test: Array, seed: int) -> Array:
        from aeon.classification import convolution_based, interval_based

        classifier = getattr(convolution_based, name, None) or getattr(interval_based, name)
        filled = _fill(grid, train).transpose(0, 2, 1)  # (N, I, T)
        fitted = classifier(random_state=seed).fit(filled[train], task.y[train])
        return np.asarray(fitted.predict_proba(filled[test]))

    return answer


def _fill(grid: Array, train: Array) -> Array:
    """Return the last measured value, before any the mean of the training sequences."""
    filled = grid.copy()
    first = np.isnan(filled[:, 0])
    filled[:, 0][first] = np.broadcast_to(np.nanmean(grid[train], axis=(0, 1)), first.shape)[first]
    for step in range(1, grid.shape[1]):
        filled[:, step] = np.where(np.isnan(grid[:, step]), filled[:, step - 1], grid[:, step])
    return filled


METHODS: dict[str, Answer] = {
    "tauflow `gru-d`": _tauflow("gru-d"),
    "tauflow `cfc`": _tauflow("cfc"),
    "aeon `QUANTClassifier`": _aeon("QUANTClassifier"),
    "aeon `MultiRocketHydraClassifier`": _aeon("MultiRocketHydraClassifier"),
    "PyPOTS `SAITS`": _pypots(
        "SAITS", n_layers=2, d_model=64, n_heads=4, d_k=16, d_v=16, d_ffn=128
    ),
    "PyPOTS `GRUD`": _pypots("GRUD", rnn_hidden_size=32),
}


def compare(task: str, data: Path, repeats: int) -> Results:
    """Yield the title of a task, and the scores of each method, after each."""
    if task == "physionet":
        sequences = load_physionet(data)
        grid = _to_grid(sequences, 49)
    else:
        sequences, grid = load_vowels(0.5 if task == "vowels-half" else 1.0)
    precompile("gru-d", "cfc")
    rows: dict[str, list[Scores]] = {}
    for seed, (train, test) in enumerate(sequences.folds[:repeats]):
        for name, answer in METHODS.items():
            library = name.partition(" ")[0].lower()
            if find_spec(library) is None:
                print(f"{library} is not installed: {name} is left out")
                continue
            started = time.process_time()
            scores = sequences.scored(sequences.y[test], answer(sequences, grid, train, test, seed))
            scores["CPU s"] = time.process_time() - started
            rows.setdefault(name, []).append(scores)
            print(name, scores, flush=True)
            yield sequences.title, rows
