"""Files of settings in TOML."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tauflow._internal.json_io import MAX_DEPTH, check_depth
from tauflow._internal.regular_file import check_file_path
from tauflow.errors import SpecificationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_MAX_BYTES = 1 << 15
"""Of a file of settings: the time for keys of many parts grows with the square of their length."""


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        DataNotFoundError: there is no such file.
        SpecificationError: the file is not TOML in UTF-8, or takes more than 32 KiB.
    """
    file = check_file_path(path, "a specification file", advice="Check the path.")
    if file.stat().st_size > _MAX_BYTES:
        raise SpecificationError(f"{file} takes more than 32 KiB: it is no file of settings.")
    return parse_toml(file.read_bytes(), str(file))


def parse_toml(data: bytes, where: str) -> dict[str, Any]:
    """Return the content of TOML text; ``where`` names its source in errors."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SpecificationError(
            f"{where} is not text in UTF-8 ({error}). Save it as UTF-8."
        ) from error
    try:
        content: dict[str, Any] = tomllib.loads(text)
        check_depth(content)
    except RecursionError as error:
        raise SpecificationError(
            f"{where}: it is nested more deeply than {MAX_DEPTH} levels. Correct it."
        ) from error
    except ValueError as error:  # as are those of TOML, and of numbers with thousands of digits
        raise SpecificationError(
            f"{where} is not valid TOML: {error}. Correct that line."
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
