"""Run the command line in forks of a process that has imported everything: a try costs little.

For programs that the tests start: a process of pytest may have threads, which do not fork well.
"""

import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from tauflow.cli.main import main

CRASHED = 70
"""Exit code of a command that ends with an exception, as a traceback tells."""


def warm_up(commands: Iterable[Iterable[str]], folder: Path) -> None:
    """Run commands in this process, so that forks find everything imported and compiled."""
    folder.mkdir()
    os.chdir(folder)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        for words in commands:
            sys.argv = ["tauflow", *words]
            with suppress(SystemExit):
                main()


def fork(
    words: Iterable[str], folder: Path, output: int, prepare: Callable[[], None] | None = None
) -> int:
    """Start ``tauflow WORDS`` in a folder, and in a new session; return its number.

    Args:
        words: of the command line.
        folder: to start in.
        output: descriptor of the file that standard output and error go to.
        prepare: called in the process just before the command.
    """
    has_session, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        os.read(has_session, 1)  # until the child closes it: before, no signal reaches its group
        os.close(has_session)
        return child
    code: object = CRASHED
    try:
        os.setsid()
        os.close(write_end)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(output, number)
            stream = io.TextIOWrapper(os.fdopen(number, "wb", 0), "utf-8", write_through=True)
            setattr(sys, name, stream)
        if prepare is not None:
            prepare()
        sys.argv = ["tauflow", *words]
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except KeyboardInterrupt:  # before the command line was reached
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code if isinstance(code, int) else 1)


def end(child: int) -> int:
    """Wait for a command and return its exit code, negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def alive(sessions: Iterable[int]) -> list[str]:
    """Return number and command of every process that belongs to one of the sessions."""
    wanted, commands = set(sessions), []
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        with suppress(OSError):
            state, _, _, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) in wanted and state != "Z":
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                commands.append(f"{place.name}: {command}")
    return commands
