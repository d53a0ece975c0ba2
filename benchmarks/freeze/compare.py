"""Compare two folders that were written by ``freeze``."""

import difflib
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

PARTS = ("numbers", "hashes", "texts", "exports")
MUST_AGREE = ("numbers", "hashes", "exports")
MOST_KEYS = 40
MOST_LINES = 400


def compare(before: Path, after: Path, *, parts: Sequence[str], renamed: Path | None) -> int:
    """Print what differs; return 1 if numbers, hashes or exports do, else 0."""
    words = {} if renamed is None else json.loads(renamed.read_text(encoding="utf-8"))
    differing = [part for part in parts if _differs(part, before, after, words)]
    return int(any(part in MUST_AGREE for part in differing))


def _differs(part: str, before: Path, after: Path, words: dict[str, str]) -> bool:
    old, new = (_read(folder / f"{part}.json") for folder in (before, after))
    names = {with_new_words(name, words): name for name in old}
    groups = {
        "changed": [n for n in names if n in new and new[n] != old[names[n]]],
        "gone": [n for n in names if n not in new],
        "new": [n for n in new if n not in names],
    }
    counts = ", ".join(f"{len(keys)} {what}" for what, keys in groups.items())
    print(f"{part}: {len(old)} before, {len(new)} after; {counts}")
    for what, keys in groups.items():
        _print_keys(what, keys)
    if part == "texts":
        lines = [line for name in groups["changed"] for line in _diff(names[name], name, old, new)]
        print("\n".join(lines[:MOST_LINES]))
        if len(lines) > MOST_LINES:
            print(f"... and {len(lines) - MOST_LINES} lines more")
    return any(groups.values())


def _read(path: Path) -> dict[str, str]:
    if not path.is_file():
        sys.exit(f"freeze: there is no {path}. Write that part, or leave it out with --only.")
    values: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return values


def _print_keys(what: str, keys: list[str]) -> None:
    """Print some keys, and how many there are of each first part if they are many."""
    for name in keys[:MOST_KEYS]:
        print(f"  {what}: {name}")
    if len(keys) > MOST_KEYS:
        counts = Counter(name.partition(" | ")[0] for name in keys)
        print(f"  {what} in all: " + ", ".join(f"{name} {n}" for name, n in counts.items()))


def with_new_words(name: str, words: dict[str, str]) -> str:
    """Return a key with every whole word (letters, digits, ``_``, ``.``, ``-``) renamed."""
    return re.sub(r"[\w.-]+", lambda match: words.get(match[0], match[0]), name)


def _diff(old_name: str, name: str, old: dict[str, str], new: dict[str, str]) -> list[str]:
    sides = old[old_name].splitlines(), new[name].splitlines()
    return list(difflib.unified_diff(*sides, f"before: {old_name}", f"after: {name}", lineterm=""))
