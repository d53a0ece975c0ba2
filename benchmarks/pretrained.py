"""Errors of the pretrained forecaster on real series it never saw, beside other forecasts.

Of each task it gets the past of the series, and of a table its other members. Ratios are to the
mean absolute error of the last value; a family counts once, by the geometric mean of its tasks.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tauflow.pretraining.blend import MIDDLE, fit_blend, fit_widths
from tauflow.pretraining.finetune import fine_tune
from tauflow.pretraining.inference import (
    ZeroShotAnswer,
    are_whole,
    forecast,
    gather_members,
    round_whole,
)
from tauflow.pretraining.network import QUANTILE_LEVELS, ZeroShotNetwork
from tauflow.pretraining.weights import WEIGHTS, load_weights

from .pretrained_families import FAMILIES, Task

SPLIT = json.loads(Path(__file__).with_name("pretrained_split.json").read_text(encoding="utf-8"))
METHODS = ("zero-shot", "blended", "seasonal naive", "fine-tuned", "boosting", "from scratch")
FITTED = ("fine-tuned", "from scratch")
"""Methods that are given but a few of the known members of a table."""
GROUPS = ("sensors", "people", "other")
_LAGS, _MOST_ROWS = 6, 6000
Quantiles = np.ndarray
Model = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray | None]
"""From times and values of a past and the times asked for to quantiles 0.1 to 0.9, (Q, 9).

It returns ``None`` of a series it cannot read; tasks with such a series are left out for it.
"""


def forecast_by_network(network: ZeroShotNetwork, task: Task) -> list[Quantiles]:
    """Return quantiles of each origin; members of a table are compared with the known ones."""
    return _round_whole(task, [answer.quantiles for answer in _read(network, task)])


def _round_whole(task: Task, forecasts: list[Quantiles]) -> list[Quantiles]:
    """Return quantiles, rounded where all known values are whole numbers."""
    known = [*task.known, *((origin.t, origin.y) for origin in task.origins)]
    return [round_whole(forecast_) for forecast_ in forecasts] if are_whole(known) else forecasts


def _read(network: ZeroShotNetwork, task: Task) -> list[ZeroShotAnswer]:
    contexts = [(origin.t, origin.y) for origin in task.origins]
    others = None
    if task.is_table:
        others = gather_members(task.known, [-1] * len(contexts))
    return forecast(network, contexts, [origin.q for origin in task.origins], others)


def forecast_blended(network: ZeroShotNetwork, task: Task) -> list[Quantiles]:
    """Return the same, blended where there are enough known members.

    Of one series, the own past says how wide intervals have to be.
    """
    answers, forecasts = _read(network, task), []
    shared = fit_blend(network, task.known) if task.is_table else None
    for origin, answer in zip(task.origins, answers, strict=True):
        past = origin.t, origin.y
        blend = shared if task.is_table else fit_widths(network, past)
        forecasts.append(answer.quantiles if blend is None else blend.apply(past, origin.q, answer))
    return _round_whole(task, forecasts)


def limit_members(task: Task, ids: int) -> Task:
    """Return a task with so many of the known members."""
    chosen = np.random.default_rng(1).permutation(len(task.known))[:ids]
    return task._replace(known=[task.known[place] for place in chosen])


def forecast_fine_tuned(network: ZeroShotNetwork, task: Task) -> list[Quantiles]:
    """Return forecasts after a fit to the known members, or to the one series."""
    tuned = fine_tune(network, task.known).network
    return forecast_blended(tuned, task)


def forecast_seasonally(task: Task) -> list[Quantiles]:
    """Return values of a season before, in place of all quantiles; without a season the last."""
    forecasts = []
    for origin in task.origins:
        values = np.full(len(origin.q), origin.y[-1])
        if task.season:
            length = task.season * np.median(np.diff(origin.t))
            back = origin.q - length * np.ceil((origin.q - origin.t[-1]) / length - 1e-9).clip(1)
            nearest = np.abs(origin.t[:, None] - back).argmin(0)
            values = origin.y[nearest]
        forecasts.append(np.repeat(values[:, None], len(QUANTILE_LEVELS), 1))
    return forecasts


def _list_lags(t: np.ndarray, y: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return inputs of boosting, (Q, F): last values and times, and how far ahead is asked."""
    count = min(len(t), _LAGS)
    pad = np.full(_LAGS - count, np.nan)
    ages, moves = t[-count:] - t[-1], y[-count:] - y[-1]
    features = [y[-1], *pad, *moves, *pad, *ages, y.mean() - y[-1], y.std(), len(y)]
    return np.column_stack([np.tile(features, (len(q), 1)), q - t[-1]])


def forecast_by_boosting(task: Task) -> list[Quantiles]:
    """Return medians of boosted trees that were fitted to lags of the known series."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    rng = np.random.default_rng(0)
    ahead = max(len(origin.q) for origin in task.origins)
    rows, targets = [], []
    each = int(np.clip(_MOST_ROWS // (4 * len(task.known)), 1, 400))
    for place in rng.permutation(len(task.known))[: _MOST_ROWS // 4]:
        t, y = task.known[place]
        for n in rng.integers(1, len(t), each):
            pick = rng.integers(n, min(len(t), n + ahead), 4)
            before = slice(max(0, n - 200), n)
            rows.append(_list_lags(t[before], y[before], t[pick]))
            targets.append(y[pick] - y[n - 1])
    model = HistGradientBoostingRegressor(
        loss="absolute_error", max_iter=120, max_leaf_nodes=15, learning_rate=0.07, random_state=0
    ).fit(np.concatenate(rows), np.concatenate(targets))
    forecasts = []
    for origin in task.origins:
        values = origin.y[-1] + model.predict(
            _list_lags(origin.t[-200:], origin.y[-200:], origin.q)
        )
        forecasts.append(np.repeat(values[:, None], len(QUANTILE_LEVELS), 1))
    return forecasts


def forecast_from_scratch(task: Task) -> list[Quantiles]:
    """Return medians of a forecaster that was fitted to the known series, by its defaults."""
    from tauflow.estimators import SequenceForecaster

    def to_frame(series: Iterable[tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
        parts = (pd.DataFrame({"id": n, "t": t, "y": y}) for n, (t, y) in enumerate(series))
        return pd.concat(parts, ignore_index=True)

    lead_time = max(float((origin.q - origin.t[-1]).max()) for origin in task.origins)
    forecaster = SequenceForecaster(max_lead_time=lead_time, random_state=0)
    chosen = np.random.default_rng(0).permutation(len(task.known))[:500]
    forecaster.fit(to_frame(task.known[place] for place in chosen), id="id", time="t")
    past = to_frame((origin.t, origin.y) for origin in task.origins)
    at = to_frame((origin.q, origin.target) for origin in task.origins).drop(columns="y")
    values = np.split(forecaster.predict(past, at=at)[:, 0], _ends(task)[:-1])
    return [np.repeat(value[:, None], len(QUANTILE_LEVELS), 1) for value in values]


def import_model(name: str) -> tuple[str, Model]:
    """Return a name, ``module:function``, and the function.

    Raises:
        argparse.ArgumentTypeError: no such object exists.
    """
    module, colon, function = name.partition(":")
    try:
        model: Model = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        reason = "" if colon else "it has no colon. "
        raise argparse.ArgumentTypeError(
            f"{name!r} names no function: {reason}{error}. Give module:function of a module that "
            "Python finds."
        ) from error
    return name, model


def forecast_by_model(name: str, model: Model, task: Task) -> list[Quantiles] | None:
    """Return quantiles of each origin by a model from outside; ``None`` if it cannot read one.

    Raises:
        ValueError: what it returned is not (Q, 9), not finite, or not in order.
    """
    forecasts = []
    for origin in task.origins:
        answer = model(origin.t.copy(), origin.y.copy(), origin.q.copy())
        if answer is None:
            return None
        quantiles, shape = np.asarray(answer, float), (len(origin.q), len(QUANTILE_LEVELS))
        if quantiles.shape != shape:
            raise ValueError(
                f"{name} returned quantiles of shape {quantiles.shape}, not {shape}: one row for "
                "each time asked for, with quantiles 0.1, 0.2, ... 0.9."
            )
        if not np.isfinite(quantiles).all() or (np.diff(quantiles, axis=1) < 0).any():
            raise ValueError(f"{name} returned quantiles that are not finite or not in order.")
        forecasts.append(quantiles)
    return forecasts


def _ends(task: Task) -> np.ndarray:
    return np.cumsum([len(origin.q) for origin in task.origins])


def measure(task: Task, forecasts: list[Quantiles]) -> dict[str, float]:
    """Return errors over that of the last value, and the share of values in 80 % intervals."""
    both, true = (
        np.concatenate(forecasts),
        np.concatenate([origin.target for origin in task.origins]),
    )
    last = np.concatenate([np.full(len(origin.q), origin.y[-1]) for origin in task.origins])
    base = np.abs(last - true).mean()
    levels = np.array(QUANTILE_LEVELS)
    error = true[:, None] - both
    return {
        "mae": float(np.abs(error[:, MIDDLE]).mean() / base),
        "pinball": float(2 * np.maximum(levels * error, (levels - 1) * error).mean() / base),
        "inside_80": float(((both[:, 0] <= true) & (true <= both[:, -1])).mean()),
    }


def run_method(name: str, network: ZeroShotNetwork, task: Task) -> list[Quantiles]:
    """Return the forecasts of a method."""
    if name == "zero-shot":
        return forecast_by_network(network, task)
    if name == "blended":
        return forecast_blended(network, task)
    if name == "fine-tuned":
        return forecast_fine_tuned(network, task)
    plain = {
        "seasonal naive": forecast_seasonally,
        "boosting": forecast_by_boosting,
        "from scratch": forecast_from_scratch,
    }
    return plain[name](task)


def _mean(rows: pd.DataFrame) -> pd.Series:
    """Return geometric means of errors, and means of shares, of rows."""
    errors = np.exp(np.log(rows[["mae", "pinball"]].clip(lower=1e-3)).mean())
    return pd.concat([errors, rows[["inside_80", "seconds"]].mean()])


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means by group, share that is dropped, and method: of tasks, then of families."""
    keys = ["group", "dropped", "method"]
    families = rows.groupby([*keys, "family"]).apply(_mean, include_groups=False).reset_index()
    everything = families.assign(group="all")
    return pd.concat([families, everything]).groupby(keys).apply(_mean, include_groups=False)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--split", default="test", choices=["development", "test"])
    parser.add_argument("--families", nargs="+", default=None, choices=list(FAMILIES))
    parser.add_argument("--methods", nargs="*", default=list(METHODS[:3]), choices=METHODS)
    parser.add_argument(
        "--model",
        nargs="+",
        type=import_model,
        default=[],
        metavar="MODULE:FUNCTION",
        help="others, from (past times, past values, times asked for) to quantiles",
    )
    parser.add_argument("--drop", nargs="+", type=float, default=[0.0], help="shares of the rows")
    parser.add_argument("--ids", type=int, default=20, help="known to what is fitted")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--out", type=Path, default=None, help="JSON file of the numbers")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print one row for each task and method, and means of families."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    network = load_weights(arguments.weights)
    models = dict(arguments.model)
    rows = []
    for family in arguments.families or SPLIT[arguments.split]:
        for drop in arguments.drop:
            for task in FAMILIES[family](drop):
                if len(task.origins) < 5:
                    continue
                few = limit_members(task, arguments.ids)
                for method in [*arguments.methods, *models]:
                    start = time.process_time()
                    if method in models:
                        answers = forecast_by_model(method, models[method], task)
                    else:
                        answers = run_method(method, network, few if method in FITTED else task)
                    if answers is None:
                        print(f"{method} does not read {family} {task.name}", flush=True)
                        continue
                    label = {"family": family, "task": task.name, "group": task.group}
                    label |= {"dropped": drop, "method": method, "origins": len(task.origins)}
                    spent = {"seconds": round(time.process_time() - start, 2)}
                    rows.append(label | measure(task, answers) | spent)
                    print(json.dumps(rows[-1]), flush=True)
    print(summarise(pd.DataFrame(rows)).to_string(float_format="{:.3f}".format))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
