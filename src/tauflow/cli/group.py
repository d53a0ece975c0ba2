"""How every command ends when something is wrong: one message, no traceback, a non-zero code."""

import errno
import os
import re
import shlex
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from tauflow._internal.sanitize import replace_control_characters
from tauflow.errors import TauflowError

_TRACEBACK = "--traceback"
_SINGLE_NEWLINE = re.compile(r"(?<!\n)\n(?!\n)")
_TRAINING_COMMANDS = ("run", "tune", "reproduce")
_GREETING = """\
tauflow: neural networks whose state evolves in continuous time

  tauflow run pendulum                  train a network, with a report to look at
  tauflow run --csv visits.csv ...      the same on a table of your own
  tauflow predict RUN --csv new.csv     use what was trained
  tauflow info ltc                      what a model computes

'tauflow --help' lists all commands, 'tauflow doctor' looks at this machine."""


_FIRST_COMMANDS = ("run", "inspect", "predict", "show", "info", "models", "data")


class TauflowGroup(TyperGroup):
    """Turns errors meant for users, and Ctrl-C, into messages on standard error."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List what a newcomer needs first; the rest in the order in which it was added."""
        names = super().list_commands(ctx)
        return [
            *(n for n in _FIRST_COMMANDS if n in names),
            *(n for n in names if n not in _FIRST_COMMANDS),
        ]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, with a help text whose lines fit the terminal, not the docstring."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.help = _SINGLE_NEWLINE.sub(" ", command.help)
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--traceback`` wherever it stands: it is thought of when a command has failed.

        Without any word, say what there is to do.
        """
        if not args:
            typer.echo(_GREETING)
            ctx.exit()
        end = args.index("--") if "--" in args else len(args)
        if _TRACEBACK in args[:end]:
            args = [_TRACEBACK, *(word for word in args[:end] if word != _TRACEBACK), *args[end:]]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; one that trains uses one thread where the machine is busy."""
        resolved = super().resolve_command(ctx, args)
        if resolved[0] in _TRAINING_COMMANDS and "--help" not in args:
            from .cpu_load import use_one_thread_if_busy

            note = use_one_thread_if_busy()
            if note is not None:
                typer.echo(note, err=True)
        return resolved

    def invoke(self, ctx: Any) -> Any:
        """Run a command; for debugging, ``--traceback`` or ``TAUFLOW_DEBUG=1`` shows where."""
        try:
            return super().invoke(ctx)
        except TauflowError as error:
            if ctx.params.get("traceback") or os.environ.get("TAUFLOW_DEBUG", "0") not in ("", "0"):
                traceback.print_exc()
            else:
                typer.echo(replace_control_characters(f"tauflow: {error}"), err=True)
            raise SystemExit(1) from error
        except OSError as error:  # a folder that cannot be written, a full disk
            if error.errno in (None, errno.EPIPE):
                raise
            message = describe_os_error(error, sys.argv[1:])
            typer.echo(replace_control_characters(f"tauflow: {message}"), err=True)
            raise SystemExit(1) from error
        except KeyboardInterrupt:
            typer.echo(f"\nStopped. {get_continue_command(sys.argv[1:])}", err=True)
            raise SystemExit(130) from None


_OS_ERROR_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free some space on that disk."),
    errno.EFBIG: "Raise the limit on the size of files ('ulimit -f').",
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "Change its permissions, or choose another place that you may read and write.",
    ),
}


def describe_os_error(error: OSError, arguments: list[str]) -> str:
    """Say which file could not be read or written, why, and what helps."""
    where = "" if error.filename is None else f": {error.filename}"
    advice = _OS_ERROR_ADVICE.get(error.errno or 0)
    message = f"{error.strerror}{where}"
    return message if advice is None else f"{message}. {advice} {get_continue_command(arguments)}"


def get_continue_command(arguments: list[str]) -> str:
    """Say which command goes on where this one stopped."""
    words = ["tauflow", *arguments]
    if "run" in arguments[:2] and "--resume" not in arguments:
        words.append("--resume")
    if {"run", "reproduce", "search"} & set(arguments[:2]):
        return f"Every finished epoch is kept; continue with: {shlex.join(words)}"
    if "tune" in arguments[:2]:
        return f"Every finished trial is kept; continue with: {shlex.join(words)}"
    return f"Start again with: {shlex.join(words)}"
