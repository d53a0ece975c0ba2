"""Estimators as files: parameters, what was learned of the data, and the network; no pickle.

They are tensor files, see :mod:`tauflow.tensorfile`.
"""

from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tauflow.data.scaler import Standard
from tauflow.errors import ArgumentError, DataNotFoundError, ModelFileError, TauflowError
from tauflow.export.files import description_of, module_of, tensors_of
from tauflow.option_types import misfit
from tauflow.recorded import python_number
from tauflow.tensorfile import read_tensor_file, write_tensor_file
from tauflow.training import Recipe

from .preparation import Preparation

KIND = "estimator"
VERSION = 1
"""Of what the facts of the file mean; a newer one is refused."""
_ADVICE = "Copy it again from its source, or fit and save the estimator anew."
_CLASSES = {kind.__name__: kind for kind in (Preparation, Recipe, Standard)}
_CHANCE = ("callbacks", "random_state")  # of a training to come, and no plain values
K = TypeVar("K")


def write_estimator(estimator: Any, path: Path) -> None:
    """Write a fitted estimator, replacing ``path`` in one step.

    Raises:
        ArgumentError: a parameter is no plain value.
    """
    parameters = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in _CHANCE or isinstance(value, Integral)
    }
    learned = {
        name: value
        for name, value in vars(estimator).items()
        if name not in estimator.get_params(deep=False) and name not in ("module_", "result_")
    }
    facts = {
        "version": VERSION,
        "class": type(estimator).__name__,
        "parameters": {name: _plain(name, value) for name, value in parameters.items()},
        "learned": {name: _plain(name, value) for name, value in learned.items()},
        "model": description_of(estimator.module_),
    }
    write_tensor_file(path, KIND, tensors_of(estimator.module_), facts)


def read_estimator(kind: type[K], path: Path) -> K:
    """Read an estimator that :func:`write_estimator` wrote.

    Raises:
        DataNotFoundError: there is no such file.
        ModelFileError: it is none of this estimator, is damaged, or from a newer version.
    """
    if not path.is_file():
        raise DataNotFoundError(f"{path} does not exist. Give the file that save wrote.")
    tensors, facts = read_tensor_file(path, KIND, error=ModelFileError, advice=_ADVICE)
    if facts.get("class") != kind.__name__:
        raise ModelFileError(
            f"{path} is a {facts.get('class')}, expected a {kind.__name__}. Load it with its class."
        )
    version = facts.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ModelFileError(
            f"{path} is an estimator of version {version}, and this tauflow reads up to {VERSION}. "
            "Upgrade tauflow: pip install --upgrade tauflow"
        )
    try:
        estimator = kind(**{k: _read(value) for k, value in facts["parameters"].items()})
        for name, value in facts["learned"].items():
            if hasattr(kind, name):
                raise ValueError(f"{name} is not learned")
            setattr(estimator, name, _read(value))
        model = facts["model"]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = error if isinstance(error, TauflowError) else repr(error)
        raise ModelFileError(f"{path} is damaged ({why}). {_ADVICE}") from error
    estimator.module_ = module_of(path, tensors, model).eval()  # type: ignore[attr-defined]
    return estimator


def _plain(name: str, value: Any) -> Any:
    """Return a value as JSON can hold it: what has a type of its own as ``{type: content}``."""
    value = python_number(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return {"array": [value.dtype.str, _plain(name, value.tolist())]}
    if isinstance(value, list):
        return [_plain(name, one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [_plain(name, one) for one in value]}
    if isinstance(value, Mapping):
        return {"mapping": [[_plain(name, k), _plain(name, v)] for k, v in value.items()]}
    if type(value).__name__ in _CLASSES:
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        return {type(value).__name__: _plain(name, own)}
    raise ArgumentError(
        f"{name} holds {value!r} ({type(value).__name__}), which no file of an estimator can. Keep "
        "the estimator with joblib.dump, or give plain values."
    )


def _read(value: Any) -> Any:
    """Return what :func:`_plain` wrote."""
    if isinstance(value, list):
        return [_read(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        dtype, entries = content
        return np.array(_read(entries), np.dtype(dtype))
    if kind == "tuple":
        return tuple(_read(content))
    if kind == "mapping":
        return {_read(k): _read(v) for k, v in content}
    known, given = _CLASSES[kind], _read(content)
    if wrong := misfit(known.__init__, given):
        raise TypeError(wrong)
    return known(**given)
