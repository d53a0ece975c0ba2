"""How much of a forecast is each of the simple ones: what data not trained on say."""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tauflow.models import ForecastModel
from tauflow.models.wrappers import list_members
from tauflow.runs.portfolio import choose_ensemble
from tauflow.tabular.cell_values import Floats, Indices
from tauflow.tabular.sequences import Sequences
from tauflow.training.defaults import DEFAULT_VALIDATION_FRACTION, MIN_SEQUENCES_FOR_VALIDATION
from tauflow.training.eval_mode import evaluation_mode

from .forecast_queries import Queries
from .training import TrainingPlan, fit_networks

MIN_QUERIES, MAX_ORIGINS = 200, 512
"""Values by whose forecasts shares are chosen at least, and origins of these at most."""
_BATCH_SIZE = 64


class BlendedForecasts:
    """Forecasters whose answer has shares of simple forecasts, and types of what they learn."""

    module_: nn.Module
    known_features_: Indices
    target_features_: Indices
    max_lead_time_: float | None
    window_: int
    lead_time_edges_: Floats
    cycles_: tuple[float, ...]
    _typical: float | None = None

    @property
    def shares_(self) -> dict[str, list[float]]:
        """What counts how much in an answer: for each target, by the name of the forecast.

        ``"network"`` mixes the others itself, differently at each time. Periods are in the unit of
        the network, as ``module_.periods``. Without shares to choose, the network is all.
        """
        network = list_members(self.module_)[0]
        if not isinstance(network, ForecastModel) or network.shares is None:
            return {"network": [1.0] * len(self.target_features_)}
        names = ["last value", "mean of the window"]
        for period in network.periods or ():
            names += [f"value {period:g} earlier", f"mean at this phase of {period:g}"]
        return dict(zip((*names, "network"), np.transpose(network.shares).tolist(), strict=True))


def blend_forecasts(
    estimator: Any, learned: Sequences, held: Sequences | None, plan: TrainingPlan
) -> None:
    """Let networks that forecast at any time answer with shares of simple forecasts.

    Shares are chosen greedily (Caruana et al. 2004), for each target, by the absolute error of
    the average on validation data: the best forecast begins, so that none of them is better
    there. Without such data a network of half the training, which forecasts what comes after its
    own data, stands for the others, and these keep all data to learn from. As they know more than
    it does, half of the answer stays theirs where that is no worse than any simple forecast. With
    fewer than 200 values to choose by, all of it does.

    Args:
        estimator: fitted, whose networks get shares.
        learned: what it was trained on.
        held: validation data, if there are any.
        plan: of its training.
    """
    networks = _list_networks(estimator)
    if not networks:
        return
    if held is not None:
        found = held.with_times(), estimator._plan_training(held, estimator._longest)
    elif estimator.validation_fraction == 0:
        return
    else:
        learned = learned.with_times()
        early, is_late = _hold_out(learned)
        queries = estimator._plan_training(learned, estimator._longest)
        found = learned, queries.select(is_late[queries.origin])
        if len(found[1]) < MIN_QUERIES or not estimator._has_targets(early):
            return  # before anything is trained
        estimator = _fit_to_part(estimator, early, plan)
        if _list_networks(estimator)[0].head.simple != networks[0].head.simple:
            return  # the shorter part does not have them all
    if len(found[1]) < MIN_QUERIES:
        return
    shares = _choose_shares(estimator, *found)
    for one in networks:
        one.shares = shares


def _list_networks(estimator: Any) -> list[ForecastModel]:
    """Return the networks that know several simple forecasts."""
    found = list_members(estimator.module_)
    return [one for one in found if isinstance(one, ForecastModel) and one.periods is not None]


def _hold_out(rows: Sequences) -> tuple[Sequences, NDArray[np.bool_]]:
    """Return what to train on, and which rows come later or belong to other sequences, (R,)."""
    if len(rows) >= MIN_SEQUENCES_FOR_VALIDATION:
        order = np.random.default_rng(0).permutation(len(rows))
        late = order[: round(DEFAULT_VALIDATION_FRACTION * len(rows))]
        return rows.select(np.setdiff1d(order, late)), np.isin(rows.sequence_index, late)
    kept = rows.lengths - np.ceil(DEFAULT_VALIDATION_FRACTION * rows.lengths).astype(np.int64)
    both = rows.split_at(kept)
    early = both.select(2 * np.flatnonzero(both.lengths[::2]))
    return early, np.arange(len(rows.values)) >= (rows.starts + kept)[rows.sequence_index]


def _fit_to_part(estimator: Any, early: Sequences, plan: TrainingPlan) -> Any:
    """Return a forecaster of one network that was trained for half as long, on early rows."""
    trial = copy.copy(estimator)
    trial.validation_fraction, trial.callbacks, trial.verbose = 0, None, 0
    trial.epochs = max(1, estimator.result_.epochs // 2)
    fit_networks(trial, early, None, None, TrainingPlan(1, plan.seed, goes_on=False))
    return trial


def _choose_shares(forecaster: Any, rows: Sequences, queries: Queries) -> list[list[float]]:
    """Return shares, (O, K + 1), by what is known at the times of queries."""
    rows = rows.with_times()
    origins = np.random.default_rng(0).permutation(np.unique(queries.origin))[:MAX_ORIGINS]
    queries = queries.select(np.isin(queries.origin, origins))
    windows, y = forecaster._make_training_windows(rows, queries)
    y = forecaster._target_scaler.transform(y)[:, 0]
    batch = forecaster._make_step_batch(windows, np.nan_to_num(y), ~np.isnan(y))
    members = _list_networks(forecaster)
    device = next(members[0].parameters()).device  # where they were trained
    guesses: list[Tensor] = []
    true: list[Tensor] = []
    known: list[Tensor] = []
    with torch.no_grad():
        for first in range(0, len(batch), _BATCH_SIZE):
            piece = batch[first : first + _BATCH_SIZE]
            moved = piece.to(device)
            there = {"dt": moved.dt, "mask": moved.mask, "observed": moved.observed}
            asked = piece.y_mask.any(-1)
            of_members = []
            for one in members:
                with evaluation_mode(one):
                    of_members.append(one.compute_candidates(moved.x, **there).cpu()[asked])
            guesses.append(torch.stack(of_members).mean(0))
            true.append(piece.y[asked])
            known.append(piece.y_mask[asked])
    return [
        _choose_of_target(torch.cat(guesses)[:, n], torch.cat(true)[:, n], torch.cat(known)[:, n])
        for n in range(y.shape[1])
    ]


def _choose_of_target(guesses: Tensor, true: Tensor, known: Tensor) -> list[float]:
    """Return shares of forecasts, (Q, K + 1), by a target, (Q,), where it is known."""
    last = guesses.shape[1] - 1
    order = [last, *range(last)]  # of equal ones the network
    if not known.any():
        return [0.0] * last + [1.0]
    y = true[known, None].double()

    def score(prediction: Tensor) -> float:
        return float((prediction - y).abs().mean())

    counts = choose_ensemble(
        [guesses[known][:, [n]].double() for n in order],
        score,
        task="regress",
        higher_is_better=False,
    )
    chosen, network = torch.zeros(last + 1).double(), torch.eye(last + 1)[last].double()
    chosen[order] = torch.tensor(counts).double() / sum(counts)
    some = guesses[known].double()
    half, best = (chosen + network) / 2, min(score(some[:, [n]]) for n in range(last))
    return [float(one) for one in (half if score(some @ half[:, None]) <= best else chosen)]
