"""The repository speaks of tauflow alone: no paths of somebody's machine, no registry hosts."""

import re

from sources import ROOT, tracked_text_files

# Split so that this file does not hold what it looks for.
FORBIDDEN = re.compile(
    "|".join(["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "python" + "hosted", "pypi" + r"\.org"])
)


def test_no_foreign_words():
    found = []
    for path in tracked_text_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if FORBIDDEN.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_it_looks_at_the_files_that_matter():
    names = {str(path.relative_to(ROOT)) for path in tracked_text_files()}
    assert {"README.md", "pyproject.toml", "src/tauflow/__init__.py"} <= names
