"""Linear flows against SciPy's matrix exponential."""

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from tauflow.solvers.matrix_exponential import matrix_exponential


@pytest.mark.parametrize("batch", [(), (1,), (1, 1), (3,), (2, 2)])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_all_digits_are_those_of_scipy(batch, size):
    generator = torch.Generator().manual_seed(size)
    for exponent in np.linspace(-3, 0, 30):
        A = 10**exponent * torch.randn(*batch, size, size, generator=generator, dtype=torch.double)
        expected = expm(A.numpy())
        exponential = matrix_exponential(A).numpy()
        assert exponential.shape == expected.shape
        bound = 2e-13 * np.abs(expected).max()
        np.testing.assert_allclose(exponential, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradients_are_differences(batch):
    A = torch.randn(*batch, 3, 3, dtype=torch.double, requires_grad=True)
    torch.autograd.gradcheck(matrix_exponential, A)


def test_single_precision_stays_so():
    assert matrix_exponential(torch.eye(2)).dtype is torch.float32
