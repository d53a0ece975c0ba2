"""What a user says of a table."""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING as REQUIRED
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, TypeVar

from tauflow._internal.checks import (
    check_at_least,
    check_bool,
    check_one_of,
    check_seed,
    check_within,
)
from tauflow.errors import ArgumentError

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    class TableKwargs(TypedDict, total=False):
        """The fields of :class:`TableOptions`, for checkers of types and editors."""

        id: str | None
        time: str | None
        target: str | Sequence[str] | None
        features: Sequence[str] | None
        task: str | None
        per_step: bool | None
        time_unit: str | None
        split: Sequence[float] | Mapping[str, Sequence[str]]
        split_seed: int
        sort: bool
        scale: bool
        group: str | None
        split_by: str
        long: Sequence[str] | None
        static: Sequence[str] | None
        duplicates: str
        time_format: str | None
        window: int | None
        stride: int | None
        horizon: int | None
        season: int | str | None
        delimiter: str
        decimal: str
        split_column: str | None
        known: Sequence[str] | None
        na_values: Sequence[str] | None
        weight: str | None


CLASSIFICATION, REGRESSION, NEXT_STEP = "classification", "regression", "next-step"
TABLE_TASKS = (CLASSIFICATION, REGRESSION, NEXT_STEP)
DEFAULT_SPLIT = (0.7, 0.15, 0.15)
BY_ID, BY_TIME = "id", "time"
SPLITS = ("train", "valid", "test")
COMMA = ","
READ_OPTIONS = frozenset(("delimiter", "decimal", "na_values"))
"""Options on how cells are read, and not on what columns are."""
AUTO = "auto"
DUPLICATES = ("error", "mean", "last")
DECIMALS = (".", ",")
LABELS = ("texts", "booleans", "whole numbers", "numbers")
TEXT_LABELS, BOOLEAN_LABELS, INTEGER_LABELS, FLOAT_LABELS = LABELS
"""What the cells of a target may be."""
LEAD_TIME_INPUT = "gap ahead"
"""Name of the input that says how far the row to predict is away."""
CATEGORY_NAME_FORMAT = "{}={}"
"""Name of the input that is 1 where a column holds a category."""
FUTURE_NAME_FORMAT = "{} +{}"
"""Name of a value so many rows later."""
INDICATOR_NAME_FORMAT = "{} measured"
"""Name of the input that says whether a feature was measured."""

Categories = tuple[tuple[str, tuple[str, ...]], ...]
"""Columns of text, each with its different texts."""

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class TableOptions:
    """Roles of the columns of a table, and how to split it.

    Args:
        id: column that identifies the sequence of a row. Without one, the table is a single
            sequence, which is split by time.
        time: column of times: numbers, or dates (ISO 8601 with hyphens, ``datetime64``). Without
            one, the rows of a sequence are one time step apart.
        target: column to predict, or several columns, all of numbers, or all with two classes each,
            which are labels. In next-step prediction, targets are inputs
            too; by default they are all numeric features.
        features: columns of the inputs; by default all others. They hold numbers, booleans, or
            text, which is a category: each category of a column is one input, 1 or 0. In a column
            with a categorical dtype, numbers are categories too.
        task: ``"classification"``, ``"regression"`` or ``"next-step"``. The default is next-step
            without a target; classification if the target is text, booleans, of a categorical
            dtype, or whole numbers with at most 20 different values; regression otherwise. With
            ``"classification"``, 01 and 1 in a CSV file are different classes.
        per_step: whether there is one target per row, rather than one per id. By default there is
            one per id if no id has two different ones.
        time_unit: what a time step of 1 in the batches is. The default, ``"auto"``, is the median
            time step of the training split, because time constants are initialised around 1.
            Otherwise the unit that dates are converted to; for numbers, which are left as they
            are, only its name. ``None`` is hours for dates, and leaves numbers as they are.
        split: fractions of the training, validation and test split, see ``split_by``; or the ids
            of each, ``{"train": [...], "valid": [...], "test": [...]}``, where ``"valid"`` may be
            omitted.
        split_seed: random seed of the split by ids or groups.
        sort: whether to sort the rows of an id by time; by default rows out of order are an error.
        scale: whether to scale features, and the targets of a regression, to mean 0 and standard
            deviation 1, as computed from the training split.
        group: column of ids that belong together, such as the patient, if each id is one day of
            that patient: all ids of a group are in the same split. By default ids are independent.
        split_by: ``"id"`` assigns ids, or groups, to the splits at random, stratified by class if
            each id has one. ``"time"`` is for few or single recordings with a target in each row:
            it cuts the rows of each id into early rows for training, later ones for validation and
            the last ones for the test. No row is in two splits, nor is the row that a next-step
            target is taken from. Each sequence starts with a time step of 0; an id with too few
            rows is used for training only. Each id is cut separately, so training rows of one may
            be later than test rows of another.
        long: columns of the variable and of its value, if each row holds one value, as in hospital
            and sensor records. Each variable becomes a feature, missing at times at which it was
            not measured. Rows may be in any order; other columns repeat the same value in each
            row of an id and time.
        static: columns, or variables of a long table, with one value per id, such as the age. The
            value may be in any row; it is an input of every step, and is not predicted.
        duplicates: what to do with several rows of one id and time: ``"error"``; ``"mean"`` of
            numbers and the last text, where classes to predict must agree; or ``"last"``. Groups
            and splits must always agree.
        time_format: format of times that are text, as in ``pandas.to_datetime``: ``%d.%m.%Y
            %H:%M``; it also applies to whole numbers such as 20240531 (``%Y%m%d``). ``"elapsed"``
            is for hours and minutes since a start, HH:MM, 24:37 or 107:05:30.5, with a sign or
            days before them. Offsets from UTC, such as +0200, are ``%z``; names of time zones,
            ``%Z``.
        window: rows per window: longer sequences are cut into windows, none of which crosses the
            boundary of a split. By default sequences are not cut.
        stride: rows from one window to the next; by default the length of a window, or with a
            horizon the length of the horizon. With fewer, a row is in several windows and counts
            once for each of them in losses and scores.
        horizon: rows after each window to predict at once, rather than the row after each row.
        season: rows after which values repeat, such as 24 for hours, or with times a span such as
            ``"24h"`` or ``"7 days"``, for the seasonal naive baseline. For tasks other than
            forecasts it is an error.
        delimiter: column separator of a CSV file; by default a comma, ``"tab"`` for tabs.
        decimal: decimal sign of numbers that are text, a point or a comma. Thousands separators
            are an error.
        split_column: column with the split of each id: ``train``, ``valid`` or ``test``.
        known: columns whose later values are known in advance, such as the hour of the day or a
            plan. They are not predicted: their values at the rows to predict are additional
            inputs. A table to predict ends with these rows for each id (one, or a horizon), with
            the columns to predict left empty.
        na_values: further texts that mean a missing value, such as ``["nil", "-", "?"]``, in every
            column, in this table and in those to predict. A number, such as -999, matches all
            numbers equal to it. Empty cells and NA, N/A, NaN, nan, null, NULL and <NA> are always
            missing.
        weight: column of numbers above 0, one per id: the weight of its sequences in the training
            loss. Validation and test scores are not weighted.

    Raises:
        ArgumentError: a value is outside its range, or two options contradict each other.
        UnknownNameError: no such task, or way to split.
    """

    id: str | None = None
    time: str | None = None
    target: str | Sequence[str] | None = None
    features: Sequence[str] | None = None
    task: str | None = None
    per_step: bool | None = field(default=None, metadata={"flags": ("--per-step/--per-id",)})
    time_unit: str | None = AUTO
    split: Sequence[float] | Mapping[str, Sequence[str]] = DEFAULT_SPLIT
    split_seed: int = 0
    sort: bool = False
    scale: bool = True
    group: str | None = None
    split_by: str = BY_ID
    long: Sequence[str] | None = None
    static: Sequence[str] | None = None
    duplicates: str = DUPLICATES[0]
    time_format: str | None = None
    window: int | None = None
    stride: int | None = None
    horizon: int | None = None
    season: int | str | None = None
    delimiter: str = COMMA
    decimal: str = DECIMALS[0]
    split_column: str | None = None
    known: Sequence[str] | None = None
    na_values: Sequence[str] | None = field(
        default=None, metadata={"flags": ("--na-values", "--missing")}
    )
    weight: str | None = None

    def __post_init__(self) -> None:
        for role in ("features", "static", "long", "known"):
            self._check_names(role)
        self._check_na_values()
        if self.long is not None and len(self.long) != 2:
            raise ArgumentError(
                f"long must name two columns, of the variable and of its value, got {self.long!r}."
            )
        check_one_of(DUPLICATES, duplicates=self.duplicates)
        check_one_of(DECIMALS, decimal=self.decimal)
        self._check_windows()
        if self.task is not None:
            check_one_of(TABLE_TASKS, task=self.task)
        if self.per_step is not None:
            check_bool(per_step=self.per_step)
        check_bool(sort=self.sort)
        check_bool(scale=self.scale)
        check_seed(32, split_seed=self.split_seed)  # all that NumPy's RandomState takes
        self._check_split()
        if self.time is None and (self.requested_unit is not None or self.sort):
            raise ArgumentError("time_unit and sort are for a column of times. Name it as time.")
        timed = self.long or self.time_format or self.duplicates != DUPLICATES[0]
        if self.time is None and timed:
            raise ArgumentError(
                "long, duplicates and time_format are for a column of times. Name it as time."
            )
        check_one_of((BY_ID, BY_TIME), split_by=self.split_by)
        if self.id is None:
            object.__setattr__(self, "split_by", BY_TIME)
        if self.split_by == BY_TIME and (self.group is not None or self.split_seed):
            name = "split_seed" if self.group is None else "group"
            raise ArgumentError(
                f"{name} is for a draw of ids, and split_by='time' draws none: it cuts each of "
                "them. Leave one of the two out."
            )

    def _check_names(self, role: str) -> None:
        names = getattr(self, role)
        if isinstance(names, str) or (names is not None and not names):
            raise ArgumentError(
                f"{role} must be a list of column names, got {names!r}. Name at least one, or "
                "leave it out."
            )

    def _check_na_values(self) -> None:
        """Hold what means missing as the texts that it is compared as."""
        if self.na_values is None:
            return
        if isinstance(self.na_values, str) or not self.na_values:
            raise ArgumentError(
                "na_values must be a list of texts that mean a missing value, got "
                f"{self.na_values!r}. Write for example ['nil', '-'], or leave it out."
            )
        object.__setattr__(self, "na_values", tuple(map(str, self.na_values)))

    def _check_split(self) -> None:
        """Check how the parts are made, and hold ids as the texts that they are compared as."""
        if not isinstance(self.split, Mapping):
            normalise_fractions(self.split)
        else:
            for part, ids in self.split.items():
                check_one_of(SPLITS, split=part)
                if isinstance(ids, str) or not len(ids):
                    raise ArgumentError(
                        f"split[{part!r}] must be a list of ids, at least one, got {ids!r}."
                    )
            lacking = next((part for part in ("train", "test") if part not in self.split), None)
            if lacking is not None:
                raise ArgumentError(f"split names no ids for {lacking!r}. Only 'valid' may lack.")
            texts = {part: tuple(map(str, ids)) for part, ids in self.split.items()}
            object.__setattr__(self, "split", texts)
        if not self.has_explicit_split:
            return
        others = {"group": self.group, "split_seed": self.split_seed, "id": self.id is None}
        others["split_by"] = self.split_by != BY_ID
        others["split"] = self.split_column is not None and self.split != DEFAULT_SPLIT
        wrong = next((name for name, value in others.items() if value), None)
        if wrong is not None:
            option = "split" if self.split_column is None else "split_column"
            needs = "and there is no id" if wrong == "id" else f"and so does {wrong}"
            raise ArgumentError(
                f"{option} says which ids are in which part, {needs}. "
                f"{'Name the column of the ids.' if wrong == 'id' else 'Leave one of them out.'}"
            )

    @property
    def has_explicit_split(self) -> bool:
        """Whether the user says which ids are in which part."""
        return self.split_column is not None or isinstance(self.split, Mapping)

    def _check_windows(self) -> None:
        if isinstance(self.season, str):
            if self.season.isdecimal():
                object.__setattr__(self, "season", int(self.season))
            elif self.time is None:
                raise ArgumentError(
                    f"season={self.season!r} is a span of time. Name the column of times, or give "
                    "the season in rows."
                )
        for name in ("window", "stride", "horizon", "season"):
            if isinstance(getattr(self, name), str):
                continue
            if getattr(self, name) is not None:
                check_at_least(1, **{name: getattr(self, name)})
                check_within(1, 2**31, **{name: getattr(self, name)})
                if name in ("stride", "horizon") and self.window is None:
                    raise ArgumentError(
                        f"{name} is for windows. Say how many rows one has: window."
                    )
        if self.horizon is not None and self.task not in (None, NEXT_STEP):
            raise ArgumentError(
                f"horizon is for forecasts, not for task={self.task!r}. Leave one of them out."
            )

        if self.known and not self.is_forecast:
            raise ArgumentError(
                "known is for forecasts: columns whose later values are known ahead. Leave it out."
            )

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict, if any are named."""
        if self.target is None:
            return ()
        return (self.target,) if isinstance(self.target, str) else tuple(self.target)

    @property
    def is_forecast(self) -> bool:
        """Whether later values of the inputs are predicted."""
        return not self.targets or self.task == NEXT_STEP or self.horizon is not None

    @property
    def requested_unit(self) -> str | None:
        """The unit that is asked for by its name."""
        return None if self.time_unit == AUTO else self.time_unit

    @property
    def resplit_advice(self) -> str:
        """How to split otherwise, for a message."""
        if self.has_explicit_split:
            return "otherwise"
        if self.split_by == BY_TIME:
            return "at other fractions (--split)"
        return "with another split_seed (--split-seed)"


def with_table_options(function: F) -> F:
    """Show the fields of :class:`TableOptions` where a function takes them as ``**options``.

    In its signature they stand before its own keywords; in its docstring, for ``{options}``.
    """
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "options"]
    option_parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is REQUIRED else field.default,
            annotation=field.type,
        )
        for field in fields(TableOptions)
    ]
    shown = inspect.Signature(
        [parameters[0], *option_parameters, *parameters[1:]], return_annotation="TaskData"
    )
    function.__signature__ = shown  # type: ignore[attr-defined]
    if function.__doc__ and TableOptions.__doc__:  # python -OO leaves none
        arguments = TableOptions.__doc__.partition("Args:")[2].partition("Raises:")[0].strip()
        function.__doc__ = function.__doc__.replace("{options}", arguments)
    return function


def parse_option_docs() -> dict[str, str]:
    """Return what the docstring of :class:`TableOptions` tells of each of its fields."""
    docstring = inspect.getdoc(TableOptions) or ""  # python -OO leaves none
    parts = re.split(
        r"^    (\w+): ", docstring.partition("Args:")[2].partition("Raises:")[0], flags=re.M
    )
    return {
        name: " ".join(text.split()) for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def normalise_fractions(split: object) -> tuple[float, float, float]:
    """Return the fractions of the three parts, which add up to 1.

    Args:
        split: three numbers in any proportion, such as (0.7, 0.15, 0.15) or (70, 15, 15); only the
            second, of the validation split, may be 0.

    Raises:
        ArgumentError: they are not such numbers.
    """
    if isinstance(split, str) or not isinstance(split, Sequence) or len(split) != 3:
        raise ArgumentError(
            f"split must be three numbers, for training, validation and test, got {split!r}. Write "
            "for example 0.7, 0.15, 0.15."
        )
    train, valid, test = (check_within(0.0, math.inf, split=part) for part in split)
    if train == 0 or test == 0:
        raise ArgumentError(
            f"split must leave something for training and test, got {tuple(split)}. Only the "
            "second number, of the validation split, may be 0."
        )
    total = train + valid + test
    return train / total, valid / total, test / total
