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


def found(_: Path) -> Iterator[tuple[str, str]]:
    """Yield texts as they are; of reports a digest of the file and its text without pictures."""
    import typer

    from tauflow.cells.catalog import MODELS
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
    """Reports of a table and of all tables, from results that are stored."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # what is printed then has no paths of this machine
        shutil.copytree(OLD / "table", "table")
        for name, words in {
            "table": ("show", "table/tiny.toml", "--results", "table"),
            "all tables": ("report", "table/tiny.toml", "--results", "table"),
        }.items():
            yield key("report", name, "printed"), _said(*words).replace(folder, "FOLDER")
        for path in sorted(Path("table").rglob("*")):
            if path.is_file() and path.suffix not in (".jsonl", ".toml"):
                content = path.read_bytes().replace(folder.encode(), b"FOLDER")
                yield key("report", path.as_posix(), "bytes"), digest(content)
                if path.suffix in (".html", ".md"):
                    text = content.decode()
                    yield key("report", path.as_posix()), re.sub(r"base64,[^\"')]+", "...", text)
        os.chdir(TESTS)


if __name__ == "__main__":
    write_part("texts", found)
