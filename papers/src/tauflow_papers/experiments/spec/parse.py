"""Make experiments from plain dictionaries, as specification files hold them, and refuse typos."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tauflow._internal.checks import format_value
from tauflow._internal.registry import suggest_name
from tauflow._internal.sanitize import format_count
from tauflow.errors import SpecificationError, TauflowError
from tauflow.models.spec import ModelSpec
from tauflow.runs.job import DatasetSpec
from tauflow.training.recipe import Recipe

from .experiment import Experiment, Published, Row, Setting
from .grid import enumerate_points, format_label, nest_settings

TomlTable = Mapping[str, Any]

_EXPERIMENT_KEYS = (
    *("name", "title", "source", "loss", "metric", "seeds", "ddof", "notes", "command"),
    *("runs_of", "headlines", "best_epoch", "dataset", "part", "split_option", "judged_over"),
    *("scored_part", "published", "model", "recipe", "recipes", "search", "row"),
)
_PART_KEYS = (
    *("name", "dataset", "options", "loss", "metric"),
    *("model", "recipe", "note", "unlike", "pack_code"),
)
_ROW_KEYS = (
    *("name", "title", "planned", "untrained", "note", "unlike", "parts", "model"),
    *("recipe", "recipe_from", "published", "at", "sweep", "search", "like"),
)
_AT_KEYS = ("model", "recipe", "search", "note")
_NUMBER = (int, float)
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("mean", "std", "chance", "minutes_per_epoch"), _NUMBER),
    **dict.fromkeys(("below", "above", "embedding_dropout"), _NUMBER),
    **dict.fromkeys(("n", "hidden_size", "embedding_size", "seeds", "ddof"), (int,)),
    "parameters": (int,),
    "best_epoch": (bool,),
    **dict.fromkeys(("name", "title", "source", "loss", "metric", "dataset", "command"), (str,)),
    **dict.fromkeys(("split_option", "judged_over", "scored_part"), (str,)),
    **dict.fromkeys(("quoted", "note", "planned", "cell", "head_init", "recipe_from"), (str,)),
    **dict.fromkeys(("untrained", "figure", "pack_code", "like", "unlike"), (str,)),
    **dict.fromkeys(("model", "recipe", "recipes", "published"), (dict,)),
    **dict.fromkeys(("options", "at", "sweep", "search"), (dict,)),
    **dict.fromkeys(("row", "part", "parts", "notes", "runs_of", "headlines"), (list,)),
}
_ITEMS: dict[str, type] = {
    **dict.fromkeys(("row", "part", "at", "recipes", "sweep", "search"), dict),
    **dict.fromkeys(("parts", "notes", "runs_of", "headlines"), str),
}
"""What the lists and tables of these names hold; of a search also ``options`` of the data."""
_MAX_NUMBER = 1e100
"""No published number is beyond it."""
MAX_NAME_LENGTH = 200
"""Files and folders are named after tables and rows, with a few characters more."""
_MAX_COMBINATIONS = 1000
"""A sweep or a search makes no more rows or settings than these."""


def experiment_from_dict(table: TomlTable, where: str) -> Experiment:
    """Build an experiment from the content of a specification file.

    The tables ``[published]``, ``[model]`` and ``[recipe]`` hold what the rows share, those of a
    ``[[part]]`` what its rows share, and ``[row.at.PART]`` what a row does otherwise on one part:
    the later keys win. ``[recipes.NAME]`` holds a whole recipe for rows that say
    ``recipe_from = "NAME"``. A row that says ``like = "NAME"`` is the row of that name but for what
    it says itself: the keys of its ``model`` and ``recipe`` change single options.

    A row belongs to all parts, or those in its list ``parts``. Its ``published`` numbers are those
    of every part, or a table of them by part; a part with ``pack_code`` has those of another one.
    A row or a part that says why it is ``unlike`` what was published is not judged by it.

    ``[row.sweep.model]`` and ``[row.sweep.recipe]`` hold lists of values, and make a row of every
    combination. ``[search.model]`` and ``[search.recipe]``, for all rows, in one of them or in its
    ``[row.at.PART]``, hold lists of values of which a row takes the best combination. The
    ``options`` of a search are those of the data set on which the values are tried, where they
    differ from those of the row. With a ``split_option`` each run gives its seed to that option of
    its data set, too.

    Args:
        table: the parsed file.
        where: its name, for messages.

    Raises:
        SpecificationError: a key is unknown or missing, or a value is impossible.
    """
    check_keys(where, table, _EXPERIMENT_KEYS)
    check_value_types(where, table)
    require_keys(where, table, ("name", "title", "source", "seeds", "row"))
    _check_head(where, table)
    for entry in table["row"]:
        check_keys(_describe_row(entry, where), entry, _ROW_KEYS)
        check_value_types(_describe_row(entry, where), entry)
    entries = [_inherit_row(entry, table, where) for entry in table["row"]]
    rows = [row for entry in entries for row in _build_rows(entry, table, where)]
    for name, count in Counter(row.name for row in rows).items():
        if len(name) > MAX_NAME_LENGTH:
            raise SpecificationError(
                f"{where}: a row has a name of {format_count(len(name), 'character')}, and "
                "folders are named after "
                f"it: {name[:40]!r}... Give it one of {MAX_NAME_LENGTH} at most."
            )
        if count > 1:
            raise SpecificationError(f"{where}: two rows are named {name!r}; rename one.")
    _check_headlines(where, table.get("headlines", ()), [row.name for row in rows])
    return Experiment(
        **{key: table[key] for key in ("name", "title", "source", "seeds")},
        ddof=table.get("ddof", 1),
        rows=tuple(rows),
        notes=tuple(table.get("notes", ())),
        command=table.get("command"),
        runs_of=tuple(table.get("runs_of", ())),
        headlines=tuple(table.get("headlines", ())),
        split_option=table.get("split_option", ""),
        scored_part=table.get("scored_part", "test"),
        judged_over=table.get("judged_over", ""),
        best_epoch=table.get("best_epoch", False),
    )


def _check_head(where: str, table: TomlTable) -> None:
    """Refuse a name that cannot be a file's, and impossible numbers."""
    name = table["name"]
    good = name.isprintable() and len(name) <= MAX_NAME_LENGTH
    if not good or not name.strip(" .") or set(name) & set("/\\:"):
        raise SpecificationError(
            f"{where}: name = {format_value(name)} cannot name the files of results. Use up to "
            f"{format_count(MAX_NAME_LENGTH, 'letter')}, digits and hyphens."
        )
    for key, least, most in (
        ("seeds", 0 if "command" in table else 1, _MAX_COMBINATIONS),
        ("ddof", 0, 1),
    ):
        if not least <= table.get(key, least) <= most:
            raise SpecificationError(
                f"{where}: {key} must be from {least} to {most}, got {table[key]}."
            )
    if table.get("scored_part", "test") not in ("test", "valid"):
        raise SpecificationError(
            f"{where}: scored_part must be 'test' or 'valid', got {table['scored_part']!r}."
        )


def _check_headlines(where: str, headlines: Sequence[str], names: Sequence[str]) -> None:
    for name, count in Counter(headlines).items():
        if name not in names:
            raise SpecificationError(
                f"{where}: headlines names the row {name!r}, which is not there."
                f"{suggest_name(name, names)}"
            )
        if count > 1:
            raise SpecificationError(f"{where}: headlines names {name!r} {count} times.")


def check_keys(where: str, values: TomlTable, known: Iterable[str]) -> None:
    """Raise :class:`SpecificationError` for the first key that is not known."""
    names = sorted(known)
    for key in values:
        if key not in names:
            raise SpecificationError(
                f"{where}: unknown key {key!r}.{suggest_name(key, names)} Known: "
                f"{', '.join(names)}."
            )


def check_value_types(where: str, values: TomlTable) -> None:
    """Raise :class:`SpecificationError` for the first value of the wrong type."""
    for key, value in values.items():
        types = _TYPES.get(key)
        if types and (
            not isinstance(value, types) or isinstance(value, bool) != (types == (bool,))
        ):
            expected = " or ".join(kind.__name__ for kind in types)
            raise SpecificationError(
                f"{where}: {key} must be a {expected}, got {format_value(value)}."
            )
        if types == _NUMBER and not abs(value) <= _MAX_NUMBER:
            raise SpecificationError(
                f"{where}: {key} must be a finite number, got {format_value(value)}."
            )
        if key in _ITEMS:
            for item in value.values() if isinstance(value, dict) else value:
                if not isinstance(item, _ITEMS[key]):
                    raise SpecificationError(
                        f"{where}: {key} must hold a {_ITEMS[key].__name__} in each place, got "
                        f"{format_value(item)}."
                    )


def require_keys(where: str, values: TomlTable, needed: Iterable[str]) -> None:
    """Raise :class:`SpecificationError` for the first key that is missing."""
    for key in needed:
        if key not in values:
            raise SpecificationError(f"{where}: the key {key!r} is missing; add it.")


def _build_dataclass(kind: type, where: str, values: TomlTable) -> Any:
    """Build a flat dataclass from a table."""
    check_keys(where, values, [f.name for f in fields(kind)])
    check_value_types(where, values)
    return kind(**values)


def _collect_parts(table: TomlTable, where: str) -> dict[str, TomlTable]:
    """Return the ``[[part]]`` tables by name; ``dataset`` alone is one without a name."""
    if "dataset" in table and "part" in table:
        raise SpecificationError(f"{where}: give either 'dataset' or [[part]] tables.")
    if "part" not in table and "dataset" not in table and "command" not in table:
        raise SpecificationError(f"{where}: give 'dataset' or [[part]] tables.")
    entries = table.get("part", [{"name": "", "dataset": table.get("dataset", "")}])
    parts: dict[str, TomlTable] = {}
    for entry in entries:
        here = f"{where}, [[part]]"
        check_keys(here, entry, _PART_KEYS)
        check_value_types(here, entry)
        require_keys(here, entry, ("name",) if "command" in table else ("name", "dataset"))
        if entry["name"] in parts:
            raise SpecificationError(f"{here}: two parts are named {entry['name']!r}; rename one.")
        parts[entry["name"]] = entry
    return parts


def _describe_row(entry: TomlTable, where: str) -> str:
    return f"{where}, row {entry.get('name', '?')!r}"


def _inherit_row(entry: TomlTable, table: TomlTable, where: str) -> TomlTable:
    """Return a row with what it takes from the one that it is ``like``."""
    if "like" not in entry:
        return entry
    where = _describe_row(entry, where)
    require_keys(where, entry, ("name", "title"))
    others = {row["name"]: row for row in table["row"] if "name" in row and "like" not in row}
    if entry["like"] not in others:
        raise SpecificationError(
            f"{where}: like = {entry['like']!r} names no row that is like no other."
            f"{suggest_name(entry['like'], list(others))} There are: {', '.join(others)}."
        )
    base = others[entry["like"]]
    if "at" in base and "parts" in entry:
        base = {**base, "at": {k: v for k, v in base["at"].items() if k in entry["parts"]}}
    options = {
        key: {**base.get(key, {}), **entry.get(key, {})}
        for key in ("model", "recipe")
        if key in base or key in entry
    }
    return {**base, **entry, **options}


def _build_rows(entry: TomlTable, table: TomlTable, where: str) -> list[Row]:
    """Build the rows of one ``[[row]]``: one for each part, and each value of a sweep."""
    where = _describe_row(entry, where)
    require_keys(where, entry, ("name", "title", "published"))
    if sum(key in entry for key in ("planned", "untrained", "model")) > 1:
        raise SpecificationError(f"{where}: give only one of 'planned', 'untrained' and 'model'.")
    parts = _collect_parts(table, where)
    chosen = entry.get("parts", list(parts))
    check_keys(f"{where}, parts", dict.fromkeys(chosen), parts)
    check_keys(f"{where}, at", entry.get("at", {}), chosen)
    return [
        _build_row(swept, table, parts[name], f"{where}, part {name!r}" if name else where)
        for name in chosen
        for swept in _expand_sweep(entry, where)
    ]


def _build_row(entry: TomlTable, table: TomlTable, part: TomlTable, where: str) -> Row:
    at = entry.get("at", {}).get(part["name"], {})
    check_keys(f"{where}, at", at, _AT_KEYS)
    check_value_types(f"{where}, at", at)
    trained = "planned" not in entry and "untrained" not in entry
    layers = [table, part, entry, at]
    if trained:
        require_keys(where, {**table, **part}, ("loss", "metric"))
    grid = dict(at.get("search", entry.get("search", table.get("search", {}))))
    data = DatasetSpec(part["name"], part.get("dataset", ""), part.get("options", {}))
    tried_on = _make_search_part(data, grid.pop("options", {}), where)
    notes = [layer.get("note", "") for layer in (entry, part, at)]
    return Row(
        name=f"{entry['name']}/{part['name']}" if part["name"] else entry["name"],
        title=entry["title"],
        part=data,
        published=_build_published(entry, table, part, where),
        loss=part.get("loss", table.get("loss", "")),
        metric=part.get("metric", table.get("metric", "")),
        model=_build_model_spec(layers, where) if trained else None,
        recipe=_build_recipe(layers, where) if trained else None,
        search=_build_search(grid, layers, where) if trained else (),
        search_part=tried_on,
        planned=entry.get("planned"),
        untrained=entry.get("untrained"),
        note=" ".join(note for note in notes if note),
        unlike=entry.get("unlike", part.get("unlike", "")),
    )


def _make_search_part(data: DatasetSpec, options: Any, where: str) -> DatasetSpec | None:
    """Return the data of a search whose options differ, else ``None``."""
    check_value_types(f"{where}, search", {"options": options})
    return replace(data, options={**data.options, **options}) if options else None


def _build_published(entry: TomlTable, table: TomlTable, part: TomlTable, where: str) -> Published:
    where, numbers = f"{where}, published", entry["published"]
    if numbers and all(isinstance(value, dict) for value in numbers.values()):
        name = part.get("pack_code", part["name"])
        check_keys(where, numbers, _collect_parts(table, where))
        require_keys(where, numbers, (name,))
        numbers = numbers[name]
    number: Published = _build_dataclass(
        Published, where, {**table.get("published", {}), **numbers}
    )
    published = (number.mean, number.below, number.above, number.parameters)
    if all(value is None for value in (*published, number.figure, number.absent)):
        raise SpecificationError(
            f"{where}: the key 'mean' is missing; add it, or 'below' or 'above' if the paper gives "
            "a bound only, or the 'figure' that shows the number, or why it is 'absent'."
        )
    return number


def _build_model_spec(layers: Iterable[TomlTable], where: str) -> ModelSpec:
    merged = {key: v for layer in layers for key, v in layer.get("model", {}).items()}
    require_keys(f"{where}, model", merged, ("cell", "hidden_size"))
    check_value_types(f"{where}, model", merged)
    places = [field.name for field in fields(ModelSpec) if field.name != "options"]
    moved = {key: merged.pop(key) for key in places if key in merged}
    return ModelSpec(**moved, options=merged)


def _build_recipe(layers: Iterable[TomlTable], where: str) -> Recipe:
    table, *others = layers
    base = table.get("recipe", {})
    for layer in others:
        if "recipe_from" in layer:
            named = table.get("recipes", {})
            require_keys(f"{where}, [recipes]", named, (layer["recipe_from"],))
            base = named[layer["recipe_from"]]
    recipe = {key: v for layer in others for key, v in layer.get("recipe", {}).items()}
    try:
        return Recipe.from_dict({**base, **recipe})
    except TauflowError as error:
        raise SpecificationError(f"{where}, recipe: {error}") from error


def _enumerate_combinations(grid: TomlTable, where: str) -> list[dict[str, dict[str, Any]]]:
    """Return every combination of the lists in ``{"model": {...}, "recipe": {...}}``."""
    check_keys(where, grid, ("model", "recipe"))
    flat = {f"{kind}.{key}": values for kind in grid for key, values in grid[kind].items()}
    keys = {name: name.partition(".")[2] for name in flat}
    for name, values in flat.items():
        if not isinstance(values, list) or not values:
            raise SpecificationError(
                f"{where}: {keys[name]} must be a list of values, got {values!r}."
            )
    if math.prod(map(len, flat.values())) > _MAX_COMBINATIONS:
        raise SpecificationError(
            f"{where}: there are more than {format_count(_MAX_COMBINATIONS, 'combination')} of "
            f"{', '.join(keys.values())}. "
            "Leave some values out."
        )
    return [nest_settings(settings) for settings in enumerate_points(flat)]


def _format_label(combination: Mapping[str, Mapping[str, Any]]) -> str:
    """Return ``"tau 10, hidden size 32"``."""
    return format_label(_to_dotted_names(combination))


def _to_dotted_names(combination: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{kind}.{k}": v for kind, options in combination.items() for k, v in options.items()}


def _expand_sweep(entry: TomlTable, where: str) -> list[TomlTable]:
    """Return a row, or one for each combination of what it sweeps over."""
    if "sweep" not in entry:
        return [entry]
    rows: list[TomlTable] = []
    for combination in _enumerate_combinations(entry["sweep"], f"{where}, sweep"):
        parts = {kind: {**entry.get(kind, {}), **values} for kind, values in combination.items()}
        label = _format_label(combination)
        name = f"{entry['name']}-{label.replace(',', '').replace(' ', '-')}"
        rows.append({**entry, **parts, "name": name, "title": f"{entry['title']}, {label}"})
    return rows


def _build_search(grid: TomlTable, layers: list[TomlTable], where: str) -> tuple[Setting, ...]:
    if not grid:
        return ()
    if "epochs" in grid.get("recipe", {}):
        raise SpecificationError(
            f"{where}, search: epochs cannot be searched, for reports compare runs of one length. "
            "Give each number of epochs another row, or take the longest with select = "
            "'best'."
        )
    return tuple(
        Setting(
            _format_label(combination),
            _build_model_spec([*layers, combination], where),
            _build_recipe([*layers, combination], where),
            _to_dotted_names(combination),
        )
        for combination in _enumerate_combinations(grid, f"{where}, search")
    )
