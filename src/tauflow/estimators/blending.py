"""How much of a forecast is each of the simple ones: what data not trained on say."""

import copy
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tauflow.models import ForecastModel
from tauflow.models.forecast_trees import ForecastTrees
from tauflow.models.wrappers import list_members
from tauflow.runs.portfolio import choose_ensemble
from tauflow.tabular.cell_values import Floats, Indices
from tauflow.tabular.sequences import Sequences
from tauflow.training.defaults import DEFAULT_VALIDATION_FRACTION, MIN_SEQUENCES_FOR_VALIDATION
from tauflow.training.eval_mode import evaluation_mode

from .forecast_boosting import fit_forecast_trees, iter_queries
from .forecast_queries import Queries, select_last_blocks
from .training import TrainingPlan, fit_networks, omit_validation

MIN_QUERIES, MAX_ORIGINS = 200, 512
"""Values by whose forecasts shares are chosen at least, and origins of these at most."""


class BlendedForecasts:
    """Forecasters whose answer has shares of simple forecasts, and types of what they learn."""

    module_: nn.Module
    known_features_: Indices
    target_features_: Indices
    max_lead_time_: float | None
    window_: int
    lead_time_edges_: Floats
    cycles_: tuple[float, ...]
    _is_timed: bool
    _typical: float | None = None

    @property
    def shares_(self) -> dict[str, list[float]]:
        """The share of each forecast in an answer, for each target, by the name of the forecast.

        ``"network"`` mixes the others itself, differently at each time. Periods are in the unit of
        the network, as ``module_.periods``. Without shares to choose, the network is all.
        """
        network = list_members(self.module_)[0]
        if not isinstance(network, ForecastModel) or network.shares is None:
            return {"network": [1.0] * len(self.target_features_)}
        names = ["last value", "mean of the window"]
        for period in network.periods or ():
            names += [f"value {period:g} earlier", f"mean at this phase of {period:g}"]
        names += ["boosting"] if network.trees is not None else []
        return dict(zip((*names, "network"), np.transpose(network.shares).tolist(), strict=True))


def blend_forecasts(
    estimator: Any, learned: Sequences, held: Sequences | None, plan: TrainingPlan
) -> None:
    """Let networks that forecast at any time answer with shares of simple forecasts and boosting.

    Shares are chosen greedily (Caruana et al. 2004), for each target, by the absolute error of
    the average on validation data: the best forecast begins, so that none of them is better
    there. They are asked for as new ones will be: in blocks as long as the longest lead time,
    counted back from the end of each series, whose origins have the same time of day; with fewer
    than 200 values, after every row. Without validation data a network of half the training, which
    forecasts what comes after its own data, stands for the others, and these keep all data to
    learn from. As they know more than it does, and boosting that is fitted to all data does too,
    half of the answer stays with these, unless another forecast is better by more than one standard
    error. With fewer than 200 values to choose by, the network is all of it.

    Args:
        estimator: fitted, whose networks get shares.
        learned: what it was trained on.
        held: validation data, if there are any.
        plan: of its training.
    """
    networks = _list_networks(estimator)
    if not networks:
        return
    learned = learned.with_times()
    if held is not None:
        rows, trial, early = held.with_times(), estimator, learned
        queries = estimator._plan_training(rows, estimator._longest)
    elif estimator.validation_fraction == 0:
        return
    else:
        rows, (early, is_late) = learned, _hold_out(learned)
        queries = estimator._plan_training(learned, estimator._longest)
        queries = queries.select(is_late[queries.origin])
        if len(queries) < MIN_QUERIES or not estimator._has_targets(early):
            return  # before anything is trained
        trial = _fit_to_part(estimator, early, plan)
        if _list_networks(trial)[0].head.simple != networks[0].head.simple:
            return  # the shorter part does not have them all
    if len(queries) < MIN_QUERIES:
        return
    _set_trees(trial, fit_forecast_trees(trial, _list_networks(trial)[0], early))
    blocks = select_last_blocks(rows, queries, estimator._longest)
    queries = blocks if len(blocks) >= MIN_QUERIES else queries
    shares = _choose_shares(trial, rows, queries)
    trees = _list_networks(trial)[0].trees
    if trees is not None and not any(of_target[-2] for of_target in shares):
        shares, trees = [[*of_target[:-2], of_target[-1]] for of_target in shares], None
    if trees is not None and trial is not estimator:
        trees = fit_forecast_trees(estimator, networks[0], learned)
    for network in networks:
        network.set_shares(shares, copy.deepcopy(trees))


def _set_trees(forecaster: Any, trees: ForecastTrees | None) -> None:
    """Let the networks of a forecaster know trees, before there are shares."""
    for network in _list_networks(forecaster):
        device = next(network.parameters()).device
        network.set_shares(None, None if trees is None else copy.deepcopy(trees).to(device))


def _list_networks(estimator: Any) -> list[ForecastModel]:
    """Return the networks that know several simple forecasts."""
    members = list_members(estimator.module_)
    return [
        member
        for member in members
        if isinstance(member, ForecastModel) and member.periods is not None
    ]


def _hold_out(rows: Sequences) -> tuple[Sequences, NDArray[np.bool_]]:
    """Return what to train on, and which rows come later or belong to other sequences, (R,)."""
    if len(rows) >= MIN_SEQUENCES_FOR_VALIDATION:
        order = np.random.default_rng(0).permutation(len(rows))
        late = order[: round(DEFAULT_VALIDATION_FRACTION * len(rows))]
        return rows.select(np.setdiff1d(order, late)), np.isin(rows.sequence_index, late)
    train_lengths = rows.lengths - np.ceil(DEFAULT_VALIDATION_FRACTION * rows.lengths).astype(
        np.int64
    )
    both = rows.split_at(train_lengths)
    early = both.select(2 * np.flatnonzero(both.lengths[::2]))
    return early, np.arange(len(rows.values)) >= (rows.starts + train_lengths)[rows.sequence_index]


def _fit_to_part(estimator: Any, early: Sequences, plan: TrainingPlan) -> Any:
    """Return a forecaster of one network that was trained for half as long, on early rows."""
    trial = copy.copy(estimator)
    trial.validation_fraction, trial.callbacks, trial.verbose = 0, None, 0
    trial.epochs, trial.patience = max(1, estimator.result_.epochs // 2), None
    trial.recipe = omit_validation(estimator.recipe, trial.epochs)
    fit_networks(trial, early, None, None, TrainingPlan(1, plan.seed, goes_on=False))
    return trial


def _choose_shares(forecaster: Any, rows: Sequences, queries: Queries) -> list[list[float]]:
    """Return shares, (O, K + 1), by what is known at the times of queries."""
    origins = np.random.default_rng(0).permutation(np.unique(queries.origin))[:MAX_ORIGINS]
    queries = queries.select(np.isin(queries.origin, origins))
    members = _list_networks(forecaster)
    device = next(members[0].parameters()).device  # where they were trained
    guesses: list[Tensor] = []
    true: list[Tensor] = []
    known: list[Tensor] = []
    with torch.no_grad():
        for inputs, y, is_known in iter_queries(forecaster, rows, queries, device):
            asked, of_members = is_known.any(-1), []
            for member in members:
                with evaluation_mode(member):
                    of_members.append(member.compute_candidates(**inputs).cpu()[asked])
            guesses.append(torch.stack(of_members).mean(0))
            true.append(y[asked])
            known.append(is_known[asked])
    every, there = torch.cat(true), torch.cat(known)
    learned = 1 + (members[0].trees is not None)
    return [
        _choose_of_target(of_target, every[:, n], there[:, n], learned)
        for n, of_target in enumerate(torch.cat(guesses).unbind(1))
    ]


def _choose_of_target(
    guesses: Tensor, true: Tensor, known: Tensor, learned: int = 1
) -> list[float]:
    """Return shares of forecasts, (Q, K), by a target, (Q,), where it is known.

    The last forecasts are so many learned ones, and the last is the network.
    """
    count = guesses.shape[1]
    order = [count - 1, *range(count - 1)]  # of equal ones the network
    network = torch.eye(count)[-1].double()
    if not known.any():
        return network.tolist()
    y = true[known, None].double()

    def score(prediction: Tensor) -> float:
        return float((prediction - y).abs().mean())

    counts = choose_ensemble(
        [guesses[known][:, [n]].double() for n in order],
        score,
        task="regress",
        higher_is_better=False,
    )
    chosen = torch.zeros(count).double()
    chosen[order] = torch.tensor(counts).double() / sum(counts)
    some = guesses[known].double()
    predicted, network_total = network, chosen[-learned:].sum()
    if network_total > 0:
        predicted = torch.cat([0 * chosen[:-learned], chosen[-learned:] / network_total])
    half = (chosen + predicted) / 2
    errors = (some - y).abs()
    more = (some @ half - y[:, 0]).abs() - errors[:, errors[:, :-1].mean(0).argmin()]
    is_worse = more.mean() > more.std() / math.sqrt(len(more))
    return (chosen if is_worse else half).tolist()
