"""Import an optional dependency on first use, or say how to get it."""

import importlib
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
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not module.startswith(error.name):
            raise  # the module is there, but one of its own imports is not
        raise MissingExtraError(
            f"{module} is not installed. Install it with: pip install 'tauflow[{extra}]'"
        ) from error
