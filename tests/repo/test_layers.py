"""Imports run one way: a file imports lower ranks only, and siblings by module."""

import ast
import re

import pytest
from sources import MODULES, PACKAGE, PAPERS, ROOT

RANKS = {
    **dict.fromkeys(("errors", "batch", "version", "_internal"), 0),
    **dict.fromkeys(("solvers", "wirings", "data", "training", "plotting"), 1),
    "cells": 2,
    "kernels": 3,
    "sequence": 4,
    **dict.fromkeys(("models", "analysis"), 5),
    "export": 6,
    **dict.fromkeys(("predict", "compat"), 7),
    **dict.fromkeys(("runs", "estimators"), 8),
    "cli": 9,
    "__main__": 10,
}
FACADE = PACKAGE / "__init__.py"


def room(path):
    """Return the folder, or the module of rank 0, that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Yield (level, dotted name, imported names) of every import, the lazy ones too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name, []


def rooms_imported(path):
    for level, name, names in imports(path):
        if level == 0 and name.split(".")[0] == "tauflow":
            parts = name.split(".")
            yield from parts[1:2] if len(parts) > 1 else names


def test_every_room_has_a_rank():
    assert {room(path) for path in MODULES if path != FACADE} <= RANKS.keys()


def test_the_page_on_the_house_shows_these_ranks():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = re.findall(r"^ ?([1-9]\d*)  (.{57})\w", page, re.M)
    shown = {name: int(rank) for rank, names in lines for name in names.split()}
    folders = {room(path) for path in MODULES if path.parent != PACKAGE}
    assert shown == {name: RANKS[name] for name in folders if RANKS[name]}


@pytest.mark.parametrize("path", [p for p in MODULES if p != FACADE], ids=lambda p: p.stem)
def test_only_lower_ranks_are_imported(path):
    own = room(path)
    in_a_subfolder = len(path.relative_to(PACKAGE).parts) > 2
    for other in rooms_imported(path):
        if other == "__version__" or (other == own and in_a_subfolder):
            continue  # the command line prints the one; data/real reaches data/store by the other
        # Rank 0 has no folders: its modules stand side by side, and cycles fail by themselves.
        below = RANKS[other] < RANKS[own] or RANKS[other] == RANKS[own] == 0
        assert below, f"{path.relative_to(PACKAGE)} (rank {RANKS[own]}) imports {other}"


PARTS_OF_EXPERIMENTS = ("spec", "run", "report")
"""Subpackages, each of which imports only those before it."""


@pytest.mark.parametrize("name", PARTS_OF_EXPERIMENTS)
def test_parts_of_experiments_import_the_ones_before(name):
    allowed = PARTS_OF_EXPERIMENTS[: PARTS_OF_EXPERIMENTS.index(name) + 1]
    files = sorted((PAPERS / "experiments" / name).glob("*.py"))
    assert files
    for path in files:
        for level, imported, _ in imports(path):
            if level == 0 and imported.startswith("tauflow_papers.experiments."):
                assert imported.split(".")[2] in allowed, f"{path.name} imports {imported}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_the_library_imports_nothing_of_the_papers(path):
    for _, imported, _ in imports(path):
        assert not imported.startswith("tauflow_papers"), f"{path.name} imports {imported}"


@pytest.mark.parametrize("path", [p for p in MODULES if p != FACADE], ids=lambda p: p.stem)
def test_siblings_are_imported_by_module(path):
    for level, name, names in imports(path):
        assert level <= 2, "a folder's folder may reach its parent, and no further"
        absolute = name.split(".")[:2] == ["tauflow", room(path)]
        inside_a_subfolder = len(path.relative_to(PACKAGE).parts) > 2
        if RANKS[room(path)] > 0 and not inside_a_subfolder:
            assert not absolute, f"{path.name} imports its own folder as {name}"
        if level and not name and path.name != "__init__.py":
            siblings = {p.stem for p in path.parent.glob("*.py")}
            siblings |= {p.name for p in path.parent.iterdir() if p.is_dir()}
            assert set(names) <= siblings, f"{path.name} imports {names} through __init__"
