"""Where results come from: stored ones only from a clean commit of main, all with their command."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from tauflow._internal.atomic_write import write_atomically
from tauflow.errors import ArgumentError
from tauflow.runs.results import RunRecord, describe_machine, get_commit, get_versions

from .result_file import read_records

TRACED_FILE = "traced.txt"
"""In a folder of results: the commits of its runs that are ancestors of main, one a line."""
UNTRACED_MARK = "§"
UNTRACED_NOTE = (
    UNTRACED_MARK
    + " marks runs whose commit is not part of the main branch, had uncommitted changes or is not "
    "known."
)
_PROTOCOL = Path("papers/PROTOCOL.md")
_BRANCHES = ("main", "origin/main")


def describe_origin(seed: int | None = None) -> dict[str, Any]:
    """Return what every stored number is kept with: commit, command, seed, versions, machine."""
    return {
        "commit": get_commit(),
        "command": get_command(),
        "seed": seed,
        "versions": get_versions(),
        "machine": describe_machine(),
    }


def get_command() -> str:
    """Return this process's command line; of absolute paths only the names."""
    words = ["tauflow", *sys.argv[1:]]
    return shlex.join(Path(word).name if Path(word).is_absolute() else word for word in words)


def check_can_store(folder: Path) -> None:
    """Refuse to put results into the repository from a source tree that cannot be traced.

    Folders outside of the repository, and those that git ignores, are not recorded.

    Args:
        folder: where results will be written; it may not exist yet.

    Raises:
        ArgumentError: the folder is part of the repository, and the sources have uncommitted
            changes or stand at a commit that is no ancestor of main.
    """
    tree = _find_repository(folder)
    if tree is None:
        return
    commit = get_commit()
    reason = (
        "the sources that run are no clone of the repository"
        if commit is None
        else f"the sources have uncommitted changes (commit {commit[:12]})"
        if commit.endswith("-dirty")
        else ""
        if is_ancestor_of_main(tree, commit)
        else f"commit {commit[:12]} is no ancestor of main"
    )
    if reason:
        raise ArgumentError(
            f"{folder} keeps results only from a clean commit of main, as papers/PROTOCOL.md says, "
            f"and {reason}. Commit and merge the changes first, or name another folder for the "
            "results."
        )


def check_origin(record: RunRecord, results_dir: Path) -> None:
    """Refuse a run of sources that cannot be traced, where results are part of the repository.

    Raises:
        ArgumentError: so it is.
    """
    tree = _find_repository(results_dir)
    if tree is not None and not is_traceable(tree, record.commit):
        raise ArgumentError(
            f"{record.experiment}, {record.row}, seed {record.seed} was run at commit "
            f"{record.commit}, which is no clean ancestor of main: {results_dir} does not take it. "
            "Run it again at a commit of main."
        )


def is_traceable(tree: Path, commit: str | None) -> bool:
    """Whether the commits of a run's parts are ancestors of main without further changes."""
    return commit is not None and all(
        not part.endswith("-dirty") and is_ancestor_of_main(tree, part)
        for part in commit.split("+")
    )


def is_ancestor_of_main(tree: Path, commit: str) -> bool:
    """Whether a commit is an ancestor of the repository's branch main, here or at its origin."""
    return any(
        ask_git(tree, "merge-base", "--is-ancestor", commit, branch) is not None
        for branch in _BRANCHES
    )


def list_commits(results_dir: Path) -> set[str | None]:
    """Return the commits of all runs and studies of a folder, and of its repository's figures."""
    runs = {
        record.commit for file in results_dir.glob("*.jsonl") for record in read_records(file)[0]
    }
    tree = _find_repository(results_dir)
    figures = [] if tree is None else (tree / "docs" / "gallery").glob("*.json")
    others = [*results_dir.glob("claims/*.json"), *figures]
    return runs | {json.loads(path.read_text(encoding="utf-8")).get("commit") for path in others}


def update_traced(results_dir: Path, commits: Iterable[str | None]) -> None:
    """Write which commits of stored runs can be traced, if this folder is in the repository."""
    tree = _find_repository(results_dir)
    if tree is None or ask_git(tree, "rev-parse", "--is-shallow-repository") != "false":
        return
    traced = sorted({commit for commit in commits if commit and is_traceable(tree, commit)})
    write_atomically(results_dir / TRACED_FILE, ("\n".join(traced) + "\n").encode())


@lru_cache(maxsize=8)
def _read_traced(path: Path, _: int) -> frozenset[str]:
    return frozenset(path.read_text(encoding="utf-8").split())


def is_untraced(commit: str | None, results_dir: Path) -> bool:
    """Whether a folder of results says which commits can be traced, and this is not among them."""
    path = results_dir / TRACED_FILE
    if not path.is_file():
        return False
    return commit not in _read_traced(path, path.stat().st_mtime_ns)


def find_untraced(records: Iterable[RunRecord], results_dir: Path) -> list[RunRecord]:
    """Return the runs that cannot be traced; none in a folder that does not say which can be."""
    return [record for record in records if is_untraced(record.commit, results_dir)]


def _find_repository(folder: Path) -> Path | None:
    """Return the root of the repository that a folder is a part of; none if git ignores it."""
    here = folder.resolve()
    while not here.is_dir():
        here = here.parent
    top = ask_git(here, "rev-parse", "--show-toplevel")
    if not top or not (Path(top) / _PROTOCOL).is_file():
        return None
    # With the slash, git knows a folder that does not exist yet.
    ignored = ask_git(here, "check-ignore", "--quiet", f"{folder.resolve()}/") is not None
    return None if ignored else Path(top)


def ask_git(tree: Path, *words: str) -> str | None:
    """Return what git answers; ``None`` if it fails or is not there."""
    try:
        answer = subprocess.run(
            ["git", *words], cwd=tree, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
