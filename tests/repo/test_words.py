"""The repository speaks of tauflow alone, in the standard terms of the field."""

import ast
import re
from collections import Counter
from pathlib import Path
from types import CodeType

from sources import ALL_MODULES, PACKAGE, PAPERS, ROOT, tracked_text_files

# Split so that this file does not hold what it looks for.
FORBIDDEN = re.compile(
    "|".join(["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "python" + "hosted", "pypi" + r"\.org"])
)


def test_no_foreign_words():
    lines = []
    for path in tracked_text_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if FORBIDDEN.search(line):
                lines.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert lines == []


def test_it_looks_at_the_files_that_matter():
    names = {str(path.relative_to(ROOT)) for path in tracked_text_files()}
    assert {"README.md", "pyproject.toml", "src/tauflow/__init__.py"} <= names


# Private words, with the standard terms that stand for them; split for the same reason.
BANNED = {
    "way ba" + "ck": "backward pass",
    "way the" + "re": "forward pass",
    "truth val" + "ue": "boolean",
    "in sil" + "ence": "silently",
    "without a wo" + "rd": "silently",
    "chan" + "ces": "probabilities",
    "ane" + "w": "again",
    "afre" + "sh": "again",
    "trivial predic" + "tion": "naive baseline",
    "recorded st" + "ep": "traced step",
    "men" + "ded": "fixed",
    "ta" + "pe": "saved tensors",
}
PROSE = re.compile(r"\b(" + "|".join(BANNED) + r")(s?)\b", re.IGNORECASE)


def prose_files():
    for path in tracked_text_files():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in (".py", ".pyi", ".md", ".j2", ".toml") and not name.startswith(
            ("papers/results/", "results/", "tests/frozen/", "docs/gallery/")
        ):
            yield path


def test_private_words_have_been_replaced():
    lines = [
        f"{path.name}:{number}: write {BANNED[match[1].lower()]!r}: {line.strip()[:70]}"
        for path in prose_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (match := PROSE.search(line))
    ]
    assert lines == []


# Names that do not say what they hold, and prose that does not say of whom or what it speaks.
EMPTY_NAMES = {
    *("dearest", "drive", "facts", "found", "given", "kept", "lone", "met", "one", "own", "said"),
    *("sheet", "ta" + "pe", "told", "whole"),
}
EMPTY_PROSE = re.compile(
    r"\b[Nn]o" + r"body\b|\b(?:is|are|was) no" + r"ne\b(?! of)|\bof (?:its|their) o" + r"wn\b"
)


def list_python_files():
    return [path for path in prose_files() if path.suffix == ".py"]


def is_defined(name: str, path: Path, text: str) -> bool:
    """Return whether an empty name has a meaning in a file."""
    return (
        # A neuron's drive, beside its conductance, is defined in tauflow.kernels.ltc; in papers
        # the drive is that of a process.
        (name == "drive" and (path.parent == PACKAGE / "kernels" / "ltc" or PAPERS in path.parents))
        # Scores of a whole data set are an argument of tauflow.training.elementwise.Score.
        or (name == "whole" and path.parent == PACKAGE / "training")
        or (name == "given" and re.search(r"from hypothesis import .*\bgiven\b", text) is not None)
    )


def list_names(code: CodeType) -> set[str]:
    """Return the names that compiled code and its functions use, those of attributes too."""
    inner = (list_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return {*code.co_names, *code.co_varnames, *code.co_cellvars}.union(*inner)


def test_locals_say_what_they_hold():
    lines = []
    for path in list_python_files():
        text = path.read_text(encoding="utf-8")
        if not EMPTY_NAMES & list_names(compile(text, path, "exec", dont_inherit=True)):
            continue  # a syntax tree takes much longer to walk
        for node in ast.walk(ast.parse(text)):
            name = node.arg if isinstance(node, ast.arg) else getattr(node, "id", None)
            if name in EMPTY_NAMES and not is_defined(name, path, text):
                lines.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert lines == []


def test_prose_names_who_and_what():
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:70]}"
        for path in prose_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if EMPTY_PROSE.search(line)
    ]
    assert lines == []


def test_a_class_name_has_one_meaning():
    names = Counter(
        name.lstrip("_")
        for path in ALL_MODULES
        if "compat" not in path.parts  # which has the names of another library
        for name in re.findall(r"(?m)^ *class (\w+)[(:]", path.read_text(encoding="utf-8"))
    )
    assert [name for name, count in names.items() if count > 1] == []
