"""What benchmarks and scripts of the documentation import from packages of ours exists."""

import ast
import importlib
from collections.abc import Iterator

import pytest
from sources import ROOT

FOLDERS = ("benchmarks", "docs", "examples", "tests/repo", "papers/tests")
PACKAGES = ("benchmarks", "tauflow", "tauflow_papers")
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if "_build" not in str(path)
)


def list_imports(source: str) -> Iterator[tuple[str, str | None]]:
    """Yield module and name of each import from the packages, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield str(node.module), alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None


def exists(module: str, name: str | None) -> bool:
    """Say whether an import succeeds."""
    try:
        loaded = importlib.import_module(module)
        if name is not None and not hasattr(loaded, name):
            importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def test_list_imports_finds_those_inside_functions_and_exists_notices_what_is_not_there():
    source = "import tauflow.nowhere\ndef f():\n    from tauflow.cells import Nothing, registry\n"
    imports = sorted(list_imports(source), key=str)
    expected = [("tauflow.cells", "Nothing"), ("tauflow.cells", "registry")]
    assert imports == [*expected, ("tauflow.nowhere", None)]
    assert [exists(*import_) for import_ in imports] == [False, True, False]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_from_the_packages_exist(path):
    wanted = [
        import_
        for import_ in list_imports(path.read_text(encoding="utf-8"))
        if import_[0].split(".")[0] in PACKAGES
    ]
    assert [import_ for import_ in wanted if not exists(*import_)] == []
