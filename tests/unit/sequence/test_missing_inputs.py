"""NaN in inputs: missing for cells that model that, refused by name for the others."""

import pytest
import torch

import tauflow
from tauflow.errors import NonFiniteError
from tauflow.models import (
    MTAN,
    RNNVAE,
    ConvolutionalSequenceModel,
    IPNet,
    SeFT,
    Transformer,
)

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
    episode_start = torch.zeros(B, T, dtype=torch.bool)
    episode_start[1, 2] = True
    with pytest.raises(NonFiniteError, match=r"\(1, 3\), first in sequence 1 at step 3, feature 2"):
        rnn(inputs(), episode_start=episode_start)
    with pytest.raises(NonFiniteError, match=r"\(0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\), first"):
        rnn(torch.full((9, 2, D), torch.nan))


MEASURED = r"where observed says that it was measured\. Mark it as not measured, or leave observed"


@pytest.mark.parametrize("module", [tauflow.GRUD, tauflow.RubanovaGRU])
def test_nan_that_was_called_measured_is_told_so(module):
    rnn, x = module(D, N), inputs()
    observed = torch.ones_like(x, dtype=torch.bool)
    observed[3, 0] = False
    place = r"in 1 sequence \(1\), first in sequence 1 at step 3, feature 2"
    with pytest.raises(NonFiniteError, match=rf"{place}, {MEASURED}"):
        rnn(x, observed=observed)
    observed[1, 3, 2] = False
    assert rnn(x, observed=observed)[0].isfinite().all()


def test_a_state_that_overflows_beside_missing_features_goes_its_way():
    rnn, x = tauflow.GRUD(D, N), inputs()
    x[0, 0, 0] = torch.inf
    y, _ = rnn(x)  # NaN was expected, so that it is not why
    assert y[0].isnan().any()
    assert y[1:].isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_stream_keeps_its_state_when_what_was_called_measured_is_no_number(value, batch):
    stream = tauflow.GRUD(D, N).stream(batch)
    x = torch.randn(batch, D)
    stream.step(x)
    state = stream.state
    bad = x.clone()
    bad[-1, 1] = value
    with pytest.raises(NonFiniteError, match=r"feature 1, and observed says .*not measured"):
        stream.step(bad, observed=torch.ones_like(bad, dtype=torch.bool))
    assert torch.equal(stream.state, state)
    y = stream.step(bad, observed=bad.isfinite())
    stream.reset(state)
    torch.testing.assert_close(y, stream.step(x, observed=bad.isfinite()))  # the value is not read


def test_nan_that_was_computed_or_masked_goes_its_way():
    rnn, x = tauflow.GRU(D, N), inputs()
    assert rnn(x, mask=~x.isnan().any(-1))[0].isfinite().all()
    computed = (torch.zeros(B, T, D, requires_grad=True) + x) * 1
    assert rnn(computed)[1].isnan().any()


WHOLE = {
    "ip-net": lambda: IPNet(D, N, horizon=4.0, reference_points=5),
    "seft": lambda: SeFT(D, N),
    "mtan": lambda: MTAN(D, N, horizon=4.0, reference_points=5),
    "rnn-vae": lambda: RNNVAE(D, N),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_models_take_nan_for_missing(name):
    torch.manual_seed(0)
    model, x, dt = WHOLE[name]().eval(), inputs(), torch.rand(B, T) + 0.1
    y, _ = model(x, dt=dt)
    assert y.isfinite().all()
    torch.testing.assert_close(y, model(x, dt=dt, observed=~x.isnan())[0])


def test_a_transformer_names_what_is_missing():
    match = (
        r"^Transformer\.forward: x is NaN in 2 sequences \(1, 3\), first in sequence 1 at step 3"
    )
    with pytest.raises(NonFiniteError, match=match):
        Transformer(D, 8)(inputs())


@pytest.mark.parametrize("body", [None, tauflow.CfC])
def test_a_missing_pixel_is_named(body):
    module = None if body is None else body(4, N)
    model = ConvolutionalSequenceModel(module, (1, 6, 6), layers=((2, 3, 1),), dense=(4,))
    x = torch.randn(B, T, 1, 6, 6)
    x[2, 1, 0, 5, 5] = torch.nan
    with pytest.raises(NonFiniteError, match=r"first in sequence 2 at step 1, feature 35"):
        model(x)
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[2, 1] = False
    assert model(x, mask=mask)[0].isfinite().all()


def test_nan_is_missing_where_python_cannot_look():
    torch.manual_seed(0)
    rnn, x, dt = tauflow.GRUD(D, N, backend="reference"), inputs(), torch.rand(B, T)
    expected = rnn(x, dt=dt)[0]
    each = torch.func.vmap(lambda sample, gaps: rnn(sample, dt=gaps)[0])(x, dt)
    torch.testing.assert_close(each, expected)
    compiled = torch.compile(rnn, backend="eager")
    torch.testing.assert_close(compiled(x, dt=dt)[0], expected)
