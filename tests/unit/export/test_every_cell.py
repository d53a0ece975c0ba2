"""Every catalogued cell leaves Python in every form, and computes there what it does here.

``make test`` takes a few cells of different kinds, ``pytest --full`` all of them.
"""

import torch

import tauflow
from tauflow.cells.catalog import MODELS
from tauflow.export.parity import check_parity
from tauflow.export.program import ExportedSequence, ExportedStep, export_sequence, export_step

FEW = ("ltc", "cfc-mmrnn", "ode-lstm", "gru-d", "phased-lstm")
TRACED_APART = (4, 11)
"""Sequences and steps, other than those that programs are traced with."""


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        metafunc.parametrize("name", list(MODELS) if full else FEW)


def model(name, **options):
    torch.manual_seed(0)
    return tauflow.build(name, 2, 4, **options).eval()


def runner(traced):
    module = traced.module()
    return lambda given: module(**given)


def test_sequences(name):
    exported = ExportedSequence(model(name))
    run = runner(export_sequence(exported))
    check_parity(exported, run, sizes=TRACED_APART, mask=True)


def test_steps(name):
    exported = ExportedStep(model(name))
    check_parity(exported, runner(export_step(exported)), sizes=TRACED_APART)
