"""SLiCE against its matrices, written out, and the equation that its steps approach."""

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag, expm

import tauflow
from tauflow.cells import SLiCECell
from tauflow.errors import ArgumentError

D, N, B = 2, 6, 4


def generators(cell):
    """Return A_0 and A_1 to A_D as whole matrices."""
    p = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    b = cell.block_size
    columns = [p["A_0"], *p["A"].T]
    return [block_diag(*column.reshape(-1, b, b)) for column in columns]


@pytest.mark.parametrize("block_size", [1, 2, 3, 6])
def test_a_step_is_that_of_its_block_diagonal_matrices(block_size):
    torch.manual_seed(0)
    cell = SLiCECell(D, N, block_size=block_size, scale=0.5).double()
    x, dt = torch.randn(B, D).double(), torch.rand(B, 1).double() + 0.1
    h = torch.cat([torch.randn(B, N), torch.ones(B, 1)], dim=1).double()
    A = generators(cell)
    states = cell.step(x, h, dt).detach().numpy()
    for row in range(B):
        matrix = A[0] + sum(x[row, i].item() * A[i + 1] for i in range(D))
        state = h[row, :N].numpy()
        expected = state + 0.5 * dt[row].item() * matrix @ state
        np.testing.assert_allclose(states[row], [*expected, 1.0], rtol=1e-12)
    assert sum(p.numel() for p in cell.parameters()) == (D + 1) * N * block_size + N * D + N


def test_many_short_steps_approach_the_flow_of_the_linear_equation():
    torch.manual_seed(0)
    cell = SLiCECell(D, N, scale=0.3).double()
    assert cell.block_size == 3
    x = torch.randn(1, D).double()
    h = torch.cat([torch.randn(1, N), torch.ones(1, 1)], dim=1).double()
    A, count = generators(cell), 5000
    matrix = A[0] + sum(x[0, i].item() * A[i + 1] for i in range(D))
    expected = expm(0.3 * 1.7 * matrix) @ h[0, :N].numpy()
    with torch.no_grad():
        for _ in range(count):
            h = cell.step(x, h, torch.full((1, 1), 1.7 / count).double())
    np.testing.assert_allclose(h[0, :N].numpy(), expected, rtol=1e-3, atol=1e-3)


def test_the_first_sample_sets_the_state():
    layer = tauflow.SLiCE(D, N)
    x = torch.randn(3, 4, D)
    first, _ = layer(x[:, :1], dt=torch.full((3, 1, 1), 5.0))
    cell = layer.layers[0].cell if hasattr(layer, "layers") else layer.cell
    torch.testing.assert_close(first[:, 0], x[:, 0] @ cell.W_0.T + cell.b_0)


def test_blocks_divide_the_neurons():
    with pytest.raises(ArgumentError, match="does not divide"):
        SLiCECell(D, N, block_size=4)
    assert [SLiCECell(D, n).block_size for n in (8, 9, 10, 7)] == [4, 3, 2, 1]
