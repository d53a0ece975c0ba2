"""The count of the functions that a call crosses counts functions, and each once."""

import sys

from sources import ROOT

from tauflow._internal.sanitize import format_count, format_span

sys.path.insert(0, str(ROOT))
from benchmarks.functions import count_functions


def test_it_counts_functions_and_calls_but_no_comprehensions():
    functions = count_functions(
        lambda: [format_span(2, "day"), *(format_count(n, "row") for n in (1, 2))]
    )
    file = "_internal/sanitize.py"
    calls = {name: count for (where, name), count in functions.items() if where == file}
    assert calls == {"format_span": 1, "format_count": 2}
    assert sys.getprofile() is None
    assert set(count_functions(lambda: sum(number for number in (1, 2)))) == set()
