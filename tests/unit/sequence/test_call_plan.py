"""Calls by plan: the same numbers as without, and nothing that changes is missed."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.errors import ShapeError, TimeError
from tauflow.sequence.call_plan import CallPlans

B, D, N = 3, 4, 6


def results(rnn, x, hx, dt):
    """Return outputs, state and all gradients of a call."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in (x, hx, dt)]
    y, h = rnn(leaves[0], leaves[1], dt=leaves[2])
    parameters = list(rnn.parameters())
    pulled = (y.square().mean() + h.sin().sum(), [*leaves, *parameters])
    return [y, h, *torch.autograd.grad(*pulled, allow_unused=True)]


def inputs(rnn, steps):
    """Return inputs, a state and gaps."""
    torch.manual_seed(1)
    return (
        torch.randn(B, steps, D),
        0.1 * torch.randn(B, rnn.state_size),
        torch.rand(B, steps) + 0.2,
    )


def has_plan(rnn, x, dt=None):
    """Whether a call has a plan."""
    return not rnn.explain(x, dt=dt).plan


def without_plan(monkeypatch):
    """Let no call have a plan."""
    monkeypatch.setattr(CallPlans, "find", lambda *arguments: "none serves")


@pytest.fixture
def two_threads():
    """Cut the batch into slices of two rows and one, whose gradients are added."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.sampled(30)
@pytest.mark.parametrize("steps", [1, 9])
@pytest.mark.parametrize("name", list(MODELS))
def test_a_plan_changes_no_number(name, steps, monkeypatch, two_threads):
    torch.manual_seed(0)
    rnn = tauflow.build(name, D, 8 if "wired" in name else N)
    x, hx, dt = inputs(rnn, steps)
    assert has_plan(rnn, x, dt)
    planned = [*results(rnn, x, hx, dt), *results(rnn, x, hx, dt)]
    with torch.no_grad():
        planned += [*rnn(x), *rnn(x, dt=0.5), *rnn(x, hx)]
    without_plan(monkeypatch)
    expected = [*results(rnn, x, hx, dt), *results(rnn, x, hx, dt)]
    with torch.no_grad():
        expected += [*rnn(x), *rnn(x, dt=0.5), *rnn(x, hx)]
    for value, wanted in zip(planned, expected, strict=True):
        assert (value is None and wanted is None) or torch.equal(value, wanted)


def call_times(steps, has_state):
    """Return times of each dtype, (B, T) or (B, T + 1)."""
    times = torch.rand(B, steps + has_state).mul(5).round().add(1).cumsum(1)
    return times / 7, times.double() / 7, times.long()


LAYERS = {
    "layers": {"num_layers": 2},
    "frozen": {"num_layers": 2},
    "both": {"bidirectional": True, "return_sequences": False},
    "projected": {"num_layers": 2, "bidirectional": True, "proj_size": 3},
}


@pytest.mark.parametrize("options", [{}, *LAYERS.values()], ids=["one", *LAYERS])
@pytest.mark.parametrize("name", ["cfc", "ct-rnn"])
def test_times_masks_and_layers_have_plans(name, options, monkeypatch):
    torch.manual_seed(0)
    steps, results = 9, []
    rnn = tauflow.build(name, D, N, **options)
    if options is LAYERS["frozen"]:
        rnn.cells[0].requires_grad_(False)
    x, hx, dt = inputs(rnn, steps)
    mask = torch.rand(B, steps) > 0.3
    masks = {}, {"mask": mask}, {"lengths": mask.sum(1)}
    calls = [
        ((x, state), {"t": t, **named})
        for state in (None, hx)
        for t, named in zip(call_times(steps, state is not None), masks, strict=True)
    ]
    calls += [((x,), {"dt": dt.unsqueeze(-1), "mask": mask}), ((x[0],), {"dt": dt[0]})]
    calls += [((x[0], hx[0]), {"mask": torch.arange(steps) < 7})]
    for arguments, named in calls:
        assert not rnn.explain(*arguments, **named).plan
    for _ in range(2):
        results.append([])
        for arguments, named in calls:
            y, h = rnn(*arguments, **named)
            learnt = [parameter for parameter in rnn.parameters() if parameter.requires_grad]
            results[-1] += [y, h, *torch.autograd.grad(y.sum() + h.sin().sum(), learnt)]
        without_plan(monkeypatch)
    for value, wanted in zip(*results, strict=True):
        assert torch.equal(value, wanted)


def test_ragged_batches_are_cut_alike(monkeypatch):
    rnn, x = tauflow.CfC(D, N), torch.randn(40, 200, D)
    lengths = torch.randint(5, 200, (40,))
    assert not rnn.explain(x, lengths=lengths).plan
    values = rnn(x, lengths=lengths)
    without_plan(monkeypatch)
    for value, wanted in zip(values, rnn(x, lengths=lengths), strict=True):
        assert torch.equal(value, wanted)


@pytest.mark.parametrize("masked", [False, True])
def test_missing_features_keep_their_plan(masked, monkeypatch):
    rnn, x = tauflow.GRUD(D, N), torch.randn(B, 5, D)
    x[torch.rand(B, 5, D) > 0.6] = torch.nan
    named = {"mask": torch.rand(B, 5) > 0.3} if masked else {}
    plain = [*rnn(x, **named), *rnn(x.nan_to_num(), observed=~x.isnan(), **named)]
    assert not rnn.explain(x, observed=~x.isnan(), **named).plan
    without_plan(monkeypatch)
    expected = [*rnn(x, **named), *rnn(x.nan_to_num(), observed=~x.isnan(), **named)]
    for value, wanted in zip(plain, expected, strict=True):
        assert torch.equal(value, wanted)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_times_are_looked_at_in_every_call(value, masked):
    rnn, x, t = tauflow.CfC(D, N), torch.randn(B, 5, D), torch.arange(5.0).repeat(B, 1)
    mask = torch.ones(B, 5, dtype=torch.bool) if masked else None
    rnn(x, t=t, mask=mask)
    t[1, 2] = value
    with pytest.raises(TimeError, match=r"sequence 1, step [23]"):
        rnn(x, t=t, mask=mask)
    if masked:
        mask[1, 2] = False
        rnn(x, t=t, mask=mask)
    with pytest.raises(TimeError, match="rounding"):
        rnn(x, t=torch.arange(5.0).repeat(B, 1) + 1e9)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2.0 * weight


def replace_weight(rnn):
    rnn.cell.heads.weight = nn.Parameter(torch.rand_like(rnn.cell.heads.weight))


def change_weight_data(rnn):
    rnn.cell.heads.weight.data = torch.rand_like(rnn.cell.heads.weight)


CHANGES = {
    "weight": replace_weight,
    "data": change_weight_data,
    "parametrization": lambda rnn: parametrize.register_parametrization(
        rnn.cell.heads, "weight", Doubled()
    ),
    "in place": lambda rnn: rnn.cell.heads.weight.data.mul_(2.0),
    "frozen": lambda rnn: rnn.cell.heads.weight.requires_grad_(False),
    "precision": lambda rnn: rnn.double(),
    "backend": lambda rnn: setattr(rnn, "backend", "reference"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_followed(change, monkeypatch):
    torch.manual_seed(0)
    rnn = tauflow.CfC(D, N)
    x, hx, dt = inputs(rnn, 5)
    before, _ = rnn(x, hx, dt=dt)
    assert has_plan(rnn, x, dt)
    torch.manual_seed(2)
    CHANGES[change](rnn)
    x, hx, dt = (tensor.to(next(rnn.parameters()).dtype) for tensor in (x, hx, dt))
    first = rnn(x, hx, dt=dt)
    found_again = rnn(x, hx, dt=dt)
    without_plan(monkeypatch)
    expected = rnn(x, hx, dt=dt)
    for outputs in (first, found_again):
        for value, wanted in zip(outputs, expected, strict=True):
            assert torch.equal(value, wanted)
    if change not in ("backend", "precision", "frozen"):
        assert not torch.allclose(expected[0].float(), before)


def test_a_parameter_of_another_shape_is_refused():
    rnn, x = tauflow.CfC(D, N), torch.randn(B, 5, D)
    rnn(x)
    rnn.cell.heads.bias = nn.Parameter(torch.zeros(1))
    with pytest.raises(ShapeError, match=r"heads\.bias"):
        rnn(x)


@pytest.mark.parametrize("gap", [-1.0, float("nan"), float("inf")])
def test_gaps_are_looked_at_in_every_call(gap):
    rnn, x, dt = tauflow.CfC(D, N), torch.randn(B, 5, D), torch.ones(B, 5)
    rnn(x, dt=dt)
    dt[1, 2] = gap
    with pytest.raises(TimeError, match="sequence 1, step 2"):
        rnn(x, dt=dt)
    with pytest.raises(TimeError):
        rnn(x, dt=gap)


def test_missing_features_are_looked_at_in_every_call(monkeypatch):
    rnn, x = tauflow.GRUD(D, N), torch.randn(B, 5, D)
    rnn(x)
    x[0, 1, 2] = torch.nan
    y, _ = rnn(x)
    expected, _ = rnn(x, observed=~x.isnan())
    assert torch.equal(y, expected)
    with pytest.raises(tauflow.errors.NonFiniteError):
        tauflow.CfC(D, N)(x)


def test_other_weights_and_transforms_are_followed():
    rnn, x = tauflow.CfC(D, N), torch.randn(B, 5, D)
    rnn(x)
    weights = {name: 0.5 * parameter.detach() for name, parameter in rnn.named_parameters()}
    y, _ = torch.func.functional_call(rnn, weights, (x,))
    other = copy.deepcopy(rnn)
    other.load_state_dict(weights)
    assert torch.equal(y, other(x)[0])
    mapped, _ = torch.func.vmap(rnn)(x)
    torch.testing.assert_close(mapped, rnn(x)[0])


def test_a_state_that_is_changed_in_place_leaves_the_gradients_alone():
    rnn, x = tauflow.CfC(D, N), torch.randn(B, 5, D)
    expected = torch.autograd.grad(rnn(x)[0].sum(), rnn.cell.heads.weight)
    y, h = rnn(x)
    h.mul_(0.0)
    assert torch.equal(torch.autograd.grad(y.sum(), rnn.cell.heads.weight)[0], expected[0])


def test_inference_mode_leaves_nothing_for_training():
    rnn, x = tauflow.CfC(D, N), torch.randn(B, 5, D)
    with torch.inference_mode():
        rnn(x)
    rnn(x)[0].sum().backward()


def test_copies_have_plans_of_their_own():
    rnn, x = tauflow.CfC(D, N), torch.randn(B, 5, D)
    expected, _ = rnn(x)
    for other in (copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn))):
        with torch.no_grad():
            other.cell.heads.bias.add_(1.0)
            assert not torch.equal(other(x)[0], expected)
    assert torch.equal(rnn(x)[0], expected)
