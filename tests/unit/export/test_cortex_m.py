"""C of a step on Cortex-M cores under QEMU: equal to that of the host, bytes and instructions."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))
from benchmarks.cortex_m import find_missing_tool
from benchmarks.microcontroller import build, measure_network

MISSING = find_missing_tool()
pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=f"{MISSING} is missing: make cortex-m"),
    pytest.mark.slow,
]


def test_a_cfc_of_sixteen_neurons_in_integers():
    results = measure_network(build("cfc-16"), "int16", ["M0", "M3", "M4F", "M33F"], "-O2")
    assert results["M0"].instructions <= 120_000
    assert results["M4F"].instructions <= 55_000
    assert results["M0"].flash <= 30_000
    assert max(result.stack for result in results.values()) <= 400


@pytest.mark.parametrize("form", ["float32", "int16"])
def test_a_circuit_of_nineteen_neurons(form):
    results = measure_network(build("ncp-19"), form, ["M0", "M4F"], "-O2")
    assert max(result.stack for result in results.values()) <= 400


def test_int8_weights_and_a_gap_that_is_an_input():
    results = measure_network(build("gru-16"), "int8", ["M0", "M33F"], "-O2")
    assert results["M0"].flash <= 6_000
