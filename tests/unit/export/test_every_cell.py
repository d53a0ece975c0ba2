"""Every catalogued cell leaves Python in every form, and computes there what it does here.

``make test`` takes a few cells of different kinds, ``pytest --full`` all of them.
"""

import shutil

import pytest
import torch

import tauflow
from tauflow.cells import ExpRNNCell
from tauflow.cells.catalog import MODELS
from tauflow.errors import ExportError
from tauflow.export import to_c
from tauflow.export.onnx_files import OPSET, axes_of
from tauflow.export.onnx_graph import onnx_graph, onnx_runner
from tauflow.export.parity import check_parity
from tauflow.export.program import ExportedSequence, ExportedStep, export_sequence, export_step

FEW = ("gru-d", "ode-lstm")
OTHER_SIZES = (4, 11)
"""Sequences and steps, other than those that programs are traced with."""


NO_ONNX = {ExpRNNCell: "the exponential of a matrix has no operator in ONNX"}
"""Cells that are no ONNX graphs, nor C, and why."""


def pytest_generate_tests(metafunc):
    full = metafunc.config.getoption("--full")
    for kind, few in (("sequence", FEW), ("step", FEW), ("c", ("elman",))):
        if kind in metafunc.fixturenames:
            names = list(MODELS) if full else few
            metafunc.parametrize(kind, names, indirect=kind in ("sequence", "step"), scope="module")


def model(name, **options):
    torch.manual_seed(0)
    return tauflow.build(name, 2, 4, **options).eval()


@pytest.fixture(scope="module")
def sequence(request):
    exported = ExportedSequence(model(request.param))
    return exported, export_sequence(exported)


@pytest.fixture(scope="module")
def step(request):
    exported = ExportedStep(model(request.param))
    return exported, export_step(exported)


def as_onnx(exported, traced):
    """Return the graph of a cell, or leave the test where there is none, and just there."""
    reason = NO_ONNX.get(type(exported.body.cell))
    options = {"opset": OPSET, "names": {}, "axes": axes_of(exported)}
    if reason is None:
        return onnx_graph(traced, **options)
    with pytest.raises(ExportError, match="cannot be an ONNX graph"):
        onnx_graph(traced, **options)
    pytest.skip(reason)


def test_sequences(sequence):
    exported, traced = sequence
    run = traced.module()
    check_parity(exported, lambda given: run(**given), sizes=OTHER_SIZES, mask=True)


def test_steps(step):
    exported, traced = step
    run = traced.module()
    check_parity(exported, lambda given: run(**given), sizes=OTHER_SIZES)


def test_sequences_as_onnx(sequence):
    graph = as_onnx(*sequence)
    assert [node.op_type for node in graph.graph.node].count("Scan") == 1
    check_parity(sequence[0], onnx_runner(graph, {}), sizes=OTHER_SIZES, mask=True)


def test_steps_as_onnx(step):
    check_parity(step[0], onnx_runner(as_onnx(*step), {}), sizes=OTHER_SIZES)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_c(c, tmp_path):
    if type(model(c).cell) in NO_ONNX:
        with pytest.raises(ExportError, match="cannot be an ONNX graph"):
            to_c(model(c), tmp_path / "c")
        return
    assert to_c(model(c), tmp_path / "c").parity.worst <= 1e-5
