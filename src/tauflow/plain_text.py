"""Plain text: kept from steering terminals and from making SVG and HTML invalid; tables of it."""

import re
from collections.abc import Iterable, Sequence

# Control characters but tab and line breaks, halves of pairs, and what XML excludes.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def control_character(text: str) -> str:
    """Return the first character that is none to print, nothing if there is none."""
    found = _FORBIDDEN.search(text)
    return found[0] if found else ""


def visible(text: str) -> str:
    """Return a text in which every control character but tabs and line breaks is a U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", text)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count of things for a sentence: ``1 row``, ``2 rows``, ``1,234 rows``.

    Args:
        count: of things.
        noun: one of them.
        plural: several of them, if that is not the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def markdown_table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()
) -> list[str]:
    """Return the lines of a table in Markdown.

    Args:
        headers: of the columns.
        rows: their texts.
        numbers: positions of the columns to align to the right.
    """
    right = set(numbers)
    rule = ["---:" if position in right else "---" for position in range(len(headers))]
    lines = (headers, rule, *rows)
    return ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines]
