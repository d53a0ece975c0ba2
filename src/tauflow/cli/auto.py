"""How ``tauflow run`` trains: one model as it is asked for, or a portfolio."""

from collections.abc import Callable
from typing import Any

from tauflow.errors import ArgumentError
from tauflow.runs.auto import run_auto
from tauflow.runs.portfolio import AUTO, AUTO_RECIPE, HIDDEN_SIZE
from tauflow.runs.task import TaskRun, run_task
from tauflow.training.defaults import DEFAULT_HIDDEN_SIZE, DEFAULT_RECIPE
from tauflow.training.recipe import Recipe

from .argument_parsing import parse_optional_seconds, split_names


def choose_training(
    model: str, time_limit: str | None
) -> tuple[Callable[..., TaskRun], Recipe, int]:
    """Return what trains, its recipe and the number of neurons.

    Args:
        model: as it was given.
        time_limit: as it was given.

    Raises:
        ArgumentError: the limit is no time span, or is given to a single model.
    """
    if model == AUTO:
        limit = parse_optional_seconds(time_limit)

        def train(source: Any, name: str, **options: Any) -> TaskRun:
            return run_auto(source, time_limit=limit, **options)

        return train, AUTO_RECIPE, HIDDEN_SIZE
    if AUTO in split_names(model):
        raise ArgumentError(
            f"--model {model}: {AUTO} makes a comparison of its own. Give it alone."
        )
    if time_limit is not None:
        raise ArgumentError(
            f"--time-limit goes with --model {AUTO}, which fits what it tries into a time. Give "
            f"--model {model} a number of --epochs."
        )
    return run_task, DEFAULT_RECIPE, DEFAULT_HIDDEN_SIZE
