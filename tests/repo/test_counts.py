"""Counts in messages agree with their noun: ``format_count`` writes "1 row" and "1,234 rows"."""

import ast
import re

import pytest
from sources import ALL_MODULES, ROOT

NOT_NOUNS = frozenset(
    (
        *("acts", "announces", "as", "asks", "begins", "belongs", "changes", "class"),
        *("depends", "derives", "describes", "does", "draws", "exists", "gets", "gives"),
        *("has", "holds", "is", "its", "keeps", "leaves", "less", "levels"),
        *("loss", "looks", "makes", "masks", "names", "ncps", "needs", "overflows"),
        *("perhaps", "predicts", "reads", "requires", "runs", "says", "scores", "series", "serves"),
        *("solves", "starts", "takes", "this", "times", "waits", "was"),
    )
)
"""Words that end with an s and follow a name more often than a number."""
NOT_ADJECTIVES = frozenset(
    (
        *("and", "are", "as", "at", "be", "beside", "by", "cannot"),
        *("for", "from", "hold", "in", "is", "must", "no", "not"),
        *("of", "on", "or", "perhaps", "sent", "than", "that", "to"),
        *("under", "where", "which", "with"),
    )
)
_NOUNS = re.compile(r" ((?:[a-z-]+ ){0,2}?)([a-z]+s)\b(?![-'=(])")
_COUNT_FORMATS = ("", ",", "d", ",d")
CHECKED = [path for path in ALL_MODULES if "kernels" not in path.relative_to(ROOT).parts]
"""An edit of a file of kernels compiles them again, and their counts are limits above 1."""


def find_counts(source):
    """Return what puts a number before a plural noun in f-strings without ``format_count``."""
    counts = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            format_spec = (
                "" if value.format_spec is None else ast.literal_eval(value.format_spec.values[0])
            )
            match = _NOUNS.match(text.value)
            if ast.unparse(value.value).startswith("format_"):
                continue
            if match is None or value.conversion != -1 or format_spec not in _COUNT_FORMATS:
                continue
            before = match[1].split()
            if match[2] in NOT_NOUNS or any(w in NOT_ADJECTIVES or w[-1] == "s" for w in before):
                continue
            counts.append(f"{{{ast.unparse(value.value)}}}{match[0]}")
    return counts


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        ('f"{n} rows"', ["{n} rows"]),
        ('f"{len(x):,} of {total:,} input values are missing"', ["{total} input values"]),
        ('f"there are {n} " f"gizmos, {m} widgets"', ["{n} gizmos", "{m} widgets"]),
        ("f\"{format_count(n, 'row')} of {path} has {n} row\"", []),
        ('f"{path} is a folder, {name!r} rows, {days:.1f} days, {x} of others"', []),
    ],
)
def test_a_count_without_the_function_is_found(message, counts):
    assert find_counts(message) == counts


@pytest.mark.parametrize("path", CHECKED, ids=lambda p: str(p.relative_to(ROOT)))
def test_counts_agree_with_their_nouns(path):
    assert find_counts(path.read_text("utf-8")) == []
