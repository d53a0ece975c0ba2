"""Import an optional dependency on first use, or say how to get it."""

import importlib
import importlib.metadata
import re
from collections.abc import Callable
from typing import Any

from tauflow.errors import MissingExtraError


def require(module: str, *, extra: str) -> Any:
    """Import ``module`` and return it.

    Args:
        module: name of the module to import, e.g. ``"pandas"``.
        extra: name of the tauflow extra that installs it.

    Raises:
        MissingExtraError: the module is not installed.
    """
    return _import_or_explain(module, lambda: get_install_command(extra))


def require_package(module: str, *, package: str | None = None) -> Any:
    """Import a package that no extra of tauflow installs, and return it.

    Args:
        module: name of the module to import.
        package: name by which pip installs it, if another one.

    Raises:
        MissingExtraError: it is not installed.
    """
    return _import_or_explain(module, lambda: f"pip install {package or module}")


def _import_or_explain(module: str, command: Callable[[], str]) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not module.startswith(error.name):
            raise  # the module is there, but a module that it imports is not
        raise MissingExtraError(
            f"{module} is not installed. Install it with: {command()}"
        ) from error


def get_install_command(extra: str) -> str:
    """Return the command that installs what an extra needs, however tauflow was installed."""
    try:
        lines = importlib.metadata.requires("tauflow") or []
    except importlib.metadata.PackageNotFoundError:  # only on the path
        lines = []
    pattern = re.compile(rf"([^;]*);.*\bextra == ['\"]{re.escape(extra)}['\"]")
    packages = [match[1].strip() for line in lines if (match := pattern.fullmatch(line))]
    return "pip install " + " ".join(f"'{name}'" for name in packages or [f"tauflow[{extra}]"])
