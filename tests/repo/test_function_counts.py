"""The count of the functions that a call crosses counts functions, and each once."""

import sys

import pytest
import torch
from sources import ROOT

import tauflow
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


def test_a_call_of_a_traced_cell_crosses_few_functions():
    pytest.importorskip("numba")
    rnn, x, dt = tauflow.CfC(17, 32), torch.randn(16, 32, 17), torch.rand(16, 32)

    def train():
        rnn(x, dt=dt)[0].square().mean().backward()

    for call, function_limit, call_limit in (
        (torch.no_grad()(lambda: rnn(x, dt=dt)), 31, 42),
        (train, 55, 99),
    ):
        call()
        functions = count_functions(call)
        assert len(functions) <= function_limit
        assert sum(functions.values()) <= call_limit
