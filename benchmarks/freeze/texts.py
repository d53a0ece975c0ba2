"""What commands print, public names, and the reports of a small run that is stored in the tests."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .digests import TESTS, digest, key, write_part

OLD = TESTS / "frozen"
"""Files of an earlier version."""


def list_values(_: Path) -> Iterator[tuple[str, str]]:
    """Yield texts as they are; of reports a digest of the file and its text without pictures."""
    import typer

    from tauflow.cells.registry import MODELS
    from tauflow.cli.main import app
    from tauflow.models import WHOLE_MODELS

    for words in _commands(typer.main.get_command(app), ()):
        yield key("help", " ".join(words) or "tauflow"), _said(*words, "--help")
    yield key("list", "models"), _said("models")
    yield key("list", "data"), _said("data", "list")
    yield key("list", "tables"), _said("reproduce")
    yield key("list", "figures"), _said("figure")
    for name in (*MODELS, *WHOLE_MODELS):
        yield key("info", name), _said("info", name, "--results", "none")
    names = (TESTS / "repo" / "public_names.txt").read_text(encoding="utf-8")
    yield key("public names"), names
    yield from _reports()


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for name, part in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(part, (*words, name))


def _said(*words: str) -> str:
    from typer.testing import CliRunner

    from tauflow.cli.main import app

    result = CliRunner().invoke(app, list(words))
    return f"{result.output}\nexit code {result.exit_code}\n"


def _reports() -> Iterator[tuple[str, str]]:
    """Reports of a table, of all tables and of a run of a table of visits, all of them stored."""
    from . import old

    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(OLD, Path(folder, "old"))
        os.chdir(Path(folder, "old"))  # commands then print no paths but those that they resolve
        (run,) = Path("trained").rglob("run.json")
        for name, words in {
            "table": ("show", "table/tiny.toml", "--results", "table"),
            "all tables": ("report", "table/tiny.toml", "--results", "table"),
            "run": ("run", *old.RUN.split(), "--epochs", "2", "--resume"),
            "finished run": ("show", str(run.parent)),
        }.items():
            yield key("report", name, "printed"), _said(*words).replace(folder, "FOLDER")
        for path in sorted(Path().rglob("*")):
            if path.suffix in (".html", ".md"):
                text = path.read_text(encoding="utf-8").replace(folder, "FOLDER")
                yield key("report", path.as_posix(), "digest"), digest(text)
                yield key("report", path.as_posix()), re.sub(r"base64,[^\"')]+", "...", text)
        os.chdir(TESTS)


if __name__ == "__main__":
    write_part("texts", list_values)
