"""Probabilities that mean what they say: temperature scaling and isotonic regression."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_one_of
from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError
from tauflow.models import Calibrated

from .outputs import collect_outputs

TEMPERATURE, ISOTONIC = "temperature", "isotonic"
CALIBRATIONS = (TEMPERATURE, ISOTONIC)
_LOG_RANGE = math.log(100.0)  # temperatures from 0.01 to 100


def calibrate(
    model: nn.Module,
    data: SequenceBatch,
    method: str = TEMPERATURE,
    *,
    task: str = "classify",
) -> Calibrated:
    """Return a classifier with probabilities calibrated on validation data.

    Args:
        model: the classifier, trained on other data.
        data: validation data; weights of sequences do not count.
        method: ``"temperature"``: one number that divides the logits, chosen by the log loss,
            which keeps the order of the classes; or ``"isotonic"``: an increasing curve for each
            class, which needs some hundred entries.
        task: ``"classify"`` or ``"binary"``, as in :class:`tauflow.data.DatasetCard`.

    Raises:
        MissingExtraError: scikit-learn, which isotonic regression is of, is not installed.
        ArgumentError: the task has no classes.
        DataError: the data hold no target, or a single class.
    """
    check_one_of(CALIBRATIONS, calibrate=method)
    if task == "regress":
        raise ArgumentError(
            f"calibrate={method!r} is for probabilities of classes, and the targets are values. "
            "Leave it out; intervals of values are calibrated in any case."
        )
    outputs = collect_outputs(model, data)
    logits, y = outputs.prediction.double(), outputs.y.flatten().round().long()
    if len(y.unique()) < 2:
        raise DataError(
            f"the {format_count(len(y), 'validation target')} hold {len(y.unique())} class, and "
            "calibration needs "
            "two or more. Give a larger validation split."
        )
    if method == TEMPERATURE:
        return Calibrated(model, task, temperature=_fit_temperature(logits, y))
    return Calibrated(model, task, curves=_fit_curves(logits, y))


def _fit_temperature(logits: Tensor, y: Tensor) -> float:
    """Return the temperature with the smallest log loss of logits, (N, C) or (N, 1)."""
    log_temperature = torch.zeros((), dtype=logits.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_temperature], max_iter=100, line_search_fn="strong_wolfe")

    def compute_loss() -> Tensor:
        optimizer.zero_grad()
        scaled = logits * (-log_temperature).exp()
        if scaled.shape[1] == 1:
            loss = F.binary_cross_entropy_with_logits(scaled[:, 0], y.double())
        else:
            loss = F.cross_entropy(scaled, y)
        loss.backward()
        return loss

    optimizer.step(compute_loss)
    return math.exp(min(max(float(log_temperature.detach()), -_LOG_RANGE), _LOG_RANGE))


def _fit_curves(logits: Tensor, y: Tensor) -> list[Sequence[Sequence[float]]]:
    """Return the knots of an increasing curve for each class; of two the second one's."""
    isotonic: Any = require("sklearn.isotonic", extra="sklearn")
    if logits.shape[1] == 1:
        columns = {1: logits[:, 0].sigmoid()}
    else:
        probabilities = logits.softmax(-1)
        classes = [1] if logits.shape[1] == 2 else range(logits.shape[1])
        columns = {n: probabilities[:, n] for n in classes}
    curves: list[Sequence[Sequence[float]]] = []
    for number, column in columns.items():
        curve = isotonic.IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        curve.fit(column.numpy(), (y == number).numpy())
        x, level = curve.X_thresholds_, curve.y_thresholds_
        if len(x) == 1:  # every entry has the same probability
            x, level = np.array([0.0, 1.0]), np.repeat(level, 2)
        curves.append([x.tolist(), level.tolist()])
    return curves
