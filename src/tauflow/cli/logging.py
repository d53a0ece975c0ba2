"""What the command line logs, and where."""

import logging

import typer


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
