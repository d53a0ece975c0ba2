"""Every catalogued cell leaves Python in every form, and computes there what it does here.

``make test`` takes a few cells of different kinds, ``pytest --full`` all of them.
"""

import shutil

import pytest
import torch

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.export import to_c
from tauflow.export.exportable_model import ExportedSequence, ExportedStep
from tauflow.export.onnx_files import OPSET, get_axes
from tauflow.export.onnx_graph import make_onnx_runner, to_onnx_graph
from tauflow.export.parity import check_parity
from tauflow.export.torch_program import trace

FEW = ("gru-d", "ode-lstm")
LOOSE = {"exprnn": 1e-4, "neural-cde": 1e-2, "ode-rnn": 1e-2, "slice": 1e-2}
"""How far the code of cells may be from them that keep every rounding, or make it larger."""
OTHER_SIZES = (4, 11)
"""Sequences and steps, other than those that programs are traced with."""


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
    return exported, trace(exported, mask=True)


@pytest.fixture(scope="module")
def step(request):
    exported = ExportedStep(model(request.param))
    return exported, trace(exported)


def test_sequences(sequence):
    exported, traced = sequence
    run = traced.module()
    check_parity(exported, lambda inputs: run(**inputs), sizes=OTHER_SIZES, mask=True)


def test_steps(step):
    exported, traced = step
    run = traced.module()
    check_parity(exported, lambda inputs: run(**inputs), sizes=OTHER_SIZES)


def test_sequences_as_onnx(sequence):
    exported, traced = sequence
    graph = to_onnx_graph(traced, opset=OPSET, names={}, axes=get_axes(exported))
    assert [node.op_type for node in graph.graph.node].count("Scan") == 1
    check_parity(exported, make_onnx_runner(graph, {}), sizes=OTHER_SIZES, mask=True)


def test_steps_as_onnx(step):
    exported, traced = step
    graph = to_onnx_graph(traced, opset=OPSET, names={}, axes=get_axes(exported))
    check_parity(exported, make_onnx_runner(graph, {}), sizes=OTHER_SIZES)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_c(c, tmp_path):
    parity = to_c(model(c), tmp_path / "c", tolerance=LOOSE.get(c, 1e-5)).parity
    assert parity.max_difference <= LOOSE.get(c, 1e-5)
