"""Run commands one after the other, each in a child that need not import what all of them import.

A program: reads lines of words as JSON, ``["python", ...]`` or ``["tauflow", ...]``, in front of
which ``NAME=value`` may stand, and answers each with the exit status and what the command printed.
tauflow itself is imported by every child.
"""

import importlib
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

SHARED = ("torch", "numba", "pandas", "matplotlib.pyplot", "typer.testing", "rich.table", "pytest")


def run(words: list[str]) -> None:
    """Run a command in this process as if it had been started by it."""
    while "=" in words[0]:
        name, _, value = words[0].partition("=")
        os.environ[name], words = value, words[1:]
    program, *arguments = words
    if program == "tauflow":
        arguments = ["-m", "tauflow", *arguments]
    kind, *rest = arguments
    if kind == "-m":
        name, sys.argv = rest[0], rest
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c"]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


def status_of(words: list[str]) -> int:
    """Run a command, and return the status with which its process would end."""
    try:
        run(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def in_child(words: list[str]) -> tuple[int, str]:
    """Return status and output of a command that a forked child has run."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            status = status_of(words)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return status, output.read()


if __name__ == "__main__":
    sys.path[0] = os.getcwd()  # of this file's neighbours there are others in the copy
    for module in SHARED:
        importlib.import_module(module)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(in_child(json.loads(line))) + "\n")
        sys.stdout.flush()
