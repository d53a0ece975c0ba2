"""What docs/adding says is done as it says it, in a scratch copy of the repository."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from sources import ROOT, tracked_text_files

RECIPES = [
    pytest.param(page, marks=() if page.stem in ("cell", "plugin") else pytest.mark.thorough)
    for page in sorted((ROOT / "docs" / "adding").glob("*.md"))
    if page.stem != "role"  # which shows a change that was made
]
COPIED = ("src", "papers", "tests", "docs", "pyproject.toml", "Makefile")
COMPILED = "src/tauflow/kernels/cpu/__pycache__/tauflow-kernels"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Scratch(NamedTuple):
    """A copy of the repository, and the program that runs commands in it."""

    folder: Path
    process: subprocess.Popen


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """Return a copy of the repository, to which one recipe is added after the other."""
    folder = tmp_path_factory.mktemp("scratch")
    for path in tracked_text_files():
        name = path.relative_to(ROOT)
        if name.parts[0] in COPIED and name.parts[:2] not in (
            ("docs", "gallery"),
            ("papers", "results"),
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name)
    if (ROOT / COMPILED).is_dir():  # an entry is named by its sources, so none is out of date
        unfinished = shutil.ignore_patterns(".*")
        shutil.copytree(ROOT / COMPILED, folder / COMPILED, ignore=unfinished)
    environment = {
        "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder / "papers" / "src")]),
        "TAUFLOW_CACHE": str(folder),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half of a small session's time
    }
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("warm_commands.py"))],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield Scratch(folder, process)
        process.stdin.close()


@pytest.mark.thorough
@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda page: page.stem)
def test_the_recipe_does_what_it_says(recipe, scratch):
    if recipe.stem == "kernel" and not (scratch.folder / "src/tauflow/cells/leaky.py").exists():
        take_steps(recipe.with_stem("cell"), scratch, commands=False)
    take_steps(recipe, scratch, commands=True)


def take_steps(recipe: Path, scratch: Scratch, *, commands: bool):
    blocks = BLOCK.findall(recipe.read_text(encoding="utf-8"))
    assert {"sh"} < {language for language, _ in blocks}
    for language, text in blocks:
        if language == "sh":
            for command in text.splitlines() if commands else ():
                follow(command, scratch)
            continue
        first, _, rest = text.partition("\n")
        path = scratch.folder / first.removeprefix("# ")
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


def follow(command: str, scratch: Scratch):
    scratch.process.stdin.write(json.dumps(shlex.split(command)) + "\n")
    scratch.process.stdin.flush()
    status, printed = json.loads(scratch.process.stdout.readline())
    assert status == 0, f"{command}\n{printed[-3000:]}"
