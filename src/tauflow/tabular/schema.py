"""How a table is read: what is said of it, what was guessed, and what was learned of it."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.json_io import parse_json
from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.errors import DataError, DataNotFoundError

from .load import load_table
from .option_names import check_option_names
from .options import TableOptions
from .schema_fields import SchemaFields
from .transform import transform

_VERSION = 1
"""Of what a JSON file says; a newer one is refused."""


@dataclass(frozen=True, eq=False, repr=False)
class Schema(SchemaFields):
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
        x_mean: of every input, over the training split, (I,).
        x_scale: its standard deviation there, (I,): x is (value - mean) / scale; 0 of an input that
            was constant there, which is 0 whatever its value.
        outputs: name of every target value, or of every class.
        y_mean: as ``x_mean``, of every target value, (O,); ``None`` for classes.
        y_scale: as ``x_scale``, but 1 of a constant.
        dated: whether its times were dates, and not numbers.
        zoned: whether these dates had a time zone; ``None`` if it is not known.
        unit: what its times are counted in: that of numbers, hours or what was asked for of dates.
        gap: how many of them a time step of 1 in the batches is; of any table that is read alike,
            too.
        ahead: of a forecast, how many of them a row is ahead on average, or over a horizon in the
            median.
        categories: columns of text, each with its categories in the training split.
        unseen: columns of text with the categories that only the other parts had: all inputs of the
            column are 0 there.
        variables: of a long table.
        kind: of classes, what they are in the table (``outputs`` has their names): ``"texts"``,
            ``"booleans"``, ``"whole numbers"`` or ``"numbers"``.
        labels: of several targets with two classes each, what these are; their ``y_mean`` is 0 and
            their ``y_scale`` 1.
        groups: of each id of the test split, its group, where groups were given.
        fill: where inputs say what was measured, what stands for a missing value: the ``"last"``
            one of the sequence, or the ``"mean"``, as it was before there was a choice.
        observed: whether batches say by ``observed`` which features are missing.
        summary: of each feature that is a number, what it was like in the training split: sequences
            there, share of them with a value, least and largest value, standard deviation, and five
            quantiles; later tables are compared with it.
        gap_summary: quantiles of the time steps there.
        limit: scaled inputs x of an estimator level off there, as x / sqrt(1 + (x / limit)²); 0:
            they do not.
    """

    @classmethod
    def guess(cls, table: Any, **options: Any) -> "Schema":
        """Return what a table seems to be; :attr:`reasons` says why.

        Args:
            table: as :func:`tauflow.data.from_table` takes it.
            **options: fields of :class:`TableOptions` that are known, and not guessed. ``None`` as
                ``id``, ``time``, ``target`` or ``long`` says that no column has that role.

        Raises:
            OptionError: there is no such option.
            TauflowError: the file is no table, or has no such column.
            DataError: the table cannot be read so.
        """
        from .describe import describe_table  # which reads by schemas

        check_option_names(options)
        description = describe_table(table, options)
        if description.problem is not None:
            raise DataError(
                f"the roles that columns seem to have do not fit: {description.problem}"
            )
        holds = {name: column.profile.holds for name, column in description.columns.items()}
        return cls(**description.options, dtypes=holds, guesses=description.roles)

    def replace(self, **options: Any) -> "Schema":
        """Return the schema with other options, not fitted; what else was said or guessed stays.

        Raises:
            OptionError: there is no such option.
            ArgumentError, UnknownNameError: as of :class:`TableOptions`.
        """
        check_option_names(options)
        return Schema(**{**self.get_options(), **options}, dtypes=self.dtypes, guesses=self.guesses)

    def load(self, table: Any, *, missing: str = "observed", name: str | None = None) -> TaskData:
        """Return the three parts of a table, and as ``.schema`` this one, fitted to them.

        Args:
            table: as :func:`tauflow.data.from_table` takes it.
            missing: see there.
            name: see there.
        """
        return load_table(table, self.replace(), missing=missing, name=name)

    def fit(self, table: Any, *, missing: str = "observed") -> "Schema":
        """Return the schema, fitted to the training split of a table; see :meth:`load`."""
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

        Columns, units and scales are those that were learned; a column of targets or of groups is
        neither needed nor read. Each id is one sequence, also where those of the training were cut
        by time. Of next-step prediction all rows are there, the last one too; where the rows of the
        training are all as far apart, so far ahead is what the model predicts.

        ``observed`` says which features are missing, also where the training had no missing value:
        models that do not take it then refuse the batch. Where inputs say so, it is left out.

        Args:
            table: as :func:`tauflow.data.from_table` takes it.
            targets: whether the table holds what is to be predicted, as y: to score answers, or to
                go on training. Ids without a target are left out then; a forecast over a horizon
                is made from windows, as in the training. Otherwise y means nothing.
            lead_time: for next-step prediction with an input for the lead time: time from the last
                row of each id to the one to predict, in the unit of the times, ``unit``.
            delimiter: of the cells of a CSV file; by default that of the other table.
            decimal: sign before the decimals of numbers that are text; by default as in the other.

        Raises:
            ArgumentError: the schema is not fitted; ``lead_time`` is missing or not needed; or
                inputs say what was measured, but not of a feature that has missing values here.
            UnknownNameError, DataError, TimeError: see :func:`tauflow.data.from_table`.
        """
        options = {"lead_time": lead_time, "delimiter": delimiter, "decimal": decimal}
        return transform(self, table, targets=targets, **options)[1]

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
            entries = parse_json(text)
            version = entries.pop("version")
            if version > _VERSION:
                raise DataError(
                    f"the schema is of version {version}, and this tauflow reads up to {_VERSION}. "
                    "Upgrade tauflow: pip install --upgrade tauflow"
                )
            return cls.from_dict(entries)
        except DataError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise DataError(f"this is no schema that to_json wrote ({error}).") from error


def as_schema(options: TableOptions) -> Schema:
    """Return options as a schema."""
    if isinstance(options, Schema):
        return options
    return Schema(**{field.name: getattr(options, field.name) for field in fields(options)})
