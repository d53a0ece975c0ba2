"""What docs/adding says is done as it says it, in a scratch copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sources import ROOT, tracked_text_files

RECIPES = sorted((ROOT / "docs" / "adding").glob("*.md"))
COPIED = ("src", "tests", "docs", "pyproject.toml", "Makefile")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """Return a copy of the repository, to which one recipe is added after the other."""
    folder = tmp_path_factory.mktemp("scratch")
    for path in tracked_text_files():
        name = path.relative_to(ROOT)
        if name.parts[0] in COPIED and name.parts[:2] != ("docs", "gallery"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda p: p.stem)
def test_the_recipe_does_what_it_says(recipe, scratch):
    if recipe.stem == "kernel" and not (scratch / "src/tauflow/cells/leaky.py").exists():
        take_steps(recipe.with_stem("cell"), scratch, commands=False)
    take_steps(recipe, scratch, commands=True)


def take_steps(recipe: Path, scratch: Path, *, commands: bool):
    blocks = BLOCK.findall(recipe.read_text(encoding="utf-8"))
    assert {"sh"} < {language for language, _ in blocks}
    for language, text in blocks:
        if language == "sh":
            for command in text.splitlines() if commands else ():
                follow(command, scratch)
            continue
        first, _, rest = text.partition("\n")
        path = scratch / first.removeprefix("# ")
        if language == "diff":
            change(path, rest)
        else:
            assert not path.exists()
            path.write_text(rest, encoding="utf-8")


def change(path: Path, lines: str):
    """Apply a difference whose lines stand together, once, in the file."""
    old = "".join(f"{line[1:]}\n" for line in lines.splitlines() if line[0] in " -")
    new = "".join(f"{line[1:]}\n" for line in lines.splitlines() if line[0] in " +")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} has no single place for\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def follow(command: str, scratch: Path):
    words = {"python": f"{sys.executable} ", "tauflow": f"{sys.executable} -m tauflow "}
    first, _, rest = command.partition(" ")
    own = {
        "PYTHONPATH": str(scratch / "src"),
        "TAUFLOW_CACHE": str(scratch),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half of a small session's time
    }
    run = subprocess.run(
        words[first] + rest,
        shell=True,
        cwd=scratch,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, f"{command}\n{run.stdout[-3000:]}{run.stderr[-3000:]}"
