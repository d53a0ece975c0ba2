"""The fields of a schema: what is said of a table, what was guessed, and what was learned."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import check_one_of, check_positive, check_within, find_type_mismatch
from tauflow._internal.json_io import to_lists, to_tuples
from tauflow.data.card import check_labels
from tauflow.data.imputation import IMPUTE_STRATEGIES
from tauflow.data.scaler import StandardScaler
from tauflow.errors import ArgumentError

from .option_names import list_role_columns
from .options import (
    AUTO,
    BY_TIME,
    CATEGORY_NAME_FORMAT,
    CLASSIFICATION,
    LABELS,
    TEXT_LABELS,
    Categories,
    TableOptions,
)
from .sequences import format_names
from .shift import Summary, read_summary
from .times import UNITS

if TYPE_CHECKING:
    from typing_extensions import Self


NO_TIMES = "row"
"""The unit of sequences without times."""
LINEAR = "linear"
"""What stands for a missing value of an imputer: interpolation, of who has no value the mean."""


class Role(NamedTuple):
    """What a column is for.

    Args:
        name: such as id, time, target or left out.
        reason: why.
    """

    name: str
    reason: str = ""


class Label(NamedTuple):
    """One of several targets with two classes each.

    Args:
        name: of the column.
        classes: what 0 and 1 are called.
        kind: what they are in the table, as of a single target.
    """

    name: str
    classes: tuple[str, ...]
    kind: str = TEXT_LABELS


def _no_numbers() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True, eq=False, repr=False)
class SchemaFields(TableOptions):
    """The fields of a :class:`tauflow.data.Schema`, and what follows from them; see there."""

    dtypes: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    guesses: Mapping[str, Role] = field(default_factory=dict, kw_only=True)
    decided: tuple[str, ...] = field(default=(), kw_only=True)
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    inputs: tuple[str, ...] = field(default=(), kw_only=True)
    x_mean: Tensor = field(default_factory=_no_numbers, kw_only=True)
    x_scale: Tensor = field(default_factory=_no_numbers, kw_only=True)
    outputs: tuple[str, ...] = field(default=(), kw_only=True)
    y_mean: Tensor | None = field(default=None, kw_only=True)
    y_scale: Tensor | None = field(default=None, kw_only=True)
    dated: bool = field(default=False, kw_only=True)
    unit: str = field(default=NO_TIMES, kw_only=True)
    gap: float = field(default=1.0, kw_only=True)
    ahead: float | None = field(default=None, kw_only=True)
    categories: Categories = field(default=(), kw_only=True)
    unseen: Categories = field(default=(), kw_only=True)
    variables: tuple[str, ...] = field(default=(), kw_only=True)
    kind: str = field(default=TEXT_LABELS, kw_only=True)
    labels: tuple[Label, ...] = field(default=(), kw_only=True)
    groups: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    fill: str = field(default=IMPUTE_STRATEGIES[1], kw_only=True)
    observed: bool = field(default=False, kw_only=True)
    summary: Summary = field(default_factory=dict, kw_only=True)
    gap_summary: tuple[float, ...] = field(default=(), kw_only=True)
    limit: float = field(default=0.0, kw_only=True)

    def get_options(self) -> dict[str, Any]:
        """Return the fields of :class:`TableOptions`; those that a fit decided are left out."""
        return {
            one.name: getattr(self, one.name)
            for one in fields(TableOptions)
            if one.name not in self.decided
        }

    # What it says.

    def list_number_columns(self) -> list[str]:
        """Return the features that are numbers, in the order of the inputs."""
        texts = dict(self.categories)
        return [name for name in self.features or () if name not in texts]

    def list_columns(self) -> list[str]:
        """Return the names of the inputs that are features: numbers, and one for each category."""
        format_name = CATEGORY_NAME_FORMAT.format
        of_texts = [format_name(name, text) for name, texts in self.categories for text in texts]
        return [*self.list_number_columns(), *of_texts]

    @property
    def is_fitted(self) -> bool:
        """Whether means, scales, categories and classes are known."""
        return bool(self.inputs)

    @property
    def is_timed(self) -> bool:
        """Whether its sequences have times."""
        return self.unit != NO_TIMES

    @property
    def is_class(self) -> bool:
        """Whether classes are predicted; of a fitted schema."""
        return self.y_scale is None

    @property
    def input_scaler(self) -> StandardScaler:
        """Means and scales of the inputs."""
        return StandardScaler(self.x_mean.numpy(), self.x_scale.numpy())

    @property
    def target_scaler(self) -> StandardScaler | None:
        """Means and scales of the targets; ``None`` of classes."""
        if self.y_mean is None or self.y_scale is None:
            return None
        return StandardScaler(self.y_mean.numpy(), self.y_scale.numpy())

    @property
    def roles(self) -> dict[str, str]:
        """The role of every column that has one."""
        found: dict[str, str] = {}
        for role, names in list_role_columns(vars(self)).items():
            for name in names:
                found.setdefault(name, role)
        listed = self.dtypes if self.features is None else self.features
        found |= {name: "feature" for name in listed if name not in found}
        return {**dict.fromkeys(self.dtypes, "left out"), **found}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why columns have the roles that were guessed, other than a feature; a line for each."""
        now, lines = self.roles, []
        guesses = {n: r for n, r in self.guesses.items() if r.name == now.get(n, r.name)}
        for role in dict.fromkeys(one.name for one in guesses.values() if one.name != "feature"):
            found = {name: one.reason for name, one in guesses.items() if one.name == role}
            same = len(set(found.values())) == 1
            each = [repr(n) if same else f"{n!r} ({why})" for n, why in found.items()]
            why = f" ({next(iter(found.values()))})" if same and any(found.values()) else ""
            lines.append(f"{role[:1].upper()}{role[1:]}: {', '.join(each)}{why}.")
        return tuple(lines)

    def __repr__(self) -> str:
        """Show the options that differ from their defaults."""
        defaults = {one.name: one.default for one in fields(TableOptions)}
        said = (f"{k}={v!r}" for k, v in self.get_options().items() if v != defaults[k])
        return f"Schema({', '.join(said)})"

    def __str__(self) -> str:
        """Show a line for every column, then task, times, split and reasons."""
        categories, lines = dict(self.categories), []
        numbers = zip(self.x_mean.tolist(), self.x_scale.tolist(), strict=True)
        scales = dict(zip(self.inputs, numbers, strict=True))
        for name, role in self.roles.items():
            told = ""
            if name in categories:
                told = f"categories {format_names(categories[name], 12)}"
            elif name in scales:
                mean, scale = scales[name]
                told = f"mean {mean:.4g}, scale {scale:.4g}" if scale else f"constant, {mean:.4g}"
            lines.append((name, role, self.dtypes.get(name, ""), told))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        cells = ([c.ljust(w) for c, w in zip(line, widths, strict=True)] for line in lines)
        rows = ["  ".join(line).rstrip() for line in cells]
        title = f"Schema, {'' if self.is_fitted else 'not '}fitted"
        return "\n".join([title, *rows, *self._describe_rest(), *self.reasons])

    def _describe_rest(self) -> list[str]:
        told = []
        if self.task is not None:
            whose = "" if self.per_step is None else " per row" if self.per_step else " per id"
            named = "classes" if self.task == CLASSIFICATION else "of"
            outputs = f": {named} {format_names(self.outputs, 12)}" if self.outputs else ""
            told.append(f"Task: {self.task}, one target{whose}{outputs}.")
        if self.time is not None and self.is_fitted:
            kind = "dates" if self.dated else "numbers"
            told.append(f"Times: {kind} in {self.unit}; a time step of 1 is {self.gap:.6g}.")
        elif self.time is not None:
            unit = "the median" if self.time_unit == AUTO else str(self.time_unit)
            told.append(f"Times: a time step of 1 is {unit}.")
        if texts := self.na_values:
            told.append(f"Missing: empty cells, NA, NaN, null, {format_names(texts, 12)}.")
        if self.has_explicit_split:
            told.append("Split: as given.")
        elif self.task is not None or not self.is_fitted:  # an estimator splits by itself
            how = "by time" if self.split_by == BY_TIME else f"by id, seed {self.split_seed}"
            told.append(f"Split: {', '.join(f'{share:g}' for share in self.split)}, {how}.")
        return told

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SchemaFields):
            return NotImplemented
        return self.to_dict() == other.to_dict() and self.ids == other.ids

    __hash__ = None  # type: ignore[assignment]  # it holds tensors and mappings

    # Scales.

    def unscale(self, y: Tensor) -> Tensor:
        """Return targets or predictions, (..., O), in the units of the table.

        In double precision: in single, values near 1e8 lie 8 apart.

        Raises:
            ArgumentError: the targets are classes.
        """
        if self.y_mean is None or self.y_scale is None:
            told = "outputs[prediction.argmax(-1)]"
            raise ArgumentError(f"the targets are classes, without a scale; take {told}.")
        return _inverse_transform(y, self.y_mean, self.y_scale)

    def unscale_inputs(self, x: Tensor) -> Tensor:
        """Return inputs, (..., I), as :meth:`unscale` does; the mean where not observed."""
        return _inverse_transform(x, self.x_mean, self.x_scale)

    # As JSON.

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON can hold it, without ids of parts."""
        learned = [one.name for one in fields(self) if one.name not in ("ids", "groups")]
        facts = {name: getattr(self, name) for name in learned}
        return {
            name: value.tolist() if isinstance(value, Tensor) else to_lists(value)
            for name, value in facts.items()
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "Self":
        """Return the schema that :meth:`to_dict` described.

        Raises:
            TypeError: a field is not of its type.
            ValueError: fields contradict each other, see :func:`check_learned`.
        """
        said = {name: to_tuples(value) for name, value in facts.items()}
        if "options" in said:  # as written before there was one object for all of it
            options = {k: to_tuples(v) for k, v in facts["options"].items()}
            decided = () if said.pop("named", False) else ("features",)
            said = {**said, **options, "decided": (*decided, "task", "per_step"), "ids": {}}
            del said["options"]
            said.pop("groups", None)
        for name in ("x_mean", "x_scale", "y_mean", "y_scale"):
            if said.get(name) is not None:
                said[name] = torch.tensor(said[name], dtype=torch.float64)
        said.pop("ordinal", None)
        if specs := said.pop("target_specs", ()):
            check_labels(specs)
            said["labels"] = [(name, *more) for name, _, *more in specs]
            said["task"] = CLASSIFICATION
        said["labels"] = tuple(Label(*one) for one in said.get("labels", ()))
        said["guesses"] = {name: Role(*one) for name, one in said.get("guesses", {}).items()}
        if wrong := find_type_mismatch(cls.__init__, said):
            raise TypeError(wrong)
        schema = cls(**said)
        check_learned(schema)
        read_summary(schema.summary)
        return schema


def check_learned(schema: SchemaFields) -> None:
    """Raise :class:`ValueError` if fields that are learned could not come from one table."""
    schema.input_scaler.check(len(schema.inputs))
    scaler, features = schema.target_scaler, schema.features or ()
    if (schema.y_mean is None) is not (schema.y_scale is None):
        raise ValueError("values have a mean and a scale, and classes have none")
    if scaler is not None:
        scaler.check(len(schema.outputs))
        if scaler.is_constant.any():
            raise ValueError("a scale of the targets is 0")
    names = [name for name, _ in schema.categories]
    lists = [features, names, schema.variables, schema.inputs, schema.outputs]
    lists += [texts for _, texts in schema.categories]
    if any(len({*found}) < len(found) for found in lists) or not {*names} <= {*features}:
        raise ValueError("a feature, input, output, variable or category is there twice, or none")
    columns = schema.list_columns()
    if schema.is_fitted and (not columns or schema.inputs[: len(columns)] != tuple(columns)):
        raise ValueError("the inputs do not begin with the features")
    for name in schema.decided:
        check_one_of([one.name for one in fields(TableOptions)], decided=name)
    check_one_of(LABELS, kind=schema.kind)
    check_one_of((*IMPUTE_STRATEGIES, LINEAR), fill=schema.fill)
    check_within(1e-30, 1e30, gap=schema.gap)  # in single precision, with its reciprocal
    check_positive(ahead=1.0 if schema.ahead is None else schema.ahead)
    check_positive(limit=schema.limit or 1.0)
    if schema.dated:
        check_one_of(UNITS, unit=schema.unit)


def _inverse_transform(values: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Return values, (..., C), that were scaled, on their own device."""
    if values.device.type == "mps":  # which has no double precision
        mean, scale = mean.float(), scale.float()
    return values * scale.to(values.device) + mean.to(values.device)
