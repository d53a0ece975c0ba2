"""No model sees the future, but those of which the catalog says so."""

import pytest
import torch
import variants
import whole_models
from torch import Tensor, nn
from variants import B, T

from tauflow.cells.registry import MODELS
from tauflow.models import WHOLE_MODELS
from tauflow.models.registry import get_model_info

STEP = 3
"""From here on everything is changed."""
STEPPED = [name for name in whole_models.NAMES if not whole_models.answers_once(name)]
AHEAD = [name for name in STEPPED if not whole_models.kind(name).is_causal]


def with_another_future(
    module: nn.Module, *, observed: bool, absolute: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the outputs for sequences, and for others that differ from a step on.

    They differ in values, times, what is there, and what of it was measured.
    """
    random = torch.Generator().manual_seed(3)
    features = module.input_size if isinstance(module.input_size, tuple) else (module.input_size,)
    x = torch.randn(B, T, *features, generator=random, dtype=torch.float64)
    dt = torch.rand(B, T, generator=random, dtype=torch.float64) + 0.1
    call = {"mask": torch.rand(B, T, generator=random) > 0.2}
    call["mask"][0, :STEP] = True
    if observed:
        call["observed"] = torch.rand(x.shape, generator=random) > 0.3
    later = {key: value.clone() for key, value in call.items()}
    for value in later.values():
        value[:, STEP:] ^= torch.rand(value[:, STEP:].shape, generator=random) > 0.5
    other_x, other_dt = x.clone(), dt.clone()
    other_x[:, STEP:] += 1
    other_dt[:, STEP:] += 1
    key = "t" if absolute else "dt"
    times, other_times = (d.cumsum(1) if absolute else d for d in (dt, other_dt))
    y, _ = module(x, **{key: times}, **call)
    return y, module(other_x, **{key: other_times}, **later)[0]


def only_later_outputs_move(y: Tensor, changed: Tensor) -> None:
    torch.testing.assert_close(changed[:, :STEP], y[:, :STEP], rtol=1e-9, atol=1e-11)
    assert not torch.allclose(changed[:, STEP:], y[:, STEP:])


@pytest.mark.parametrize("name", variants.NAMES)
def test_no_cell_sees_the_future(name):
    rnn = variants.model(name)
    for absolute in (False, True):
        observed = rnn.cell.uses_observed
        only_later_outputs_move(*with_another_future(rnn, observed=observed, absolute=absolute))


@pytest.mark.parametrize("name", ["ltc", "gru"])
def test_a_cell_run_both_ways_looks_ahead(name):
    assert not get_model_info(name).is_causal({"bidirectional": True})
    assert get_model_info(name).is_causal({})
    rnn = variants.model(name, bidirectional=True)
    y, changed = with_another_future(rnn, observed=False)
    assert (changed[:, :STEP] - y[:, :STEP]).abs().amax(dim=(1, 2)).min() > 1e-6


@pytest.mark.parametrize("name", [name for name in STEPPED if name not in AHEAD])
def test_a_whole_model_sees_no_future_unless_it_is_marked(name):
    model, observed = whole_models.model(name), whole_models.kind(name).uses_observed
    only_later_outputs_move(*with_another_future(model, observed=observed))


@pytest.mark.parametrize("name", AHEAD)
def test_a_marked_model_feels_the_future(name):
    y, changed = with_another_future(whole_models.model(name), observed=True)
    assert (changed[:, :STEP] - y[:, :STEP]).abs().amax(dim=(1, 2)).min() > 1e-6


def test_no_model_goes_untested():
    """One that is not marked has an output for every step, which is tested above."""
    unmarked = [name for name in WHOLE_MODELS if get_model_info(name).is_causal({})]
    assert set(unmarked) <= {name for name in STEPPED if name not in AHEAD}
    assert set(MODELS) <= set(variants.NAMES)
    assert all(get_model_info(name).is_causal({}) for name in MODELS)
