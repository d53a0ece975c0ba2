"""What the command line logs, and where."""

import logging
import warnings
from typing import Any

import typer

from tauflow._internal.sanitize import replace_control_characters


class _EchoHandler(logging.Handler):
    """Prints log lines as they are on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        typer.echo(self.format(record), err=True)


def configure_logging() -> None:
    """Let the library's log lines, such as that kernels are being compiled, reach the terminal."""
    log = logging.getLogger("tauflow")
    if not log.handlers:
        log.addHandler(_EchoHandler())
        log.setLevel(logging.INFO)


def _format_warning(message: Warning | str, *_: Any) -> str:
    """Return a warning as users of a command read it, without the place in the code."""
    return replace_control_characters(f"warning: {message}") + "\n"


def configure_warnings() -> None:
    """Print warnings on standard error as their messages alone."""
    warnings.formatwarning = _format_warning  # type: ignore[assignment]
