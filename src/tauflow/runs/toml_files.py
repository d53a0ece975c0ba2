"""Files of settings in TOML."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tauflow._internal.regular_file import check_file_path
from tauflow.errors import SpecificationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        DataNotFoundError: there is no such file.
        SpecificationError: the file is not TOML in UTF-8.
    """
    file = check_file_path(path, "a specification file", advice="Check the path.")
    return parse_toml(file.read_bytes(), str(file))


def parse_toml(data: bytes, where: str) -> dict[str, Any]:
    """Return the content of TOML text; ``where`` names its source in errors."""
    try:
        content: dict[str, Any] = tomllib.loads(data.decode())
    except (RecursionError, ValueError) as error:  # also of bytes that are no UTF-8
        raise SpecificationError(
            f"{where} is not valid TOML in UTF-8: {error}. Correct it."
        ) from error
    return content


def merge_entries(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with others by name; ``A.b`` is entry b of A, whose other entries stay."""
    merged = dict(values)
    for name, value in changes.items():
        outer, _, entry = name.partition(".")
        before = merged.get(outer)
        entries = before if isinstance(before, Mapping) else {}
        merged[outer] = {**entries, entry: value} if entry else value
    return merged
