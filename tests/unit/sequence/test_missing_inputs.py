"""NaN in inputs: missing for cells that model that, refused by name for the others."""

import pytest
import torch

import tauflow
from tauflow.errors import NonFiniteError

B, T, D, N = 4, 6, 3, 5


def inputs():
    x = torch.randn(B, T, D, generator=torch.Generator().manual_seed(0))
    x[1, 3, 2] = x[3, 0] = torch.nan
    return x


@pytest.mark.parametrize("module", [tauflow.GRUD, tauflow.RubanovaGRU, tauflow.RubanovaODERNN])
def test_cells_that_model_missing_features_take_nan_for_missing(module):
    torch.manual_seed(0)
    rnn, x, dt = module(D, N), inputs(), torch.rand(B, T)
    y, h = rnn(x, dt=dt)
    expected = rnn(x, dt=dt, observed=~x.isnan())
    torch.testing.assert_close((y, h), expected)
    assert y.isfinite().all()
    y.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in rnn.parameters())


@pytest.mark.parametrize("name", ["cfc", "gru", "lstm", "ct-rnn"])
def test_other_cells_name_what_is_missing(name):
    rnn = tauflow.build(name, D, N, backend="reference", num_layers=2)
    with pytest.raises(
        NonFiniteError,
        match=r"\.forward: x is NaN in 2 sequences \(1, 3\), first in sequence 1 at step 3, "
        r"feature 2, and .*Cell does not model missing features\. Fill them in, .*tauflow\.GRUD",
    ):
        rnn(inputs())
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[1, 2] = True
    with pytest.raises(NonFiniteError, match=r"\(1, 3\), first in sequence 1 at step 3, feature 2"):
        rnn(inputs(), reset=reset)
    with pytest.raises(NonFiniteError, match=r"\(0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\), first"):
        rnn(torch.full((9, 2, D), torch.nan))


def test_nan_that_was_computed_or_masked_goes_its_way():
    rnn, x = tauflow.GRU(D, N), inputs()
    assert rnn(x, mask=~x.isnan().any(-1))[0].isfinite().all()
    computed = (torch.zeros(B, T, D, requires_grad=True) + x) * 1
    assert rnn(computed)[1].isnan().any()
