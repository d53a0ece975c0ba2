"""What an experiment is: frozen dataclasses, checked when built, made from plain dictionaries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tauflow.errors import OptionError, SpecificationError, TauflowError, UnknownNameError
from tauflow.registry import nearest
from tauflow.training.recipe import Recipe

READY = "ready"
PLANNED = "not implemented yet"


@dataclass(frozen=True)
class Published:
    """A number from a paper's table.

    Args:
        mean: the mean over runs, in the metric's own unit (an accuracy is a fraction).
        std: its spread over runs, if given.
        n: number of runs, if stated.
        minutes_per_epoch: the paper's training time, if given.
        quoted: the source the paper took the number from, if it is not the paper's own.
    """

    mean: float
    std: float | None = None
    n: int | None = None
    minutes_per_epoch: float | None = None
    quoted: str | None = None


@dataclass(frozen=True)
class Accept:
    """When our mean over seeds counts as a reproduction.

    Args:
        max: at most this.
        min: at least this.
        abs: at most this far from the published mean.
    """

    max: float | None = None
    min: float | None = None
    abs: float | None = None

    def holds(self, ours: float, published: float) -> bool:
        """Whether ``ours`` passes every bound that is set."""
        return (
            (self.max is None or ours <= self.max)
            and (self.min is None or ours >= self.min)
            and (self.abs is None or abs(ours - published) <= self.abs)
        )

    def __str__(self) -> str:
        signs = {"max": "≤ ", "min": "≥ ", "abs": "published ± "}
        bounds = {name: getattr(self, name) for name in signs}
        return ", ".join(f"{signs[k]}{v:g}" for k, v in bounds.items() if v is not None)


@dataclass(frozen=True)
class ModelSpec:
    """A model of the catalog with its size and options.

    Args:
        cell: its name in the catalog of cells, or in that of whole models.
        hidden_size: neurons, or latent dimensions.
        head_init: how the linear readout is drawn, see
            :class:`tauflow.models.sequence_model.SequenceModel`.
        embedding_size: length of the vector of a token, if the data has tokens; by default
            ``hidden_size``.
        embedding_dropout: dropout on those vectors.
        options: everything else that its constructor takes; ``wiring`` is a description for
            :func:`tauflow.wirings.wiring_from_dict`, whose ``units`` default to ``hidden_size``.

    Raises:
        OptionError: an option has its own place, or follows from the data set.
    """

    cell: str
    hidden_size: int
    head_init: str = "torch"
    embedding_size: int | None = None
    embedding_dropout: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = {
            "input_size": "follows from the data set",
            "return_sequences": "follows from the data set",
            "classes": "follows from the data set",
            "per_step": "follows from the data set",
            "hidden_size": "is given beside the options",
        }
        for name in self.options:
            if name in places:
                raise OptionError(f"the model option {name!r} {places[name]}; leave it out.")


@dataclass(frozen=True)
class Part:
    """One data set of an experiment; most experiments have a single one, without a name.

    Args:
        name: how rows are told apart, e.g. ``"event"`` in ``"cfc/event"``; may be empty.
        dataset: name in the data catalog.
        options: options of its loader.
    """

    name: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One published number and what is needed to measure it again.

    Args:
        name: unique in the experiment; ``"model/part"`` if the experiment has several parts.
        title: the model as the paper calls it.
        part: its data set.
        published: the paper's number.
        recipe: how it is trained; ``None`` for planned rows.
        model: what is trained; ``None`` for planned rows.
        planned: name of the model that is still missing, else ``None``.
        accept: when our number counts as reproduced.
        note: what a reader must know about this row.
    """

    name: str
    title: str
    part: Part
    published: Published
    recipe: Recipe | None = None
    model: ModelSpec | None = None
    planned: str | None = None
    accept: Accept | None = None
    note: str = ""

    @property
    def status(self) -> str:
        """``"ready"`` or ``"not implemented yet"``."""
        return READY if self.model is not None else PLANNED


@dataclass(frozen=True)
class Experiment:
    """One published table.

    Args:
        name: what ``tauflow reproduce`` is told.
        title: one line.
        source: paper and table.
        loss: name in the losses' registry.
        metric: name in the metrics' registry, of the published numbers.
        seeds: number of seeds of a full reproduction; they are 0, 1, 2, ...
        ddof: of the standard deviation in our column: 0 for the population's, 1 for the sample's.
        rows: every published row.
        notes: conflicts between sources and the choices made.
    """

    name: str
    title: str
    source: str
    loss: str
    metric: str
    seeds: int
    ddof: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        """Return the row of that name."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise UnknownNameError(
                f"{self.name} has no row {name!r}.{nearest(name, rows)} "
                f"Known: {', '.join(sorted(rows))}."
            )
        return rows[name]

    def select(self, models: Iterable[str] | None = None) -> tuple[Row, ...]:
        """Return the rows to run: those named, or all whose model exists.

        Args:
            models: names of rows; ``"cfc"`` also stands for ``"cfc/dense"`` and ``"cfc/event"``.

        Raises:
            UnknownNameError: no such row, or its model is not implemented yet.
        """
        if models is None:
            return tuple(row for row in self.rows if row.status == READY)
        chosen: list[Row] = []
        for name in models:
            matches = [row for row in self.rows if name in (row.name, row.name.split("/")[0])]
            for row in matches or [self.row(name)]:
                if row.status == PLANNED:
                    ready = sorted(row.name for row in self.rows if row.status == READY)
                    raise UnknownNameError(
                        f"{self.name}: the model {row.planned!r} of row {row.name!r} is not "
                        f"implemented yet. Rows that run: {', '.join(ready)}."
                    )
                if row not in chosen:
                    chosen.append(row)
        return tuple(chosen)


def check_keys(where: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise :class:`SpecificationError` for the first key that is not known."""
    names = sorted(known)
    for key in given:
        if key not in names:
            raise SpecificationError(
                f"{where}: unknown key {key!r}.{nearest(key, names)} Known: {', '.join(names)}."
            )


_NUMBER = (int, float)
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("mean", "std", "minutes_per_epoch", "max", "min", "abs"), _NUMBER),
    **dict.fromkeys(("n", "hidden_size", "embedding_size", "seeds", "ddof"), (int,)),
    "embedding_dropout": _NUMBER,
    **dict.fromkeys(("name", "title", "source", "loss", "metric", "dataset"), (str,)),
    **dict.fromkeys(("quoted", "note", "planned", "cell", "head_init", "recipe_from"), (str,)),
    **dict.fromkeys(("model", "recipe", "recipes", "published", "accept"), (dict,)),
    **dict.fromkeys(("row", "part", "notes"), (list,)),
}


def check_types(where: str, given: Mapping[str, Any]) -> None:
    """Raise :class:`SpecificationError` for the first value of the wrong type."""
    for key, value in given.items():
        types = _TYPES.get(key)
        if types and (not isinstance(value, types) or isinstance(value, bool)):
            expected = " or ".join(kind.__name__ for kind in types)
            raise SpecificationError(f"{where}: {key} must be a {expected}, got {value!r}.")


def require_keys(where: str, given: Mapping[str, Any], needed: Iterable[str]) -> None:
    """Raise :class:`SpecificationError` for the first key that is missing."""
    for key in needed:
        if key not in given:
            raise SpecificationError(f"{where}: the key {key!r} is missing; add it.")


def _plain(kind: type, where: str, given: Mapping[str, Any]) -> Any:
    """Build a flat dataclass from a table."""
    check_keys(where, given, [f.name for f in fields(kind)])
    check_types(where, given)
    return kind(**given)


_EXPERIMENT_KEYS = (
    *("name", "title", "source", "loss", "metric", "seeds", "ddof", "notes"),
    *("dataset", "part", "published", "model", "recipe", "recipes", "row"),
)
_ROW_KEYS = (
    *("name", "title", "planned", "note", "model"),
    *("recipe", "recipe_from", "published", "accept"),
)


def experiment_from_dict(table: Mapping[str, Any], where: str) -> Experiment:
    """Build an experiment from the content of a specification file.

    The tables ``[published]``, ``[model]`` and ``[recipe]`` hold what the rows share; a row's own
    keys win. ``[recipes.NAME]`` holds a whole recipe for rows that say ``recipe_from = "NAME"``.

    Args:
        table: the parsed file.
        where: its name, for messages.

    Raises:
        SpecificationError: a key is unknown or missing, or a value is impossible.
    """
    check_keys(where, table, _EXPERIMENT_KEYS)
    check_types(where, table)
    require_keys(where, table, ("name", "title", "source", "loss", "metric", "seeds", "row"))
    rows = [row for entry in table["row"] for row in _rows(entry, table, where)]
    names = [row.name for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise SpecificationError(f"{where}: two rows are named {name!r}; rename one.")
    return Experiment(
        **{key: table[key] for key in ("name", "title", "source", "loss", "metric", "seeds")},
        ddof=table.get("ddof", 1),
        rows=tuple(rows),
        notes=tuple(table.get("notes", ())),
    )


def _parts(table: Mapping[str, Any], where: str) -> tuple[Part, ...]:
    if ("part" in table) == ("dataset" in table):
        raise SpecificationError(f"{where}: give either 'dataset' or [[part]] tables.")
    if "dataset" in table:
        return (Part("", table["dataset"]),)
    return tuple(_plain(Part, f"{where}, [[part]]", entry) for entry in table["part"])


def _rows(entry: Mapping[str, Any], table: Mapping[str, Any], where: str) -> list[Row]:
    """Build the rows of one ``[[row]]``: one for each part."""
    where = f"{where}, row {entry.get('name', '?')!r}"
    check_keys(where, entry, _ROW_KEYS)
    check_types(where, entry)
    require_keys(where, entry, ("name", "title", "published"))
    if "planned" in entry and "model" in entry:
        raise SpecificationError(f"{where}: give either 'planned' or 'model', not both.")
    parts = _parts(table, where)
    shared = {
        "title": entry["title"],
        "planned": entry.get("planned"),
        "model": None if "planned" in entry else _model(entry, table, where),
        "recipe": None if "planned" in entry else _recipe(entry, table, where),
        "accept": _plain(Accept, f"{where}, accept", entry["accept"])
        if "accept" in entry
        else None,
        "note": entry.get("note", ""),
    }
    numbers = entry["published"]
    if len(parts) > 1:
        check_keys(f"{where}, published", numbers, [part.name for part in parts])
        require_keys(f"{where}, published", numbers, [part.name for part in parts])
    rows = []
    for part in parts:
        own = numbers[part.name] if len(parts) > 1 else numbers
        published = {**table.get("published", {}), **own}
        require_keys(f"{where}, published", published, ("mean",))
        name = f"{entry['name']}/{part.name}" if part.name else entry["name"]
        number = _plain(Published, f"{where}, published", published)
        rows.append(Row(name=name, part=part, published=number, **shared))
    return rows


def _model(entry: Mapping[str, Any], table: Mapping[str, Any], where: str) -> ModelSpec:
    merged = {**table.get("model", {}), **entry.get("model", {})}
    require_keys(f"{where}, model", merged, ("cell", "hidden_size"))
    check_types(f"{where}, model", merged)
    places = [field.name for field in fields(ModelSpec) if field.name != "options"]
    own = {key: merged.pop(key) for key in places if key in merged}
    return ModelSpec(**own, options=merged)


def _recipe(entry: Mapping[str, Any], table: Mapping[str, Any], where: str) -> Recipe:
    base = table.get("recipe", {})
    if "recipe_from" in entry:
        named = table.get("recipes", {})
        require_keys(f"{where}, [recipes]", named, (entry["recipe_from"],))
        base = named[entry["recipe_from"]]
    try:
        return Recipe.from_dict({**base, **entry.get("recipe", {})})
    except TauflowError as error:
        raise SpecificationError(f"{where}, recipe: {error}") from error
