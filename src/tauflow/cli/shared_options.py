"""Options that commands share: fields of the recipe, a file of settings, a device, folders."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tauflow._internal.registry import suggest_name
from tauflow.errors import ArgumentError, SpecificationError

_TABLES = ("recipe", "options", "table")


def _read_config(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the values of a file of settings, and its tables."""
    from tauflow.runs.toml_files import read_toml

    values = read_toml(path)
    tables = {name: values.pop(name, {}) for name in _TABLES}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise SpecificationError(f"{path}: {name} must be a table, [{name}].")
    return values, tables


def _apply_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Let a file's values stand for options that are not given."""
    if path is None:
        return None
    path = Path(os.path.expanduser(path))
    values, tables = _read_config(path)
    params = {param.name or "" for param in ctx.command.params}
    known = {name for name in params if not name.startswith("table_")}
    columns = {name.removeprefix("table_") for name in params - known}
    for names, allowed in ((values, known - {"config"}), (tables["table"], columns)):
        for name in names:
            if name not in allowed:
                raise SpecificationError(
                    f"{path} has an unknown entry {name!r}.{suggest_name(name, allowed)} Known: "
                    f"{', '.join(sorted(allowed))}; and tables "
                    f"{', '.join(f'[{table}]' for table in _TABLES)}."
                )
    table_values = {
        f"table_{name}": format_cells(value) if isinstance(value, list) else value
        for name, value in tables["table"].items()
    }
    repeated = {param.name for param in ctx.command.params if getattr(param, "multiple", False)}
    listed = {k: [v] if k in repeated and isinstance(v, str) else v for k, v in values.items()}
    ctx.default_map = {**listed, **table_values}
    for param in ctx.command.params:
        if param.name in ctx.default_map:
            try:
                param.process_value(ctx, ctx.default_map[param.name])
            except typer.BadParameter as error:
                raise SpecificationError(f"{path}: {param.name}: {error.message}.") from error
    return path


def format_cells(values: Sequence[Any]) -> str:
    """Return values as an option takes several: those with a comma in quotation marks."""
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(values)
    return row.getvalue()


def expand_home(path: Path | None) -> Path | None:
    """Expand a ``~`` that the shell has left, as in ``--runs=~/runs``."""
    return None if path is None else Path(os.path.expanduser(path))


TaskArgument = Annotated[
    str | None,
    typer.Argument(
        help="A data set (see 'tauflow data list'); your own table, .csv, .csv.gz or .parquet, "
        "with one row per sample; or a folder that tauflow.data.write_task wrote."
    ),
]
CsvOption = Annotated[
    Path | None, typer.Option(callback=expand_home, help="Your own table, in place of a data set.")
]
SeedOption = Annotated[
    int, typer.Option(min=0, help="Random seed of weights and of whatever is drawn.")
]
ModelOption = Annotated[str, typer.Option(help="A model; see 'tauflow models'.")]
OptionOption = Annotated[
    list[str] | None, typer.Option(help="key=value for the model; may be repeated.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler whose workers run; local starts --jobs of them, or one "
        "for each core."
    ),
]

RunsOption = Annotated[
    Path,
    typer.Option(
        "--runs", callback=expand_home, file_okay=False, help="Folder of checkpoints and logs."
    ),
]
EpochsOption = Annotated[int | None, typer.Option(min=1, help="Passes over the training data.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        callback=_apply_config,
        is_eager=True,
        help="A TOML file of these options, and of tables recipe, options and table.",
    ),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="Where to train, such as cuda; by default the CPU.")
]
MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="auroc, average_precision, brier, f1, rmse, r2, ...; several with commas, or "
        "repeated. The first one selects the epoch.",
    ),
]
RecipeSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="recipe.lr=0.01, any field of the recipe; may be repeated."),
]
LogOption = Annotated[
    list[str] | None,
    typer.Option(help="Also log to tensorboard."),
]


def is_from_config(ctx: typer.Context, option: str) -> bool:
    """Whether a command has the value of an option from the file of settings."""
    source = ctx.get_parameter_source(option)
    return source is not None and source.name == "DEFAULT_MAP"


def read_config_table(config: Path | None, name: str) -> dict[str, Any]:
    """Return a table of the file of settings, empty without one.

    TOML has no null: the text "null" stands for it, as in ``--set``.
    """
    if config is None:
        return {}
    from tauflow.runs.best_config import NULL

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return None if value == NULL else value

    return {k: plain(v) for k, v in _read_config(config)[1][name].items()}


def parse_recipe_options(
    texts: list[str] | None, config_fields: Mapping[str, Any], **named_fields: Any
) -> dict[str, Any]:
    """Return the fields of the recipe that the command line gives.

    Args:
        texts: of ``--set``.
        config_fields: fields of the file of settings; one of which an entry is given keeps its
            others.
        named_fields: given by separate options, ``None`` where they are not; ``--set`` goes before.

    Raises:
        ArgumentError: a setting is not of the recipe.
    """
    from tauflow.runs.toml_files import merge_entries

    named = {name: value for name, value in named_fields.items() if value is not None}
    for key, value in parse_settings(texts).items():
        place, _, name = key.partition(".")
        if place != "recipe" or not name:
            raise ArgumentError(
                f"--set {key}: settings are of the recipe, such as recipe.{name or key}. Options "
                "of the model are given with --option."
            )
        named[name] = value
    fields = {name.partition(".")[0] for name in named}
    return {name: v for name, v in merge_entries(config_fields, named).items() if name in fields}


def parse_settings(texts: list[str] | None) -> dict[str, Any]:
    """Return what ``--set`` gives by dotted name; ``recipe.A.b`` is entry b of the recipe's A."""
    from .argument_parsing import parse_key_values

    return parse_key_values(texts or [], option="--set")
