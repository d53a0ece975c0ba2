"""Run commands where they cannot write, or hardly; a program.

Arguments: how many tries, a seed, and ``disk`` for disks that are too small, which only root can
make, or ``other`` for other troubles. Every command must work, or end with a message,
and must work in the same folder when the trouble is over.
"""

import io
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from forked import end, fork, warm_up
from guard import limits
from kill_commands import TABLE

NOBODY = 65534
PATIENCE = 120  # seconds
MESSAGES = ("tauflow: ", "gru, seed", "elman, seed")
NOTHING_TO_TELL = "standard output without a reader"
READ_ONLY = "a folder that is read-only"


def commands(table: Path) -> list[list[str]]:
    """Return commands that read and write all that commands do."""
    return [
        ["run", "pendulum", "--model", "elman", "--hidden-size", "3", "--epochs", "1"],
        ["reproduce", str(table)],
        ["show", str(table)],
        ["search", str(table), "gru", "--vary", "recipe.lr=[0.01,0.02]"],
        ["report"],
        ["models"],
        ["data", "list"],
    ]


def no_longer_root() -> None:
    """Become a user whom permissions hold back."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def without_home() -> None:
    """Leave no place for caches and settings."""
    for name in [name for name in os.environ if name == "HOME" or name.startswith("XDG_")]:
        del os.environ[name]


def home_that_cannot_be() -> None:
    """Name a place for caches and settings that cannot be made."""
    os.environ.update(HOME="/dev/null/home", XDG_CACHE_HOME="/dev/null/cache")


def output_to_a_full_disk() -> None:
    """Let the first line that is printed fail."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def output_to_nobody() -> None:
    """Print into a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


def troubles(rng: random.Random) -> dict[str, Callable[[], None]]:
    """Return what is made wrong just before a command, by name."""
    size = int(10 ** rng.uniform(0, 5))
    encoding = rng.choice(("ascii", "latin-1", "cp437"))

    def full_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    def terminal() -> None:
        for name in ("stdout", "stderr"):
            binary = getattr(sys, name).detach()
            setattr(sys, name, io.TextIOWrapper(binary, encoding, write_through=True))

    return {
        f"files of up to {size} bytes": full_disk,
        f"a terminal of {encoding}": terminal,
        "no HOME": without_home,
        "HOME that cannot be": home_that_cannot_be,
        "standard output to a full disk": output_to_a_full_disk,
        NOTHING_TO_TELL: output_to_nobody,
        READ_ONLY: no_longer_root,
    }


def outcome(
    words: list[str], folder: Path, prepare: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Run a command, and return its exit code and what it printed."""
    reader, writer = os.pipe()
    child = fork(words, folder, writer, prepare)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        printed = pipe.read().decode("utf-8", "replace")
    return end(child), printed


def check(words: list[str], folder: Path, rng: random.Random) -> None:
    """Run a command in trouble, and again when it is over."""
    what, prepare = rng.choice(list(troubles(rng).items()))
    if rng.random() < 0.5:
        judge(f"{words}", *outcome(words, folder))
    if what == READ_ONLY:
        folder.chmod(0o555)
    code, printed = outcome(words, folder, prepare)
    judge(f"{words} with {what}", code, printed, has_message=what == NOTHING_TO_TELL and code > 0)
    folder.chmod(0o755)
    judge(f"{words} after {what}", *outcome(words, folder), works=words != ["report"])


def check_disk(words: list[str], folder: Path, rng: random.Random) -> None:
    """Run a command on a disk that is too small, and again when it is not."""
    size = int(10 ** rng.uniform(3.6, 5.5))
    disk(folder, f"size={size}")
    try:
        what = f"{words} on a disk of {size} bytes"
        judge(what, *outcome(words, folder))
        disk(folder, "remount,size=64m")
        judge(f"{what}, then enough", *outcome(words, folder), works=words != ["report"])
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def disk(folder: Path, options: str) -> None:
    """Put a disk in memory in the place of a folder, or change it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)


def judge(
    what: str, code: int, printed: str, *, has_message: bool = False, works: bool = False
) -> None:
    """Refuse a command that ended otherwise than well, or by a message."""
    has_message = has_message or any(line.startswith(MESSAGES) for line in printed.splitlines())
    good = code == 0 or (has_message and not works)
    assert good, f"{what}: exit code {code}\n{printed[-3000:]}"
    assert "Traceback" not in printed, f"{what}:\n{printed[-3000:]}"


def main() -> None:
    """Try commands in trouble, each in an empty folder."""
    wanted, seed, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rng = random.Random(seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        root.chmod(0o755)  # for the user that is not root
        table = root / "tiny.toml"
        table.write_text(TABLE.format(epochs=1))
        warm_up(commands(table), root / "warm")
        for number in range(wanted):
            folder = root / str(number)
            folder.mkdir()
            words = rng.choice(commands(table))
            with limits(seconds=PATIENCE, memory=1 << 40):
                (check_disk if kind == "disk" else check)(words, folder, rng)


if __name__ == "__main__":
    main()
