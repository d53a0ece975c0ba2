"""What docstrings refer to exists: Sphinx checks only those that it shows."""

import ast
import builtins
import importlib
import importlib.util
import re
from pathlib import Path

import pytest
from sources import ALL_MODULES, ROOT

import tauflow

REFERENCE = re.compile(r":(?:py:)?(?:func|class|meth|mod|attr|data|exc|obj):`([^`]+)`")
PACKAGES = ("tauflow", "tauflow_papers")


def module_name(path: Path) -> str:
    names = list(path.relative_to(ROOT).with_suffix("").parts)
    names = names[names.index("src") + 1 :]
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def texts(path: Path):
    """Docstrings, of attributes too, each with the names of the classes around it."""
    queue = [(ast.parse(path.read_text(encoding="utf-8")), ())]
    while queue:
        node, classes = queue.pop()
        for child in ast.iter_child_nodes(node):
            inner = (*classes, child.name) if isinstance(child, ast.ClassDef) else classes
            queue.append((child, inner))
            text = child.value if isinstance(child, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield child.lineno, text.value, classes


def has(scope: object, names: list[str]) -> bool:
    for name in names:
        if name in getattr(scope, "__annotations__", {}):
            return True
        try:
            scope = getattr(scope, name)
        except AttributeError:
            return False
    return True


def resolves(target: str, module: str, is_package: bool, classes: tuple[str, ...]) -> bool:
    """Whether a reference names something, read as Sphinx reads it."""
    names = target.lstrip("~!").removesuffix("()").split(".")
    if names[0] == "":  # relative to the package
        names = [*module.split(".")[: None if is_package else -1], *names[1:]]
    if names[0] in PACKAGES:
        for count in range(len(names), 0, -1):
            try:
                scope = importlib.import_module(".".join(names[:count]))
            except ModuleNotFoundError:
                continue
            return has(scope, names[count:])
    scopes = [builtins, tauflow, importlib.import_module(module)]
    for name in classes:
        scopes.append(getattr(scopes[-1], name, None))  # None: for type checkers only
    return any(has(scope, names) for scope in scopes)


def is_library(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def dangling(path: Path):
    module, is_package = module_name(path), path.name == "__init__.py"
    for line, text, classes in texts(path):
        for written in REFERENCE.findall(text):
            target = re.sub(r".*<(.+)>", r"\1", written, flags=re.DOTALL)
            head, *rest = target.lstrip("~!").split(".")
            if rest and head and head not in PACKAGES and is_library(head):
                continue
            if not resolves(target, module, is_package, classes):
                yield f"{path.relative_to(ROOT)}:{line}: {written}"


def test_references_in_docstrings_resolve():
    assert [reference for path in ALL_MODULES for reference in dangling(path)] == []


@pytest.mark.parametrize("target", ["tauflow.CfC", "~tauflow.cells.CfCCell.step", ".base"])
def test_references_are_read_as_sphinx_reads_them(target):
    assert resolves(target, "tauflow.cells.cfc", False, ())
    assert not resolves(target + "_", "tauflow.cells.cfc", False, ())


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_ATTRIBUTES = {  # of an example, and of entry points
    *("tauflow.Leaky", "tauflow.cells.leaky", "tauflow.commands", "tauflow.plugins"),
}
DOTTED = re.compile(r"(?<![\w./-])(tauflow(?:_papers)?(?:\.[A-Za-z_]\w*)+)(?![\w/-])")


def test_dotted_names_on_pages_resolve():
    names = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        for name in sorted(set(DOTTED.findall(page.read_text(encoding="utf-8"))))
        if name not in NOT_ATTRIBUTES
        and not name.endswith((".md", ".py", ".toml", ".json", ".html"))
        and not resolves(name, "tauflow", True, ())
    ]
    assert names == []
