"""Formulas of LaTeX as text."""

import inspect
import re

import pytest

from tauflow.cells.registry import MODELS
from tauflow.cli.latex_to_text import latex_to_text


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"\tau\, \dot h = -h + \sigma(W_x x)", "τ d/dt h = -h + σ(W_x x)"),
        (r"C_i \dot v_i = g_{l,i}\,(V_{l,i} - v_i)", "C_i d/dt v_i = g_l,i (V_l,i - v_i)"),
        (r"\frac{a_{t-1} + b}{1 + \epsilon}", "(a_(t-1) + b) / (1 + ε)"),
        (r"e^{-dt\,(|w_\tau| + |r|)}", "e^(-dt (|w_τ| + |r|))"),
        (r"\text{no\_gate:}\quad \hat h_t \odot \tilde\theta", "no_gate:   h\u0302_t ⊙ θ\u0303"),
        (r"\sqrt{\tfrac{1}{N}} \sum_j w_{ji}", "√((1) / (N)) Σ_j w_ji"),
    ],
)
def test_a_formula(tex, text):
    assert latex_to_text(tex) == text


def test_no_cell_is_told_in_latex():
    seen = 0
    for cell in {entry.cell for entry in MODELS.values()}:
        document = inspect.getdoc(cell) or ""
        for block in re.findall(r"^\.\. math::\s*\n((?:[ ]+.*\n?|\n)*)", document, re.MULTILINE):
            seen += 1
            assert not re.search(r"[\\{}]", latex_to_text(block)), latex_to_text(block)
    assert seen > 20
