"""A table with other settings: what a row would give if one thing were different."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tauflow.errors import SpecificationError
from tauflow.registry import nearest

from .experiment import Experiment, Row
from .grid import PLACES, setting_of

DATA = "data"
VARIED = "-with-"
"""Between a table's name and what is different, in the name of the table that this makes."""


def varied(
    experiment: Experiment, changes: Mapping[str, Any], models: Iterable[str] | None = None
) -> Experiment:
    """Return an experiment of its own, whose rows have other values of some settings.

    Args:
        experiment: a table.
        changes: values by dotted name: ``recipe.FIELD``, ``model.OPTION`` or ``data.OPTION``.
            Without any the table is returned as it is.
        models: names of the rows that are to have them, as for :meth:`Experiment.select`; the
            others are left out. By default all.

    Raises:
        SpecificationError: a name is of neither, or a value is impossible for a row.
        UnknownNameError: there is no such row.
    """
    if not changes:
        return experiment
    for name in changes:
        place, _, setting = name.partition(".")
        if place not in (*PLACES, DATA) or not setting:
            raise SpecificationError(
                f"{name!r} is no setting of a row.{nearest(place, (*PLACES, DATA))} Name one of "
                "the recipe, of the model or of the data: recipe.lr, model.hidden_size, data.split."
            )
    words = ", ".join(f"{name.partition('.')[2]}={value}" for name, value in changes.items())
    return replace(
        experiment,
        name=re.sub(r"[^\w.-]+", "-", f"{experiment.name}{VARIED}{words}"),
        title=f"{experiment.title}, with {words}",
        rows=tuple(_varied(row, changes) for row in experiment.select(models)),
    )


def _varied(row: Row, changes: Mapping[str, Any]) -> Row:
    data = {k.partition(".")[2]: v for k, v in changes.items() if k.startswith(f"{DATA}.")}
    trained = {name: v for name, v in changes.items() if not name.startswith(f"{DATA}.")}
    one = setting_of(row, trained)
    tried = (setting_of(replace(row, model=s.model, recipe=s.recipe), trained) for s in row.search)
    return replace(
        row,
        part=replace(row.part, options={**row.part.options, **data}),
        model=one.model,
        recipe=one.recipe,
        search=tuple(
            replace(old, model=new.model, recipe=new.recipe)
            for old, new in zip(row.search, tried, strict=True)
        ),
    )
