"""How a table is read: what is said of it, what was guessed, and what was learned of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.checks import find_type_mismatch
from tauflow._internal.json_io import parse_json, to_lists, to_tuples
from tauflow.batch import SequenceBatch
from tauflow.data.imputation import IMPUTE_STRATEGIES
from tauflow.data.scaler import StandardScaler
from tauflow.errors import ArgumentError, DataError, DataNotFoundError

from .option_names import check_option_names
from .options import AUTO, BY_TIME, CLASSIFICATION, TEXT_LABELS, Categories, TableOptions
from .sequences import format_names

if TYPE_CHECKING:
    from tauflow.data.card import TaskData

_VERSION = 1
"""Of what a JSON file says; a newer one is refused."""


class Role(NamedTuple):
    """What a column is for.

    Args:
        name: such as id, time, target or left out.
        reason: why.
    """

    name: str
    reason: str = ""


def _no_numbers() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True, eq=False, repr=False)
class Schema(TableOptions):
    """How a table is read: roles of columns, and what is computed from the training split.

    The first fields, those of :class:`TableOptions`, are what is said of a table. They are the
    arguments of :func:`tauflow.data.from_table`, which fits a schema to a table and returns it as
    ``data.schema``; :meth:`guess` fills them in by what the columns hold. The others are learned
    when the schema is fitted, and are empty before. All tables are read by the same schema:
    :meth:`fit` one to a table, and :meth:`transform` any.

    Args:
        dtypes: what each column holds, by name, as far as it was looked at.
        guesses: columns whose role was guessed, each with that role and the reason.
        decided: fields that were left open, and were decided when the schema was fitted.
        ids: ids of ``"train"``, ``"valid"`` and ``"test"``, in the order of their sequences. An id
            that was cut by time is in several.
        inputs: name of every input of x: features first, then what was added to them.
        x_mean: of every input, over the training part, (I,).
        x_scale: its standard deviation there, (I,): x is (value - mean) / scale; 0 of an input that
            was constant there, which is 0 whatever its value.
        outputs: name of every target value, or of every class.
        y_mean: as ``x_mean``, of every target value, (O,); ``None`` for classes.
        y_scale: as ``x_scale``, but 1 of a constant.
        dated: whether its times were dates, and not numbers.
        unit: what its times are counted in: that of numbers, hours or what was asked for of dates.
        gap: how many of them a gap of 1 in the batches is; of any table that is read alike, too.
        ahead: of a forecast, how many of them a row is ahead on average, or over a horizon in the
            median.
        categories: columns of text, each with its categories in the training part.
        unseen: columns of text with the categories that only the other parts had: all inputs of the
            column are 0 there.
        variables: of a long table.
        kind: of classes, what they are in the table (``outputs`` has their names): ``"texts"``,
            ``"booleans"``, ``"whole numbers"`` or ``"numbers"``.
        groups: of each id of the test part, its group, where groups were given.
        fill: where inputs say what was measured, what stands for a missing value: the ``"last"``
            one of the sequence, or the ``"mean"``, as it was before there was a choice.
        observed: whether batches say by ``observed`` which features are missing.
    """

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
    unit: str = field(default="row", kw_only=True)
    gap: float = field(default=1.0, kw_only=True)
    ahead: float | None = field(default=None, kw_only=True)
    categories: Categories = field(default=(), kw_only=True)
    unseen: Categories = field(default=(), kw_only=True)
    variables: tuple[str, ...] = field(default=(), kw_only=True)
    kind: str = field(default=TEXT_LABELS, kw_only=True)
    groups: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    fill: str = field(default=IMPUTE_STRATEGIES[1], kw_only=True)
    observed: bool = field(default=False, kw_only=True)

    # Made, edited and fitted.

    @classmethod
    def guess(cls, table: Any, **options: Any) -> "Schema":
        """Return what a table seems to be; :attr:`reasons` says why.

        Args:
            table: as :func:`tauflow.data.from_table` takes it.
            **options: fields of :class:`TableOptions` that are known, and not guessed. ``None`` as
                ``id``, ``time``, ``target`` or ``long`` says that there is none.

        Raises:
            OptionError: there is no such option.
            TauflowError: the file is no table, or has no such column.
            DataError: the table cannot be read so.
        """
        from .roles import guess_roles

        check_option_names(options)
        found = guess_roles(table, options)
        if found.problem is not None:
            raise DataError(f"the guessed roles do not fit: {found.problem}")
        return found.schema

    def replace(self, **options: Any) -> "Schema":
        """Return the schema with other options, not fitted; what else was said or guessed stays.

        Raises:
            OptionError: there is no such option.
            ArgumentError, UnknownNameError: as of :class:`TableOptions`.
        """
        check_option_names(options)
        return Schema(**{**self.get_options(), **options}, dtypes=self.dtypes, guesses=self.guesses)

    def get_options(self) -> dict[str, Any]:
        """Return the fields of :class:`TableOptions`; those that a fit decided are left out."""
        return {
            one.name: getattr(self, one.name)
            for one in fields(TableOptions)
            if one.name not in self.decided
        }

    def load(self, table: Any, *, missing: str = "observed", name: str | None = None) -> "TaskData":
        """Return the three parts of a table, and as ``.schema`` this one, fitted to them.

        Args:
            table: as :func:`tauflow.data.from_table` takes it.
            missing: see there.
            name: see there.
        """
        from .read import load_table

        return load_table(table, self.replace(), missing=missing, name=name)

    def fit(self, table: Any, *, missing: str = "observed") -> "Schema":
        """Return the schema, fitted to the training part of a table; see :meth:`load`."""
        return cast("Schema", self.load(table, missing=missing).schema)

    def transform(
        self,
        table: Any,
        *,
        targets: bool = False,
        lead_time: float | None = None,
        delimiter: str | None = None,
        decimal: str | None = None,
    ) -> SequenceBatch:
        """Return the sequences of a table, one for each id in the order of their first rows.

        Columns, units and scales are those that were learned; see
        :func:`tauflow.data.transform_table`, also for the other arguments.

        Args:
            table: as :func:`tauflow.data.from_table` takes it.
            targets: whether the table holds what is to be predicted, as y: to score answers, or to
                go on training. Ids without a target are left out then; a forecast over a horizon
                is made from windows, as in the training.
            lead_time: see there.
            delimiter: see there.
            decimal: see there.

        Raises:
            ArgumentError: the schema is not fitted; see also there.
        """
        from .transform import transform

        said = {"lead_time": lead_time, "delimiter": delimiter, "decimal": decimal}
        return transform(self, table, targets=targets, **said)[1]

    # What it says.

    @property
    def is_fitted(self) -> bool:
        """Whether means, scales, categories and classes are known."""
        return bool(self.inputs)

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
        variable, value = self.long or (None, None)
        named = {
            "id": (self.id,),
            "time": (self.time,),
            "group": (self.group,),
            "weight": (self.weight,),
            "part": (self.split_column,),
            "target": self.targets,
            "variable": (variable,),
            "value": (value,),
            "static": self.static or (),
            "known": self.known or (),
        }
        for role, names in named.items():
            for name in names:
                if name is not None:
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
            told.append(f"Times: {kind} in {self.unit}; a gap of 1 is {self.gap:.6g} of them.")
        elif self.time is not None:
            unit = "the median gap" if self.time_unit == AUTO else str(self.time_unit)
            told.append(f"Times: a gap of 1 is {unit}.")
        if texts := self.na_values:
            told.append(f"Missing: empty cells, NA, NaN, null, {format_names(texts, 12)}.")
        if self.has_explicit_split:
            told.append("Split: as given.")
        elif self.task is not None or not self.is_fitted:  # an estimator splits by itself
            how = "by time" if self.split_by == BY_TIME else f"by id, seed {self.split_seed}"
            told.append(f"Split: {', '.join(f'{share:g}' for share in self.split)}, {how}.")
        return told

    def __eq__(self, other: object) -> bool:
        if type(other) is not Schema:
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

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the schema as JSON, and write it to a file if a path is given.

        Which ids are in which part is left out, as ids may be names of people; a split that names
        them is kept, since it is an option.
        """
        text = json.dumps({"version": _VERSION, **self.to_dict()}, indent=1)
        if path is not None:
            write_atomically(Path(path), text.encode())
        return text

    @classmethod
    def from_json(cls, source: str | Path) -> "Schema":
        """Return the schema that :meth:`to_json` wrote.

        Args:
            source: the text, or the path of the file.

        Raises:
            DataNotFoundError: there is no such file.
            DataError: it holds no schema, or one of a newer version.
        """
        text = str(source)
        if isinstance(source, Path) or not text.lstrip().startswith("{"):
            try:
                text = Path(source).expanduser().read_text(encoding="utf-8")
            except OSError as error:
                raise DataNotFoundError(f"{source} cannot be read ({error}).") from error
        try:
            facts = parse_json(text)
            version = facts.pop("version")
            if version > _VERSION:
                raise DataError(
                    f"the schema is of version {version}, and this tauflow reads up to {_VERSION}. "
                    "Upgrade tauflow: pip install --upgrade tauflow"
                )
            return cls.from_dict(facts)
        except DataError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise DataError(f"this is no schema that to_json wrote ({error}).") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON can hold it, without ids of parts."""
        learned = [one.name for one in fields(self) if one.name not in ("ids", "groups")]
        facts = {name: getattr(self, name) for name in learned}
        return {
            name: value.tolist() if isinstance(value, Tensor) else to_lists(value)
            for name, value in facts.items()
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "Schema":
        """Return the schema that :meth:`to_dict` described.

        Raises:
            TypeError: a field is not of its type.
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
        said["guesses"] = {name: Role(*one) for name, one in said.get("guesses", {}).items()}
        if wrong := find_type_mismatch(cls.__init__, said):
            raise TypeError(wrong)
        return cls(**said)


def as_schema(options: TableOptions) -> Schema:
    """Return options as a schema that is not fitted."""
    if isinstance(options, Schema):
        return options
    return Schema(**{one.name: getattr(options, one.name) for one in fields(TableOptions)})


def _inverse_transform(values: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Return values, (..., C), that were scaled, on their own device."""
    if values.device.type == "mps":  # which has no double precision
        mean, scale = mean.float(), scale.float()
    return values * scale.to(values.device) + mean.to(values.device)
