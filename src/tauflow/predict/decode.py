"""Values and classes of answers as the table of the training has them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.tabular.cell_values import Floats
from tauflow.tabular.fitted_schema import Label
from tauflow.tabular.options import BOOLEAN_LABELS, FLOAT_LABELS, INTEGER_LABELS
from tauflow.tabular.schema import Schema

DIGITS, DIGITS_OF_DOUBLE = 7, 15
"""How many digits of a number of single precision, and of double, are its own."""
MAX_PLACES = 300
"""Places to which a number cannot be rounded: ten to that power is about the largest of all."""


def round_to_precision(values: NDArray[Any], schema: Schema, digits: int) -> Floats:
    """Return values, (..., O), without the digits that the model's precision cannot mean."""
    assert schema.y_scale is not None
    places = digits - np.floor(np.log10(schema.y_scale.numpy())).astype(int)
    rounded = [
        np.round(column, place) if place < MAX_PLACES else column
        for column, place in zip(values.T, places.tolist(), strict=True)
    ]
    return np.stack(rounded, axis=-1)


def get_classes(labels: str, names: Sequence[str]) -> NDArray[Any]:
    """Return the classes, (C,), as what they are in the table.

    Args:
        labels: what they are there, see :class:`tauflow.data.Schema`.
        names: of the classes.

    Raises:
        ValueError: the name of one cannot be read as that.
    """
    if labels == BOOLEAN_LABELS:
        return np.array([("False", "True").index(name) for name in names], np.bool_)
    if labels == FLOAT_LABELS:
        return np.array(names, np.float64)
    if labels == INTEGER_LABELS:
        numbers = [int(name) for name in names]
        fit = all(abs(number) <= np.iinfo(np.int64).max for number in numbers)
        return np.array(numbers, np.int64 if fit else object)
    return np.array(names, object)


def list_targets(schema: Schema) -> tuple[Label, ...]:
    """Return the targets of a table of classes: its labels, or the only one."""
    return schema.labels or (Label(schema.targets[0], schema.outputs, schema.kind),)
