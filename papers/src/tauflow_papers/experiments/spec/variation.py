"""A table with other settings: what a row would give if one thing were different."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from tauflow._internal.registry import suggest_name
from tauflow.data.registry import DATASETS
from tauflow.errors import SpecificationError, TauflowError
from tauflow.models.spec import build_model
from tauflow.runs.job import DatasetSpec
from tauflow.runs.toml_files import merge_entries

from .experiment import READY, Experiment, Row, Setting
from .grid import SECTIONS, format_label, invalid_point_error, make_setting, nest_settings
from .parse import MAX_NAME_LENGTH

DATA_SECTION = "data"
VARIATION_INFIX = "-with-"
"""Between a table's name and what is different, in the name of the table that this makes."""


def make_variation(
    experiment: Experiment, changes: Mapping[str, Any], models: Iterable[str] | None = None
) -> Experiment:
    """Return another experiment, whose rows have other values of some settings.

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
            rows.append(_vary_row(row, changes))
        except SpecificationError:
            if row in chosen:
                raise
            rows.append(row)
    if all(new == old for new, old in zip(rows, experiment.rows, strict=True) if old in chosen):
        changed = ", ".join(f"{name}={value!r}" for name, value in changes.items())
        raise SpecificationError(
            f"{changed} changes nothing: {', '.join(row.name for row in chosen)} of "
            f"{experiment.name} {'is' if len(chosen) == 1 else 'are'} so. Leave it out."
        )
    return replace(
        experiment,
        name=_shorten_name(re.sub(r"[^\w.-]+", "-", f"{experiment.name}{VARIATION_INFIX}{words}")),
        title=f"{experiment.title}, with {words}",
        rows=tuple(rows),
    )


def _shorten_name(name: str) -> str:
    """Return a name that files can have: of a long one its beginning, and a digest of all."""
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{name[: MAX_NAME_LENGTH - 13]}-{sha256(name.encode()).hexdigest()[:12]}"


def _check_place(name: str) -> None:
    place, _, setting = name.partition(".")
    known = place in (*SECTIONS, DATA_SECTION)
    if not known or not setting:
        raise SpecificationError(
            f"{name!r} is no setting of a "
            f"row.{'' if known else suggest_name(place, (*SECTIONS, DATA_SECTION))} "
            "Name one of the recipe, of the model or of the data: recipe.lr, model.hidden_size, "
            "data.split."
        )


def _vary_row(row: Row, changes: Mapping[str, Any]) -> Row:
    if row.status != READY:
        return row
    data = {k.partition(".")[2]: v for k, v in changes.items() if k.startswith(f"{DATA_SECTION}.")}
    trained = {name: v for name, v in changes.items() if not name.startswith(f"{DATA_SECTION}.")}
    left = _vary_search(row, trained)
    setting = left[0] if len(left) == 1 else make_setting(row, trained)
    return replace(
        row,
        part=_vary_part(row.part, data),
        search_part=row.search_part and _vary_part(row.search_part, data),
        model=setting.model,
        recipe=setting.recipe,
        search=left if len(left) > 1 else (),
    )


def _vary_part(part: DatasetSpec, options: Mapping[str, Any]) -> DatasetSpec:
    return replace(part, options=merge_entries(part.options, options))


def _check_options(row: Row, changes: Mapping[str, Any]) -> None:
    """Refuse what the model cannot be built with, before hours of other rows."""
    model_changes = {name: value for name, value in changes.items() if name.startswith("model.")}
    if model_changes:
        try:
            build_model(make_setting(row, model_changes).model, DATASETS[row.part.dataset])
        except TauflowError as error:
            if isinstance(error, SpecificationError):
                raise
            if _can_be_built(row):  # some need what only the loaded data say
                raise invalid_point_error(row, model_changes, error) from error


def _can_be_built(row: Row) -> bool:
    assert row.model is not None, "only rows that are ready are varied"
    try:
        build_model(row.model, DATASETS[row.part.dataset])
    except TauflowError:
        return False
    return True


def _vary_search(row: Row, changes: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return the settings that are left to choose from: what is changed is not searched."""
    settings: dict[str, Setting] = {}
    for setting in row.search:
        new = make_setting(replace(row, model=setting.model, recipe=setting.recipe), changes)
        left = _get_remaining_values(setting.values, changes)
        settings.setdefault(repr(left), replace(new, label=format_label(left), values=left))
    return tuple(settings.values())


def _get_remaining_values(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the searched values that are not changed, those with changed entries with these."""
    nested = nest_settings(changes)
    return {
        f"{place}.{name}": value
        for place, entries in nest_settings(values).items()
        for name, value in merge_entries(entries, nested.get(place, {})).items()
        if name in entries and f"{place}.{name}" not in changes
    }
