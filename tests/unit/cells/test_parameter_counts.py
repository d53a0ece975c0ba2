"""Parameter counts: the formulas of the papers, and the numbers that are in print."""

import pytest

from tauflow.cells import (
    CfCCell,
    ElmanCell,
    GRUCell,
    LSTMCell,
    LTCCell,
    MixedMemoryCell,
    NeuronalLTCCell,
    WiredCfCCell,
)
from tauflow.cells.base import AbstractCell
from tauflow.wirings import NCP, AutoNCP

DRIVING = NCP(
    12,
    6,
    1,
    sensory_fanout=6,
    inter_fanout=4,
    recurrent_command_synapses=6,
    motor_fanin=6,
)


def count(cell: AbstractCell) -> int:
    return sum(p.numel() for p in cell.parameters() if p.requires_grad)


@pytest.mark.parametrize(("D", "N"), [(1, 1), (7, 32), (3, 5)])
@pytest.mark.parametrize(
    ("cell", "options", "formula"),
    [
        (LTCCell, {"output_mapping": "none"}, lambda D, N: 4 * N * N + 4 * D * N + 3 * N + 2 * D),
        (LTCCell, {}, lambda D, N: 4 * N * N + 4 * D * N + 5 * N + 2 * D),
        (
            LTCCell,
            {"input_mapping": "none", "output_mapping": "linear"},
            lambda D, N: 4 * N * N + 4 * D * N + 4 * N,
        ),
        (NeuronalLTCCell, {}, lambda D, N: N * N + D * N + 3 * N),
        (LSTMCell, {}, lambda D, N: 4 * D * N + 4 * N * N + 4 * N),
        (LSTMCell, {"append_dt": True}, lambda D, N: 4 * N * (D + 1) + 4 * N * N + 4 * N),
        (GRUCell, {}, lambda D, N: 3 * D * N + 3 * N * N + 6 * N),
        (ElmanCell, {}, lambda D, N: D * N + N * N + N),
    ],
)
def test_formulas(cell, options, formula, D, N):
    assert count(cell(D, N, **options)) == formula(D, N)


@pytest.mark.parametrize(("D", "N", "U", "L"), [(7, 32, 128, 1), (3, 5, 11, 2), (2, 3, 9, 0)])
@pytest.mark.parametrize("mode", ["default", "no_gate", "pure"])
def test_cfc_formulas(D, N, U, L, mode):
    Q = U if L else D + N
    backbone = (D + N) * U + U + (L - 1) * (U * U + U) if L else 0
    heads = Q * N + N + 2 * N if mode == "pure" else 4 * (Q * N + N)
    sizes = {"mode": mode, "backbone_units": U, "backbone_layers": L}
    assert count(CfCCell(D, N, **sizes)) == backbone + heads
    memory = 4 * D * N + 4 * N * N + 4 * N
    assert count(MixedMemoryCell(D, N, form="state", **sizes)) == backbone + heads + memory
    of_input = count(CfCCell(N, N, **sizes))
    assert count(MixedMemoryCell(D, N, form="input", **sizes)) == of_input + memory


@pytest.mark.parametrize(
    ("make", "published"),
    [
        (lambda: LTCCell(7, 32), 5166),
        (lambda: LTCCell(64, AutoNCP(19, 1)), 6495),
        (lambda: CfCCell(7, 32), 21632),
        (lambda: CfCCell(7, 32, mode="no_gate"), 21632),
        (lambda: CfCCell(7, 32, mode="pure"), 9312),
        (lambda: MixedMemoryCell(7, 32, form="state"), 26752),
        (lambda: MixedMemoryCell(7, 32, core="ltc", form="state"), 10286),
        (lambda: WiredCfCCell(64, DRIVING), 4184),
        (lambda: WiredCfCCell(64, DRIVING, mode="no_gate"), 4184),
        (lambda: WiredCfCCell(64, DRIVING, mode="pure"), 1084),
        (lambda: MixedMemoryCell(64, DRIVING, core="wired-cfc"), 8408),
    ],
)
def test_published_counts(make, published):
    assert count(make()) == published


def test_published_lstm_count_includes_its_readout():
    assert count(LSTMCell(64, 64)) + 64 + 1 == 33089
