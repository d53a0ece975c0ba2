"""Plain text: kept from steering terminals and from making SVG and HTML invalid; tables of it."""

import re
from collections.abc import Iterable, Sequence

# Control characters but tab and line breaks, halves of pairs, and what XML excludes.
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def find_control_character(text: str) -> str:
    """Return the first character that cannot be printed, ``""`` if all can."""
    match = _CONTROL_CHARACTERS.search(text)
    return match[0] if match else ""


def replace_control_characters(text: str) -> str:
    """Return a text in which every control character but tabs and line breaks is a U+FFFD."""
    return _CONTROL_CHARACTERS.sub("\ufffd", text)


def add_article(noun: str) -> str:
    """Return a noun with its indefinite article."""
    return f"{'an' if noun[:1] in 'aeiouAEIOU' else 'a'} {noun}"


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a count of things for a sentence: ``1 row``, ``2 rows``, ``1,234 rows``.

    Args:
        count: of things.
        noun: one of them.
        plural: several of them, if that is not the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_span(span: float, unit: str) -> str:
    """Return a span of time for a sentence: ``1 day``, ``2.5 days``.

    Args:
        span: how long it is.
        unit: in which unit, a plural, such as ``days``.
    """
    number = f"{span:.6g}"
    if unit.startswith("unit of "):  # that of a column which says none
        return f"{number} in the {unit}"
    return f"{number} {unit.removesuffix('s') if number == '1' else unit}"


def format_markdown_table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], numeric_columns: Iterable[int] = ()
) -> list[str]:
    """Return the lines of a table in Markdown.

    Args:
        headers: of the columns.
        rows: their texts.
        numeric_columns: positions of the columns to align to the right.
    """
    right = set(numeric_columns)
    rule = ["---:" if position in right else "---" for position in range(len(headers))]
    lines = (headers, rule, *rows)
    return ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines]
