"""Find and read specification files."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from tauflow._internal.registry import suggest_name
from tauflow.errors import SpecificationError, UnknownNameError
from tauflow.runs.toml_files import parse_toml, read_toml

from .experiment import Experiment
from .grid import read_grid
from .parse import experiment_from_dict


def list_experiments() -> list[str]:
    """Return the names of the experiments that come with the package, sorted."""
    folder = resources.files("tauflow_papers.experiments.spec") / "tables"
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def load_experiment(name: str | Path) -> Experiment:
    """Read an experiment.

    Args:
        name: one of :func:`list_experiments`, or the path of a TOML file.

    Raises:
        UnknownNameError: no experiment of that name.
        DataNotFoundError: no file at that path.
        SpecificationError: the file is not TOML, or not an experiment.
    """
    if isinstance(name, Path) or name.endswith(".toml"):
        return experiment_from_dict(read_toml(name), str(name))
    known = list_experiments()
    if name not in known:
        raise UnknownNameError(
            f"unknown experiment {name!r}.{suggest_name(name, known)} Known: {', '.join(known)}."
        )
    packaged = resources.files("tauflow_papers.experiments.spec") / "tables" / f"{name}.toml"
    where = f"{name}.toml"
    return _load_packaged(packaged.read_bytes(), where)


@lru_cache(maxsize=64)
def _load_packaged(data: bytes, where: str) -> Experiment:
    """Read a table of the package, of which reports and lists read all."""
    return experiment_from_dict(parse_toml(data, where), where)


def load_grid(path: str | Path) -> dict[str, tuple[Any, ...]]:
    """Read the table ``[grid]`` of a TOML file; what else the file holds is not looked at.

    Raises:
        DataNotFoundError: there is no such file.
        SpecificationError: the file is not TOML, has no grid, or the grid is not one.
    """
    content = read_toml(path)
    if not isinstance(content.get("grid"), Mapping):
        raise SpecificationError(
            f"{path} has no table [grid]. Add one, with lists of values such as "
            "recipe.lr = [0.001, 0.01]."
        )
    return read_grid(f"{path}, [grid]", content["grid"])
