"""Sequences with their times as one object that scikit-learn can index."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from tauflow._internal.checks import check_one_of
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError
from tauflow.tabular.options import CATEGORY_NAME_FORMAT
from tauflow.tabular.schema import Schema
from tauflow.tabular.sequences import Sequences

from .input_kwargs import InputKwargs, with_input_kwargs
from .preparation import compare_with_training
from .reading import get_fitted_names, read_rows, remember
from .targets import align_to_sequences

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SequenceCollection:
    """Sequences with their times, in a form that scikit-learn can index.

    ``len(X)`` is the number of sequences, and ``X[places]`` is a collection of some of them. So
    cross validation, searches, calibration and scores by name take it as they take an array, with
    one target for each sequence.

    Args:
        X: as for :meth:`tauflow.estimators.SequenceClassifier.fit`.
        layout: of 3-D arrays: ``"BTI"`` (sequences, time, features) or ``"BIT"``.
        {given}

    """

    @with_input_kwargs
    def __init__(self, X: Any, *, layout: str = "BTI", **kwargs: "Unpack[InputKwargs]") -> None:
        reader = BaseEstimator()
        self._rows = read_rows(reader, X, layout=layout, is_series_2d=False, reset=True, **kwargs)
        is_named = hasattr(reader, "feature_names_in_")
        self._schema = reader.schema_ if is_named else replace(reader.schema_, features=None)

    @property
    def _names(self) -> list[str]:
        """Names of the columns of rows; none of arrays."""
        return [] if self._schema.features is None else self._schema.list_columns()

    @property
    def ids(self) -> NDArray[Any] | None:
        """Of a table, the id of each sequence, (B,), in the order in which they first occur."""
        ids: NDArray[Any] | None = self._rows.ids
        return ids

    @property
    def shape(self) -> tuple[int]:
        """The number of sequences, as of an array of one axis."""
        return (len(self),)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, places: Any) -> "SequenceCollection":
        """Return some of the sequences, given by numbers, booleans or a slice."""
        which = np.atleast_1d(np.arange(len(self))[places])
        part = object.__new__(SequenceCollection)
        part._rows, part._schema = self._rows.select(which), self._schema
        return part

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise ArgumentError(
            "a SequenceCollection is for the estimators of tauflow, and cannot be made an array."
        )

    def __repr__(self) -> str:
        names = f" of {', '.join(self._names)}" if self._names else ""
        return f"SequenceCollection({format_count(len(self), 'sequence')}{names})"

    def per_sequence(self, values: Any) -> NDArray[Any]:
        """Return one value for each sequence, (B,), such as targets, weights or groups.

        Args:
            values: one per row of the table, all alike in a sequence; or one per id: a Series of
                pandas whose index holds the ids, in any order.

        Raises:
            ArgumentError: the sequences come from no table, or are some of those of another
                collection.
            DataError: rows of one sequence have different values, or an id has none; or a Series
                is called as one of the features, which would tell a model its target.
        """
        if self._rows.source is None:
            raise ArgumentError(
                "per_sequence is for a collection of all sequences of a table. Index its result."
            )
        name = getattr(values, "name", None)
        if name is not None and name in self._names:
            raise DataError(
                f"values is called {name!r}, and so is a feature of X. Drop that column from the "
                "table, or give values as an array if both are meant."
            )
        return align_to_sequences("values" if name is None else str(name), values, self._rows)


def read_collection(
    estimator: Any, X: SequenceCollection, kwargs: InputKwargs, *, reset: bool
) -> Sequences:
    """Return the sequences of a collection, with the features of an estimator."""
    for name, value in kwargs.items():
        if value is not None:
            raise ArgumentError(
                f"{name} is for the sequences themselves: give it to SequenceCollection."
            )
    rows = replace(X._rows, source=None)
    if X._schema.features is None:
        validate_data(estimator, rows.values, reset=reset, ensure_all_finite="allow-nan")
    elif get_fitted_names(estimator, reset=reset) is not None:
        rows = _select_columns(rows, X, estimator.schema_)
    if reset:
        remember(estimator, X._schema, one_step=False)
    else:
        targets = getattr(estimator, "target_features_", ())
        compare_with_training(estimator.schema_, rows, targets)
    return rows


def _select_columns(rows: Sequences, X: SequenceCollection, fitted: Schema) -> Sequences:
    """Return rows with the columns of a fitted schema; categories that they lack are 0 in all."""
    schema, names = X._schema, fitted.list_columns()
    columns = dict(zip(X._names, rows.values.T, strict=True))
    for feature in fitted.features or ():
        check_one_of(schema.features or (), feature=feature)
        texts = dict(schema.categories).get(feature, ())
        for text in set(texts) - set(dict(fitted.categories).get(feature, ())):
            if columns[CATEGORY_NAME_FORMAT.format(feature, text)].any():
                raise DataError(
                    f"column {feature!r} holds {text!r}, a category that the table of the training "
                    "had not. Correct it, or leave the cell empty."
                )
    lacking = np.zeros(len(rows.values))
    values = np.stack([columns.get(name, lacking) for name in names], axis=1)
    return replace(rows, values=values, number_count=len(fitted.list_number_columns()))
