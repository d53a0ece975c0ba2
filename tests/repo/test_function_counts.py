"""The count of the functions that a call crosses counts functions, and each once."""

import sys

import numpy as np
from sources import ROOT

from tauflow.data.scaler import StandardScaler

sys.path.insert(0, str(ROOT))
from benchmarks.functions import count_functions


def test_it_counts_functions_and_calls_but_no_comprehensions():
    found = count_functions(lambda: StandardScaler.fit([np.arange(3.0), np.arange(4.0)]))
    calls = {name: count for (file, name), count in found.items() if file == "data/scaler.py"}
    assert set(calls) == {
        "StandardScaler.fit",
        "_compute_mean_and_std",
        "_make_weighted_mean",
        "find_nan",
        "subtract_exactly",
    }
    assert calls["StandardScaler.fit"] == 1
    assert calls["_compute_mean_and_std"] == 2
    assert calls["subtract_exactly"] == 4
    assert sys.getprofile() is None
    assert set(count_functions(lambda: sum(one for one in (1, 2)))) == set()
