"""The fields of a schema: what is said of a table, what was guessed, and what was learned."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import check_one_of, find_type_mismatch
from tauflow._internal.json_io import to_lists, to_tuples
from tauflow.data.card import check_labels

from .fitted_schema import FittedSchema, Label
from .option_names import list_role_columns
from .options import (
    AUTO,
    BY_TIME,
    CATEGORY_NAME_FORMAT,
    CLASSIFICATION,
    TableOptions,
)
from .sequences import format_names
from .shift import read_summary

if TYPE_CHECKING:
    from typing_extensions import Self


class Role(NamedTuple):
    """What a column is for.

    Args:
        name: such as id, time, target or left out.
        reason: why.
    """

    name: str
    reason: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class SchemaFields(FittedSchema, TableOptions):
    """What is said of a table, and what was learned of it; see :class:`tauflow.data.Schema`."""

    dtypes: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    guesses: Mapping[str, Role] = field(default_factory=dict, kw_only=True)
    decided: tuple[str, ...] = field(default=(), kw_only=True)

    def get_options(self) -> dict[str, Any]:
        """Return the fields of :class:`TableOptions`; those that a fit decided are left out."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(TableOptions)
            if field.name not in self.decided
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
    def roles(self) -> dict[str, str]:
        """The role of every column that has one."""
        roles: dict[str, str] = {}
        for role, names in list_role_columns(vars(self)).items():
            for name in names:
                roles.setdefault(name, role)
        listed = self.dtypes if self.features is None else self.features
        roles |= {name: "feature" for name in listed if name not in roles}
        return {**dict.fromkeys(self.dtypes, "left out"), **roles}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why columns have the roles that were guessed, other than a feature; a line for each."""
        now, lines = self.roles, []
        guesses = {n: r for n, r in self.guesses.items() if r.name == now.get(n, r.name)}
        for role in dict.fromkeys(
            guess.name for guess in guesses.values() if guess.name != "feature"
        ):
            reasons = {name: guess.reason for name, guess in guesses.items() if guess.name == role}
            same = len(set(reasons.values())) == 1
            each = [repr(n) if same else f"{n!r} ({why})" for n, why in reasons.items()]
            why = f" ({next(iter(reasons.values()))})" if same and any(reasons.values()) else ""
            lines.append(f"{role[:1].upper()}{role[1:]}: {', '.join(each)}{why}.")
        return tuple(lines)

    def __repr__(self) -> str:
        """Show the options that differ from their defaults."""
        defaults = {field.name: field.default for field in fields(TableOptions)}
        shown = (f"{k}={v!r}" for k, v in self.get_options().items() if v != defaults[k])
        return f"Schema({', '.join(shown)})"

    def __str__(self) -> str:
        """Show a line for every column, then task, times, split and reasons."""
        categories, lines = dict(self.categories), []
        numbers = zip(self.x_mean.tolist(), self.x_scale.tolist(), strict=True)
        scales = dict(zip(self.inputs, numbers, strict=True))
        for name, role in self.roles.items():
            description = ""
            if name in categories:
                description = f"categories {format_names(categories[name], 12)}"
            elif name in scales:
                mean, scale = scales[name]
                description = (
                    f"mean {mean:.4g}, scale {scale:.4g}" if scale else f"constant, {mean:.4g}"
                )
            lines.append((name, role, self.dtypes.get(name, ""), description))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        cells = ([c.ljust(w) for c, w in zip(line, widths, strict=True)] for line in lines)
        rows = ["  ".join(line).rstrip() for line in cells]
        title = f"Schema, {'' if self.is_fitted else 'not '}fitted"
        return "\n".join([title, *rows, *self._describe_rest(), *self.reasons])

    def _describe_rest(self) -> list[str]:
        sentences = []
        if self.task is not None:
            whose = "" if self.per_step is None else " per row" if self.per_step else " per id"
            named = "classes" if self.task == CLASSIFICATION else "of"
            outputs = f": {named} {format_names(self.outputs, 12)}" if self.outputs else ""
            sentences.append(f"Task: {self.task}, one target{whose}{outputs}.")
        if self.time is not None and self.is_fitted:
            kind = "dates" if self.dated else "numbers"
            sentences.append(f"Times: {kind} in {self.unit}; a time step of 1 is {self.gap:.6g}.")
        elif self.time is not None:
            unit = "the median" if self.time_unit == AUTO else str(self.time_unit)
            sentences.append(f"Times: a time step of 1 is {unit}.")
        if texts := self.na_values:
            sentences.append(f"Missing: empty cells, NA, NaN, null, {format_names(texts, 12)}.")
        if self.has_explicit_split:
            sentences.append("Split: as given.")
        elif self.task is not None or not self.is_fitted:  # an estimator splits by itself
            how = "by time" if self.split_by == BY_TIME else f"by id, seed {self.split_seed}"
            sentences.append(f"Split: {', '.join(f'{share:g}' for share in self.split)}, {how}.")
        return sentences

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SchemaFields):
            return NotImplemented
        return self.to_dict() == other.to_dict() and self.ids == other.ids

    __hash__ = None  # type: ignore[assignment]  # it holds tensors and mappings

    # As JSON.

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON can hold it, without ids of parts."""
        learned = [field.name for field in fields(self) if field.name not in ("ids", "groups")]
        entries = {name: getattr(self, name) for name in learned}
        return {
            name: value.tolist() if isinstance(value, Tensor) else to_lists(value)
            for name, value in entries.items()
        }

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> "Self":
        """Return the schema that :meth:`to_dict` described.

        Raises:
            TypeError: a field is not of its type.
            ValueError: fields contradict each other.
        """
        values = {name: to_tuples(value) for name, value in entries.items()}
        if "options" in values:  # as written before there was one object for all of it
            options = {k: to_tuples(v) for k, v in entries["options"].items()}
            decided = () if values.pop("named", False) else ("features",)
            values = {**values, **options, "decided": (*decided, "task", "per_step"), "ids": {}}
            del values["options"]
            values.pop("groups", None)
        for name in ("x_mean", "x_scale", "y_mean", "y_scale"):
            if values.get(name) is not None:
                values[name] = torch.tensor(values[name], dtype=torch.float64)
        values.pop("ordinal", None)
        if specs := values.pop("target_specs", ()):
            check_labels(specs)
            values["labels"] = [(name, *more) for name, _, *more in specs]
            values["task"] = CLASSIFICATION
        values["labels"] = tuple(Label(*label) for label in values.get("labels", ()))
        values["guesses"] = {
            name: Role(*guess) for name, guess in values.get("guesses", {}).items()
        }
        if wrong := find_type_mismatch(cls.__init__, values):
            raise TypeError(wrong)
        schema = cls(**values)
        schema.check()
        _check_agreement(schema)
        read_summary(schema.summary)
        if len(schema.gap_summary) not in (0, 3):
            raise ValueError("gap_summary has another length than 3")
        return schema


def _check_agreement(schema: SchemaFields) -> None:
    """Raise :class:`ValueError` if what was learned is not of the features that are said."""
    features = schema.features or ()
    names = [name for name, _ in schema.categories]
    lists = [features, names, schema.variables, schema.inputs, schema.outputs]
    lists += [texts for _, texts in schema.categories]
    if any(len({*listed}) < len(listed) for listed in lists) or not {*names} <= {*features}:
        raise ValueError("a feature, input, output, variable or category is there twice, or none")
    columns = schema.list_columns()
    if schema.is_fitted and (not columns or schema.inputs[: len(columns)] != tuple(columns)):
        raise ValueError("the inputs do not begin with the features")
    for name in schema.decided:
        check_one_of([field.name for field in fields(TableOptions)], decided=name)
