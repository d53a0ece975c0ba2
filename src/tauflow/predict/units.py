"""Values and classes of answers as the table of the training has them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.evaluation.tidy import make_tidy_frame
from tauflow.tabular.cell_values import Floats
from tauflow.tabular.options import BOOLEAN_LABELS, FLOAT_LABELS, INTEGER_LABELS
from tauflow.tabular.schema import Schema

if TYPE_CHECKING:
    from pandas import DataFrame

DIGITS, DIGITS_OF_DOUBLE = 7, 15
"""How many digits of a number of single precision, and of double, are its own."""
MAX_PLACES = 300
"""Places to which a number cannot be rounded: ten to that power is about the largest of all."""


def round_to_precision(values: NDArray[Any], schema: Schema, digits: int) -> Floats:
    """Return values, (..., O), without the digits that the model's precision cannot mean."""
    assert schema.y_scale is not None
    places = digits - np.floor(np.log10(schema.y_scale.numpy())).astype(int)
    rounded = [
        np.round(one, place) if place < MAX_PLACES else one
        for one, place in zip(values.T, places.tolist(), strict=True)
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


def name_decisions(values: NDArray[Any], schema: Schema, digits: int) -> list[NDArray[Any]]:
    """Return the columns of values and numbers of classes, (R, S), as the table has them."""
    rounded = round_to_precision(values, schema, digits)
    return [
        get_classes(spec.labels, spec.classes)[column.astype(int)] if spec.classes else column
        for spec, column in zip(schema.target_specs, rounded.T, strict=True)
    ]


def stack_targets(
    cases: "DataFrame", probabilities: NDArray[Any], schema: Schema, told: list[NDArray[Any]]
) -> "DataFrame":
    """Return one row for each value, and for each class, of each of several targets.

    Args:
        cases: columns that say what each of R answers is for.
        probabilities: of the classes of all targets, (R, K).
        schema: on the targets.
        told: what is predicted of each target, (R,) each.
    """
    pandas = require("pandas", extra="tables")
    first, frames, order = 0, [], []
    for spec, predicted in zip(schema.target_specs, told, strict=True):
        names = list(spec.classes)
        order.append(np.repeat(np.arange(len(cases)), len(names) or 1))
        if not names:
            frames.append(make_tidy_frame(cases, {"target": [spec.name]}, [predicted[:, None]]))
            continue
        said = {"target": [spec.name] * len(names), "class": names}
        own = probabilities[:, first : first + len(names)]
        frame = make_tidy_frame(cases, said, [own], name="probability")
        is_predicted = get_classes(spec.labels, spec.classes) == predicted[:, None]
        frames.append(frame.assign(predicted=is_predicted.ravel()))
        first += len(names)
    stacked = pandas.concat(frames, ignore_index=True)
    return stacked.iloc[np.concatenate(order).argsort(kind="stable")].reset_index(drop=True)
