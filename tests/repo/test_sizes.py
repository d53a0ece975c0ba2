"""Files and functions stay small enough to hold in the head."""

import ast
import subprocess

import pytest
from sources import ALL_MODULES, ROOT

FILE_LINES = 420
FUNCTION_LINES = 60
KERNEL_LINES = 300


@pytest.mark.parametrize("path", ALL_MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_small(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= FILE_LINES
    limit = KERNEL_LINES if "kernels" in path.relative_to(ROOT).parts else FUNCTION_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = node.end_lineno - body[0].lineno + 1 if body else 0
            assert length <= limit, f"{node.name} has {length} lines of code"


def test_no_drawer_for_everything():
    names = {
        path.stem for folder in ("src", "papers", "tests") for path in (ROOT / folder).rglob("*.py")
    }
    assert not names & {"utils", "util", "misc", "helpers", "common"}


def test_modules_of_tests_have_names_of_their_own():
    """Folders of tests are no packages: of two modules with one name only the first is imported."""
    tests = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "papers" / "tests").rglob("*.py")]
    names = [path.stem for path in tests if path.stem != "conftest"]
    assert not {name for name in names if names.count(name) > 1}


def test_what_git_tracks_is_small():
    """Above all stored results, whose histories are thinned when they are collected."""
    words = ["git", "ls-tree", "-rl", "HEAD"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    sizes = [int(line.split()[3]) for line in listed.stdout.splitlines()]
    assert sum(sizes) <= 25e6  # none in an archive without a history
