"""What ``lint-imports`` cannot say of imports, and that the documentation shows its layers."""

import ast
import re

import pytest
from sources import MODULES, PACKAGE, ROOT

tomllib = pytest.importorskip("tomllib", reason="tomllib is part of Python 3.11 and newer")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]
FACADE = PACKAGE / "__init__.py"


def imports(path):
    """Yield (level, dotted name, imported names) of every import, the lazy ones too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name, []


def names_in(layer):
    return re.split(r" [|:] ", layer)


def test_the_page_on_architecture_shows_the_layers_of_the_linter():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```text\n(zoo .*?)^```", page, re.M | re.S)
    shown = [set(line[:44].split()) for line in block.splitlines()]
    (contract,) = [c for c in CONTRACTS if c.get("containers") == ["tauflow"]]
    modules = {"__main__", "version"}  # of a line or two
    layers = [set(names_in(layer)) - modules for layer in contract["layers"]]
    assert shown == [layer for layer in layers if layer]


def test_the_reading_list_has_files_that_exist_and_counts_their_lines():
    page = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    first, _, later = page.partition("## Next")
    listed = re.findall(r"^\d+\. \[`([\w/.]+)`\]\(\.\./([\w/.]+)\):", first, re.M)
    assert len(listed) > 10
    assert all(path.endswith(name) for name, path in listed)
    lines = sum(len((ROOT / path).read_text("utf-8").splitlines()) for _, path in listed)
    (stated,) = re.findall(r"about ([\d,]+) lines", first)
    assert abs(int(stated.replace(",", "")) - lines) < 0.1 * lines
    assert all((ROOT / "docs" / path).exists() for path in re.findall(r"\]\(([^)]+)\)", later))


@pytest.mark.parametrize("path", [p for p in MODULES if p != FACADE], ids=lambda p: p.stem)
def test_siblings_are_imported_by_module(path):
    parts = path.relative_to(PACKAGE).parts
    inside_a_subfolder = len(parts) > 2
    for level, name, names in imports(path):
        assert level <= 2, "a folder's folder may reach its parent, and no further"
        absolute = len(parts) > 1 and name.split(".")[:2] == ["tauflow", parts[0]]
        if parts[0] != "_internal" and not inside_a_subfolder:
            assert not absolute, f"{path.name} imports its own folder as {name}"
        if level and not name and path.name != "__init__.py":
            siblings = {p.stem for p in path.parent.glob("*.py")}
            siblings |= {p.name for p in path.parent.iterdir() if p.is_dir()}
            assert set(names) <= siblings, f"{path.name} imports {names} through __init__"


def test_unit_tests_mirror_the_library():
    """A folder of tests has the name of a package; files at the top are of modules there."""
    unit = ROOT / "tests" / "unit"
    files = [path.relative_to(unit) for path in unit.rglob("test_*.py")]
    packages = {path.parent for path in files}
    assert [p for p in packages if not (PACKAGE / p / "__init__.py").is_file()] == []
    top = [path.stem.removeprefix("test_") for path in files if len(path.parts) == 1]
    assert [name for name in top if not (PACKAGE / f"{name}.py").is_file()] == []
    assert [path for path in files if re.match("test_(own_|recorded_|pick)", path.name)] == []
