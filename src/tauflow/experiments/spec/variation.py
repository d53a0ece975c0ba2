"""A table with other settings: what a row would give if one thing were different."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from tauflow.data.catalog import DATASETS
from tauflow.errors import SpecificationError, TauflowError
from tauflow.experiments.spec.experiment import READY, Experiment, Row, Setting
from tauflow.experiments.spec.grid import PLACES, impossible, label, nested, setting_of
from tauflow.models.specified import build_model
from tauflow.registry import nearest
from tauflow.runs.job import Part
from tauflow.runs.toml_files import with_entries

from .parse import LONGEST

DATA = "data"
VARIED = "-with-"
"""Between a table's name and what is different, in the name of the table that this makes."""


def varied(
    experiment: Experiment, changes: Mapping[str, Any], models: Iterable[str] | None = None
) -> Experiment:
    """Return an experiment of its own, whose rows have other values of some settings.

    Args:
        experiment: a table.
        changes: values by dotted name: ``recipe.FIELD``, ``model.OPTION`` or ``data.OPTION``;
            ``recipe.FIELD.ENTRY`` is one of a field's entries, whose others stay. Without any the
            table is returned as it is. Their order is of no account.
        models: names of the rows that must be able to have them, as for :meth:`Experiment.select`;
            others for which a value is impossible stay as they are. By default all must.

    Raises:
        SpecificationError: a name is of none of these, a value is impossible for a row, no row is
            trained, or all that are chosen have these values.
        UnknownNameError: there is no such row.
    """
    if not changes:
        return experiment
    for name in changes:
        _check_place(name)
    changes = dict(sorted(changes.items()))  # one name for the table, whatever was said first
    chosen = experiment.select(models)
    if not chosen:
        raise SpecificationError(
            f"{experiment.name} has no row that is trained, and so no settings to change. Leave "
            f"out {', '.join(changes)}."
        )
    words = ", ".join(f"{name.partition('.')[2]}={value}" for name, value in changes.items())
    for row in chosen:  # before all others are built
        _check_options(row, changes)
    rows = []
    for row in experiment.rows:
        try:
            if row.status == READY and row not in chosen:
                _check_options(row, changes)
            rows.append(_varied(row, changes))
        except SpecificationError:
            if row in chosen:
                raise
            rows.append(row)
    if all(new == old for new, old in zip(rows, experiment.rows, strict=True) if old in chosen):
        given = ", ".join(f"{name}={value!r}" for name, value in changes.items())
        raise SpecificationError(
            f"{given} changes nothing: {', '.join(row.name for row in chosen)} of "
            f"{experiment.name} {'is' if len(chosen) == 1 else 'are'} so. Leave it out."
        )
    return replace(
        experiment,
        name=_short(re.sub(r"[^\w.-]+", "-", f"{experiment.name}{VARIED}{words}")),
        title=f"{experiment.title}, with {words}",
        rows=tuple(rows),
    )


def _short(name: str) -> str:
    """Return a name that files can have: of a long one its beginning, and a digest of all."""
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 13]}-{sha256(name.encode()).hexdigest()[:12]}"


def _check_place(name: str) -> None:
    place, _, setting = name.partition(".")
    known = place in (*PLACES, DATA)
    if not known or not setting:
        raise SpecificationError(
            f"{name!r} is no setting of a row.{'' if known else nearest(place, (*PLACES, DATA))} "
            "Name one of the recipe, of the model or of the data: recipe.lr, model.hidden_size, "
            "data.split."
        )


def _varied(row: Row, changes: Mapping[str, Any]) -> Row:
    if row.status != READY:
        return row
    data = {k.partition(".")[2]: v for k, v in changes.items() if k.startswith(f"{DATA}.")}
    trained = {name: v for name, v in changes.items() if not name.startswith(f"{DATA}.")}
    left = _searched(row, trained)
    one = left[0] if len(left) == 1 else setting_of(row, trained)
    return replace(
        row,
        part=_other(row.part, data),
        search_part=row.search_part and _other(row.search_part, data),
        model=one.model,
        recipe=one.recipe,
        search=left if len(left) > 1 else (),
    )


def _other(part: Part, options: Mapping[str, Any]) -> Part:
    return replace(part, options=with_entries(part.options, options))


def _check_options(row: Row, changes: Mapping[str, Any]) -> None:
    """Refuse what the model cannot be built with, before hours of other rows."""
    own = {name: value for name, value in changes.items() if name.startswith("model.")}
    if own:
        try:
            build_model(setting_of(row, own).model, DATASETS[row.part.dataset])
        except TauflowError as error:
            if isinstance(error, SpecificationError):
                raise
            if _can_be_built(row):  # some need what only the loaded data say
                raise impossible(row, own, error) from error


def _can_be_built(row: Row) -> bool:
    assert row.model is not None, "only rows that are ready are varied"
    try:
        build_model(row.model, DATASETS[row.part.dataset])
    except TauflowError:
        return False
    return True


def _searched(row: Row, changes: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return the settings that are left to choose from: what is changed is not searched."""
    found: dict[str, Setting] = {}
    for one in row.search:
        new = setting_of(replace(row, model=one.model, recipe=one.recipe), changes)
        left = _left(one.values, changes)
        found.setdefault(repr(left), replace(new, label=label(left), values=left))
    return tuple(found.values())


def _left(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the searched values that are not changed, those with changed entries with these."""
    said = nested(changes)
    return {
        f"{place}.{name}": value
        for place, own in nested(values).items()
        for name, value in with_entries(own, said.get(place, {})).items()
        if name in own and f"{place}.{name}" not in changes
    }
