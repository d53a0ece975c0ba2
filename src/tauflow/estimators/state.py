"""What an estimator holds: as it was if a fit fails, and what its network was built of."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor

from tauflow.errors import ArgumentError
from tauflow.models.registry import get_model_info
from tauflow.runs.portfolio import AUTO

from .training import list_models


@contextmanager
def restore_on_failure(estimator: object) -> Iterator[None]:
    """Give an object back the attributes that it had, where the block raises anything.

    Only which attributes there are, and what stands in them: what the block is to keep whole, such
    as the weights of a network, it must not change in place.
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        for name in vars(estimator).keys() - before.keys():
            delattr(estimator, name)
        vars(estimator).update(before)
        raise


def copy_option(value: Any) -> Any:
    """Return an option that later changes of mappings, lists and arrays in it do not reach.

    Anything else in it, such as a function, is the very object, and so is the same for
    :func:`is_same_option`.
    """
    if isinstance(value, Mapping):
        return {name: copy_option(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(copy_option, value))
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.detach().clone() if isinstance(value, Tensor) else value


def is_same_option(option: Any, other: Any) -> bool:
    """Whether two options say the same; arrays do if all of their entries do."""
    if isinstance(option, Mapping) and isinstance(other, Mapping):
        return option.keys() == other.keys() and all(
            is_same_option(option[k], other[k]) for k in option
        )
    if type(option) in (list, tuple) and type(option) is type(other):
        return len(option) == len(other) and all(map(is_same_option, option, other))
    if isinstance(option, Tensor | np.ndarray) and type(option) is type(other):
        return np.array_equal(option, other)
    return option is other or bool(np.all(option == other))


def check_parameters(estimator: Any, reads_ahead: str) -> None:
    """Check types of parameters, and that they go with the model.

    Args:
        estimator: whose parameters.
        reads_ahead: what a model would read that goes backwards in time; empty if it may.

    Raises:
        ArgumentError: options are no mapping, callbacks no list, the model reads what it is to
            predict, or there is a time limit for a single model.
    """
    for name, kind, words in (("options", Mapping, "mapping"), ("callbacks", Sequence, "list")):
        value = getattr(estimator, name)
        if value is not None and not isinstance(value, kind):
            raise ArgumentError(f"{name} must be a {words}, got {value!r}.")
    model, options = estimator.model, estimator.options or {}
    if model == AUTO:
        return
    if estimator.time_limit is not None:
        raise ArgumentError(
            f"time_limit goes with model={AUTO!r}, which fits what it tries into a time. Set "
            f"epochs for model={model!r}."
        )
    names = list_models(model)
    if len(names) > 1 and not estimator._is_ensemble:
        raise ArgumentError(
            f"{type(estimator).__name__} takes the name of one model, got {model!r}."
        )
    ahead = [name for name in names if not get_model_info(name).is_causal(options)]
    if reads_ahead and ahead:
        raise ArgumentError(
            f"model={ahead[0]!r} with these options reads {reads_ahead}. Choose one that goes "
            "forwards in time only."
        )


def check_params_match(estimator: object, fitted_params: Mapping[str, Any]) -> None:
    """Raise :class:`ArgumentError` if parameters are not those that a network was built with."""
    for name, value in fitted_params.items():
        if not is_same_option(getattr(estimator, name), value):
            raise ArgumentError(
                f"warm_start goes on with the network of the fit before, whose {name} was "
                f"{value!r} and is {getattr(estimator, name)!r} now. Set it back, or set "
                "warm_start=False."
            )
