"""How every command ends when something is wrong: one message, no traceback, a non-zero code."""

import errno
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
_GREETING = """\
tauflow: neural networks whose state evolves in continuous time

  tauflow run pendulum                  train a network, with a report to look at
  tauflow run --csv visits.csv ...      the same on a table of your own
  tauflow predict RUN --csv new.csv     use what was trained
  tauflow info ltc                      what a model computes

'tauflow --help' lists all commands, 'tauflow doctor' looks at this machine."""


class TauflowGroup(TyperGroup):
    """Turns errors meant for users, and Ctrl-C, into messages on standard error."""

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

    def invoke(self, ctx: Any) -> Any:
        """Run a command; ``--traceback`` shows where it failed."""
        try:
            return super().invoke(ctx)
        except (TauflowError, OSError) as error:  # a folder that cannot be written, a full disk
            message = str(error)
            if not isinstance(error, TauflowError):
                if error.errno in (None, errno.EPIPE):
                    raise
                message = f"{error.strerror}: {error.filename}"
            if ctx.params.get("traceback"):
                traceback.print_exc()
            else:
                typer.echo(replace_control_characters(f"tauflow: {message}"), err=True)
            raise SystemExit(1) from error
        except KeyboardInterrupt:
            typer.echo(f"\nStopped. {get_continue_command(sys.argv[1:])}", err=True)
            raise SystemExit(130) from None


def get_continue_command(arguments: list[str]) -> str:
    """Say which command goes on where this one stopped."""
    words = ["tauflow", *arguments]
    if "run" in arguments[:2] and "--resume" not in arguments:
        words.append("--resume")
    return f"What is finished is kept; continue with: {shlex.join(words)}"
