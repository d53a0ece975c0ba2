"""Whether risks of death on PhysioNet 2012 mean what they say, before and after calibration.

The 4,000 stays of set A in five folds: a GRU-D is trained on four of them but for a fifth of these,
which selects its epoch and calibrates it. Calibration errors (ECE, ten bins) are of all stays, each
predicted by the network that did not see it; right probabilities of as many stays have one, too.
"""

import argparse
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold, train_test_split

import tauflow
from tauflow.batch import SequenceBatch, collate
from tauflow.data import load_task
from tauflow.evaluation import calibrate
from tauflow.evaluation.outputs import collect_outputs
from tauflow.runs.results import describe_machine, get_versions
from tauflow.training.metrics import expected_calibration_error

METHODS = ("none", "temperature", "isotonic")
FOLDS = 5

Floats = NDArray[np.float64]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("data", type=Path, help="folder of the data files")
    parser.add_argument("--cell", default="gru-d")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep both numbers and text under ``--results``."""
    task = load_task("physionet2012", root=arguments.data, inputs="values", statistics="train")
    assert task.test is not None
    everybody = collate([task.train, task.test])
    died = everybody.y.numpy().astype(bool)
    risks = {name: np.zeros(len(died)) for name in METHODS}
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(died, died)
    for fold, (seen, test) in enumerate(folds):
        train, held = train_test_split(seen, test_size=0.2, stratify=died[seen], random_state=fold)
        parts = [everybody[torch.from_numpy(part)] for part in (train, held, test)]
        for name, risk in predict(arguments, *parts, seed=fold).items():
            risks[name][test] = risk
        print(f"fold {fold + 1} of {FOLDS}", flush=True)
    scores = {name: score(died, risk) for name, risk in risks.items()}
    text = describe(scores, len(died), arguments)
    print(text)
    arguments.results.mkdir(parents=True, exist_ok=True)
    stem = arguments.results / f"calibration-{date.today().isoformat()}"
    result = {"scores": scores, "machine": describe_machine(), "versions": get_versions()}
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(text + "\n", encoding="utf-8")


def predict(
    arguments: argparse.Namespace,
    train: SequenceBatch,
    valid: SequenceBatch,
    test: SequenceBatch,
    *,
    seed: int,
) -> dict[str, Floats]:
    """Return the risks of a test part by method of calibration, (N,) each."""
    torch.manual_seed(seed)
    rnn: Any = tauflow.build(
        arguments.cell, train.x.shape[-1], arguments.hidden, return_sequences=False
    )
    model = tauflow.SequenceModel(rnn, 2)
    recipe = tauflow.Recipe(
        lr=3e-3, epochs=arguments.epochs, batch_size=64, clip="norm", clip_norm=1.0
    )
    tauflow.train(
        model,
        train=train,
        valid=valid,
        loss="cross_entropy",
        metric="auroc",
        recipe=recipe,
        seed=seed,
        progress=False,
    )
    model.eval()
    risks = {}
    for method in METHODS:
        calibrated = model if method == "none" else calibrate(model, valid, method).eval()
        logits = collect_outputs(calibrated, test, per_step=False).prediction.double()
        risks[method] = logits.softmax(-1)[:, 1].numpy()
    return risks


def score(died: NDArray[np.bool_], risk: Floats) -> dict[str, float]:
    """Return scores, with what right probabilities would have: the mean of 200 draws."""
    draws = np.random.default_rng(0).random((200, len(risk))) < risk
    return {
        "ECE": compute_error(risk, died),
        "ECE of right risks": float(np.mean([compute_error(risk, draw) for draw in draws])),
        "Brier score": float(brier_score_loss(died, risk)),
        "log loss": float(log_loss(died, np.clip(risk, 1e-6, 1 - 1e-6))),
        "AUROC": float(roc_auc_score(died, risk)),
    }


def compute_error(risk: Floats, died: NDArray[np.bool_]) -> float:
    """Return the expected calibration error, ten bins."""
    return float(expected_calibration_error(torch.from_numpy(risk), torch.from_numpy(died)))


def describe(
    scores_of_methods: dict[str, dict[str, float]], count: int, arguments: argparse.Namespace
) -> str:
    """Return a Markdown table."""
    names = list(next(iter(scores_of_methods.values())))
    lines = [
        f"# Calibration of risks of death, PhysioNet 2012, {date.today().isoformat()}",
        "",
        f"{count:,} stays of set A in five folds, `{arguments.cell}`, {arguments.hidden} neurons, "
        f"the best of {arguments.epochs} epochs by AUROC on a fifth of the training part, which "
        "also calibrates.",
        "",
        f"| calibration | {' | '.join(names)} |",
        f"| --- |{' ---: |' * len(names)}",
    ]
    for method, scores in scores_of_methods.items():
        lines.append(f"| {method} | {' | '.join(f'{value:.4f}' for value in scores.values())} |")
    machine = {**describe_machine(), **get_versions()}
    return "\n".join([*lines, "", ", ".join(f"{key} {value}" for key, value in machine.items())])
