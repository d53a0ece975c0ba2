"""Estimators as files: parameters, what was learned of the data, and the network; no pickle.

They are tensor files, see :mod:`tauflow._internal.tensor_file`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tauflow._internal.allocation_limit import limit_allocations
from tauflow._internal.init_args import to_python_number
from tauflow._internal.regular_file import check_file_path
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.data.scaler import StandardScaler
from tauflow.errors import ArgumentError, ModelFileError
from tauflow.evaluation.conformal import Conformal
from tauflow.export.files import (
    build_module,
    collect_tensors,
    convert_damage,
    get_file_config,
)
from tauflow.predict.files import ESTIMATOR_FILE
from tauflow.runs.portfolio import Trial
from tauflow.tabular.schema import Schema
from tauflow.training import Recipe

from .preparation import Preparation

if TYPE_CHECKING:
    from typing_extensions import Self

KIND = "estimator"
VERSION = 1
"""Of what the facts of the file mean; a newer one is refused."""
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
_UNSAVED_ATTRIBUTES = ("module_", "result_")
_DTYPES = re.compile(r"[<>=|]?(b1|[iu][1248]|f[248]|O|U\d+)|[<>=]?[mM]8\[[a-z]{1,2}\]")
"""The dtypes of arrays in a file."""
_ENTRIES: dict[str, set[type]] = {"O": {str, bool, int, float, type(None)}, "U": {str}}
"""Types of the entries of arrays, by the kind of their dtype; those of others are numbers."""
_MAX_PADDING = 4  # how many characters of an array of texts may be for each that is one of a text
K = TypeVar("K")


class SavableEstimator:
    """An estimator that is fitted once it has a network, and is kept in a file then."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a file that :meth:`load` reads, without pickle.

        It holds no row of the data. Callbacks, a ``RandomState`` and ``result_`` are left out.

        Args:
            path: by convention ending in ``.safetensors``.

        Raises:
            ArgumentError: a parameter is no plain value.
        """
        check_is_fitted(self)
        write_estimator(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Self":
        """Read an estimator of this class that :meth:`save` wrote; its network is on the CPU.

        The path may also be the folder of a run that left one, as ``tauflow forecast`` does.

        Raises:
            DataNotFoundError: there is no such file.
            ModelFileError: it is of another class, is damaged, or from a newer version.
        """
        return read_estimator(cls, path)


def write_estimator(estimator: Any, path: Path) -> None:
    """Write a fitted estimator, replacing ``path`` in one step."""
    parameters = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in _UNSAVED_PARAMETERS or isinstance(value, Integral)
    }
    there, names = vars(estimator), _get_learned_types(type(estimator))
    learned = {name: there[name] for name in names if name in there}
    metadata = {
        "version": VERSION,
        "class": type(estimator).__name__,
        "parameters": {name: _to_json_value(name, value) for name, value in parameters.items()},
        "learned": {name: _to_json_value(name, value) for name, value in learned.items()},
        "model": get_file_config(estimator.module_),
    }
    write_tensor_file(path, KIND, collect_tensors(estimator.module_), metadata)


def read_estimator(kind: type[K], path: str | Path) -> K:
    """Read an estimator that :func:`write_estimator` wrote."""
    if path and isinstance(path, str | Path):
        in_run = os.path.join(path, ESTIMATOR_FILE)
        path = in_run if os.path.isfile(in_run) else path
    path = check_file_path(path, "an estimator", advice="Give the file that save wrote.")
    tensors, metadata = read_tensor_file(path, KIND, error=ModelFileError, advice=_ADVICE)
    if metadata.get("class") != kind.__name__:
        raise ModelFileError(
            f"{path} is a {metadata.get('class')}, expected a {kind.__name__}. "
            "Load it with its class."
        )
    version = metadata.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ModelFileError(
            f"{path} is an estimator of version {version}, and this tauflow reads up to {VERSION}. "
            "Upgrade tauflow: pip install --upgrade tauflow"
        )
    with convert_damage(path, advice=_ADVICE), limit_allocations(tensors):
        parameters = {k: _from_json_value(value) for k, value in metadata["parameters"].items()}
        learned = {name: _from_json_value(value) for name, value in metadata["learned"].items()}
        learned = upgrade_state(learned)
        if unknown := learned.keys() - _get_learned_types(kind):
            raise ValueError(f"{', '.join(unknown)} is not learned")
        estimator: Any = kind(**parameters)
        vars(estimator).update(learned)
        model = metadata["model"]
    estimator.module_ = build_module(path, tensors, model).eval()
    return estimator  # type: ignore[no-any-return]


def _get_learned_types(kind: type) -> dict[str, Any]:
    """Return the types of what ``fit`` learns, by attribute, as classes annotate them.

    Parameters have no underscore at either end of their names.
    """
    return {
        name: annotation
        for name, annotation in get_type_hints(kind).items()
        if name.strip("_") != name and name not in _UNSAVED_ATTRIBUTES
        if get_origin(annotation) is not ClassVar
    }


def upgrade_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return what an estimator has learned, with a schema for what earlier versions kept."""
    if "preparation_" not in state:
        return state
    unchanged = {k: v for k, v in state.items() if k not in ("preparation_", "_columns")}
    columns, old = state.get("_columns", {}), state["preparation_"]
    if isinstance(columns, tuple):  # before others than id and time were known
        columns = dict(zip(("id", "time"), columns, strict=False))
    options = {name: value for name, value in columns.items() if value is not None}
    names = state.get("feature_names_in_", range(len(old.features.mean)))
    schema = Schema(**{"variables": (), **options}, features=tuple(map(str, names)))
    return {**unchanged, "schema_": old.complete(schema)}


def _to_json_value(name: str, value: Any) -> Any:
    """Return a value as JSON can hold it: what has another type as ``{type: content}``."""
    value = to_python_number(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return {"array": [value.dtype.str, _to_json_value(name, value.tolist())]}
    if isinstance(value, list):
        return [_to_json_value(name, item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_to_json_value(name, item) for item in value]}
    if isinstance(value, Mapping):
        return {
            "mapping": [
                [_to_json_value(name, k), _to_json_value(name, v)] for k, v in value.items()
            ]
        }
    if isinstance(value, Schema):
        return {"Schema": _to_json_value(name, value.to_dict())}
    if type(value) in _CLASS_NAMES:
        state = {field.name: getattr(value, field.name) for field in fields(value)}
        return {_CLASS_NAMES[type(value)]: _to_json_value(name, state)}
    raise ArgumentError(
        f"{name} holds {value!r} ({type(value).__name__}), which no file of an estimator can. Keep "
        "the estimator with joblib.dump, or give plain values."
    )


def _from_json_value(value: Any) -> Any:
    """Return what :func:`_to_json_value` wrote."""
    if isinstance(value, list):
        return [_from_json_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        return _to_array(*content)
    if kind == "tuple":
        return tuple(_from_json_value(content))
    if kind == "mapping":
        return {_from_json_value(k): _from_json_value(v) for k, v in content}
    arguments = _from_json_value(content)
    return Schema.from_dict(arguments) if kind == "Schema" else _CLASSES[kind](**arguments)


def _to_array(dtype: str, entries: list[Any]) -> NDArray[Any]:
    """Return an array, whose size is that of its entries, whatever its dtype says.

    Texts of very different lengths stay objects, as an array of texts pads all to the longest.
    """
    if not _DTYPES.fullmatch(dtype) or not isinstance(entries, list):
        raise ValueError(f"an array has a dtype such as '<f8' and a list of entries, got {dtype!r}")
    values, kind = np.array(entries, object), dtype.lstrip("<>=|")[0]
    cells = values.ravel().tolist()
    if not {*map(type, cells)} <= _ENTRIES.get(kind, {bool, int, float}):
        raise ValueError(f"the entries of an array are not of its dtype {dtype!r}")
    if kind == "U":
        lengths = [len(cell) for cell in cells]
        is_even = len(cells) * max(lengths, default=0) <= _MAX_PADDING * sum(lengths) + (1 << 16)
        return values.astype(str) if is_even else values
    return values.astype(dtype)
