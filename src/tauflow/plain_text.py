"""Text from files, kept from steering terminals and from making SVG and HTML invalid."""

import re

# Control characters but tab and line breaks, halves of pairs, and what XML excludes.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def control_character(text: str) -> str:
    """Return the first character that is none to print, nothing if there is none."""
    found = _FORBIDDEN.search(text)
    return found[0] if found else ""


def visible(text: str) -> str:
    """Return a text in which every control character but tabs and line breaks is a U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", text)
