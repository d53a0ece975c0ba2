"""Settings that no trial of a study has had, where there are so few that a draw may repeat some."""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import TPESampler

from tauflow._internal.sanitize import format_count

from .journal import get_ended_trials, is_conclusive
from .search_space import LogRange, SearchSpace

_MAX_COMBINATIONS = 10_000
"""Of more combinations than these, a draw hardly repeats one."""


def enumerate_space(space: SearchSpace) -> list[dict[str, Any]] | None:
    """Return all settings of a space, each once; ``None`` of one with real numbers, or a large one.

    Args:
        space: what is tried, by dotted name.
    """
    if any(isinstance(one, LogRange) and not _is_integer_range(one) for one in space.values()):
        return None
    values = {
        name: range(int(one.low), int(one.high) + 1) if isinstance(one, LogRange) else _unique(one)
        for name, one in space.items()
    }
    if math.prod(map(len, values.values())) > _MAX_COMBINATIONS:
        return None
    return [dict(zip(values, one, strict=True)) for one in itertools.product(*values.values())]


def _is_integer_range(one: LogRange) -> bool:
    return isinstance(one.low, int) and isinstance(one.high, int)


def _unique(values: Sequence[Any]) -> list[Any]:
    """Return values without those that are there before; lists and tables have no hash."""
    return [one for place, one in enumerate(values) if one not in values[:place]]


def get_tried_settings(trials: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the settings that trials came to an end with, or are under way or queued with."""
    return [
        one.system_attrs.get("fixed_params", one.params)
        for one in trials
        if is_conclusive(one) or not one.state.is_finished()
    ]


def count_pending_trials(
    study: Any, trials: int, space: SearchSpace, say: Callable[[str], None]
) -> int:
    """Return how many trials are to come: of a small space, no more than it has combinations.

    Args:
        study: in which no trial is under way.
        trials: that are to come to an end, those included that have.
        space: what is tried.
        say: called with a line if the space is exhausted before.
    """
    whole, known = get_ended_trials(study), enumerate_space(space)
    missing = trials - len(whole)
    if known is None or missing <= 0:
        return missing
    # Without those that are queued, which are to come.
    had = get_tried_settings(
        one for one in study.get_trials(deepcopy=False) if one.state.is_finished()
    )
    left = sum(one not in had for one in known)
    if not left and not whole:  # there are errors only, whose cause may be gone
        left = len(known)
    if left < missing:
        say(
            f"The values make {format_count(len(known), 'combination')} in all, and none is tried "
            "twice."
        )
    return min(missing, left)


def make_sampler(space: SearchSpace, seed: int) -> TPESampler:
    """Return what draws settings: Optuna's estimator of densities, so that it does not repeat any.

    Args:
        space: what is tried.
        seed: of what is drawn.
    """
    known = enumerate_space(space)
    return TPESampler(seed=seed) if known is None else NonRepeatingSampler(space, known, seed)


class NonRepeatingSampler(TPESampler):
    """Draws as Optuna's estimator does, but settings again only if no others are left.

    Processes that draw at the same moment may draw alike.

    Args:
        space: what is tried.
        known: all combinations of its values.
        seed: of what is drawn.
    """

    def __init__(self, space: SearchSpace, known: list[dict[str, Any]], seed: int) -> None:
        super().__init__(seed=seed)
        self.combinations, self.rng = known, random.Random(seed)
        self.distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(int(one.low), int(one.high), log=True)
            if isinstance(one, LogRange)
            else CategoricalDistribution(one)
            for name, one in space.items()
        }
        self.single = {k: known[0][k] for k, one in self.distributions.items() if one.single()}
        self.relative_space: dict[str, BaseDistribution] = {}

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, BaseDistribution]:
        """Return what is drawn together: everything, and not only what the estimator relates."""
        self.relative_space = super().infer_relative_search_space(study, trial)
        return self.distributions

    def sample_relative(
        self, study: Any, trial: Any, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw as the estimator does, and instead of what is no news one of those that are left."""
        drawn = self.single | super().sample_relative(study, trial, self.relative_space)
        for name, one in search_space.items():
            if name not in drawn:
                drawn[name] = self.sample_independent(study, trial, name, one)
        others = [one for one in study.get_trials(deepcopy=False) if one.number != trial.number]
        had = get_tried_settings(others)
        if drawn not in had:
            return drawn
        left = [one for one in self.combinations if one not in had]
        return self.rng.choice(left) if left else drawn
