"""Estimators as files: parameters, what was learned of the data, and the network; no pickle.

They are tensor files, see :mod:`tauflow._internal.tensor_file`.
"""

import os
from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tauflow._internal.checks import find_type_mismatch
from tauflow._internal.init_args import to_python_number
from tauflow._internal.regular_file import check_file_path
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.data.scaler import StandardScaler
from tauflow.data.table.schema import Schema
from tauflow.errors import ArgumentError, ModelFileError, TauflowError
from tauflow.evaluation.conformal import Conformal
from tauflow.export.files import build_module, collect_tensors, get_file_config
from tauflow.runs.portfolio import Trial
from tauflow.training import Recipe

from .preparation import Preparation

KIND = "estimator"
VERSION = 1
"""Of what the facts of the file mean; a newer one is refused."""
ESTIMATOR_FILE = "estimator.safetensors"
"""Name of the file in the folder of a run that leaves an estimator."""
_ADVICE = "Copy it again from its source, or fit and save the estimator again."
_CLASSES: dict[str, type[Any]] = {
    "Conformal": Conformal,
    "Preparation": Preparation,  # of files of earlier versions
    "Recipe": Recipe,
    "Standard": StandardScaler,
    "Trial": Trial,
}
_CLASS_NAMES = {kind: name for name, kind in _CLASSES.items()}
_UNSAVED_PARAMETERS = ("callbacks", "random_state")  # of a training to come, and no plain values
K = TypeVar("K")


def write_estimator(estimator: Any, path: Path) -> None:
    """Write a fitted estimator, replacing ``path`` in one step."""
    parameters = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in _UNSAVED_PARAMETERS or isinstance(value, Integral)
    }
    learned = {
        name: value
        for name, value in vars(estimator).items()
        if name not in estimator.get_params(deep=False) and name not in ("module_", "result_")
    }
    facts = {
        "version": VERSION,
        "class": type(estimator).__name__,
        "parameters": {name: _to_json_value(name, value) for name, value in parameters.items()},
        "learned": {name: _to_json_value(name, value) for name, value in learned.items()},
        "model": get_file_config(estimator.module_),
    }
    write_tensor_file(path, KIND, collect_tensors(estimator.module_), facts)


def read_estimator(kind: type[K], path: str | Path) -> K:
    """Read an estimator that :func:`write_estimator` wrote."""
    if path and isinstance(path, str | Path):
        in_run = os.path.join(path, ESTIMATOR_FILE)
        path = in_run if os.path.isfile(in_run) else path
    path = check_file_path(path, "an estimator", advice="Give the file that save wrote.")
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
        estimator = kind(**{k: _from_json_value(value) for k, value in facts["parameters"].items()})
        for name in facts["learned"]:
            if hasattr(kind, name):
                raise ValueError(f"{name} is not learned")
        learned = {name: _from_json_value(value) for name, value in facts["learned"].items()}
        vars(estimator).update(upgrade_state(learned))
        model = facts["model"]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = error if isinstance(error, TauflowError) else repr(error)
        raise ModelFileError(f"{path} is damaged ({why}). {_ADVICE}") from error
    estimator.module_ = build_module(path, tensors, model).eval()  # type: ignore[attr-defined]
    return estimator


def upgrade_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return what an estimator has learned, with a schema for what earlier versions kept."""
    if "preparation_" not in state:
        return state
    kept = {k: v for k, v in state.items() if k not in ("preparation_", "_columns")}
    columns, old = state.get("_columns", {}), state["preparation_"]
    if isinstance(columns, tuple):  # before others than id and time were known
        columns = dict(zip(("id", "time"), columns, strict=False))
    said = {name: value for name, value in columns.items() if value is not None}
    names = state.get("feature_names_in_", range(len(old.features.mean)))
    schema = Schema(**{"variables": (), **said}, features=tuple(map(str, names)))
    return {**kept, "schema_": old.complete(schema)}


def _to_json_value(name: str, value: Any) -> Any:
    """Return a value as JSON can hold it: what has a type of its own as ``{type: content}``."""
    value = to_python_number(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return {"array": [value.dtype.str, _to_json_value(name, value.tolist())]}
    if isinstance(value, list):
        return [_to_json_value(name, one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [_to_json_value(name, one) for one in value]}
    if isinstance(value, Mapping):
        return {
            "mapping": [
                [_to_json_value(name, k), _to_json_value(name, v)] for k, v in value.items()
            ]
        }
    if isinstance(value, Schema):
        return {"Schema": _to_json_value(name, value.to_dict())}
    if type(value) in _CLASS_NAMES:
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        return {_CLASS_NAMES[type(value)]: _to_json_value(name, own)}
    raise ArgumentError(
        f"{name} holds {value!r} ({type(value).__name__}), which no file of an estimator can. Keep "
        "the estimator with joblib.dump, or give plain values."
    )


def _from_json_value(value: Any) -> Any:
    """Return what :func:`_to_json_value` wrote."""
    if isinstance(value, list):
        return [_from_json_value(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        dtype, entries = content
        return np.array(_from_json_value(entries), np.dtype(dtype))
    if kind == "tuple":
        return tuple(_from_json_value(content))
    if kind == "mapping":
        return {_from_json_value(k): _from_json_value(v) for k, v in content}
    given = _from_json_value(content)
    if kind == "Schema":
        return Schema.from_dict(given)
    known = _CLASSES[kind]
    if wrong := find_type_mismatch(known.__init__, given):
        raise TypeError(wrong)
    return known(**given)
