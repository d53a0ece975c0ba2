"""Sample by sample a stream gives what the module gives for the whole sequence."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

import tauflow
from tauflow import kernels
from tauflow.cells.registry import MODELS
from tauflow.errors import (
    ArgumentError,
    DtypeError,
    NonFiniteError,
    ShapeError,
    StreamError,
    TimeError,
)
from tauflow.sequence import SequenceModule

D, N, T = 3, 6, 5
VARIANTS = {
    **{name: (name, {}) for name in MODELS},
    "ltc-clip": ("ltc", {"constraint": "clip", "dt_offset": 0.5, "output_mapping": "none"}),
    "ltc-ncp": ("ltc", {"wiring": tauflow.AutoNCP(12, 2)}),
    "ltc-rk4": ("ltc", {"solver": "rk4"}),
    "wired-ncp": ("wired-cfc", {"wiring": tauflow.AutoNCP(12, 2)}),
    "cfc-deep": ("cfc", {"backbone_layers": 2, "backbone_units": 7}),
    "cfc-bare": ("cfc", {"backbone_layers": 0, "time_bias": False}),
    "mmrnn-state": ("cfc-mmrnn", {"form": "state"}),
    "mmrnn-ltc": ("cfc-mmrnn", {"core": "ltc"}),
    "stacked": ("cfc", {"num_layers": 2, "proj_size": 4}),
    "stacked-ltc": ("ltc", {"num_layers": 2}),
}


def module(name: str, dtype: torch.dtype = torch.float32) -> SequenceModule:
    torch.manual_seed(0)
    catalog_name, options = VARIANTS[name]
    options = dict(options)
    return tauflow.build(catalog_name, D, options.pop("wiring", N), **options).to(dtype)


def samples(batch: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(batch, T, D, dtype=dtype), torch.rand(batch, T, dtype=dtype) * 2


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_sequence_call(name, batch, dtype):
    rnn, (x, dt) = module(name, dtype), samples(batch, dtype)
    y, h = rnn(x, dt=dt)
    stream = rnn.stream(batch)
    rows = [stream.step(x[:, t].numpy(), dt[:, t].numpy()) for t in range(T)]
    assert all(isinstance(row, np.ndarray) for row in rows)
    tight = {} if dtype is torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(torch.from_numpy(np.stack(rows, 1)), y.detach(), **tight)
    torch.testing.assert_close(stream.state, h.detach(), **tight)


@pytest.mark.parametrize("name", ["cfc", "ltc", "gru"])
def test_a_dtype_that_arrays_lack_is_refused(name):
    with pytest.raises(StreamError, match=r"no torch.bfloat16.*torch.float32.*float16 and float64"):
        module(name, torch.bfloat16).stream()
    stream = module(name, torch.float16).stream()
    assert stream.step(np.ones((1, D), np.float16)).dtype == np.float16


@pytest.mark.parametrize("name", ["cfc", "ltc", "gru"])
def test_takes_tensors_arrays_and_single_samples_alike(name):
    rnn, (x, _) = module(name), samples(1)
    first, second, third = rnn.stream(), rnn.stream(), rnn.stream()
    for t in range(T):
        by_array = first.step(x[0, t].numpy(), 0.3)
        by_tensor = second.step(x[:, t], torch.tensor([0.3]))
        by_vector = third.step(x[0, t], np.array(0.3))
        assert by_array.shape == by_vector.shape == (rnn.output_size,)
        assert isinstance(by_tensor, Tensor)
        assert by_tensor.shape == (1, rnn.output_size)
        np.testing.assert_allclose(by_array, by_tensor[0], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(by_array, by_vector, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["cfc", "ltc", "cfc-mmrnn", "wired-ncp", "stacked", "lstm"])
def test_state_goes_out_and_in(name):
    rnn, (x, dt) = module(name), samples(2)
    _, h = rnn(x, dt=dt)
    expected, after = rnn(x[:, :1], h, dt=dt[:, :1])
    stream = rnn.stream(2)
    stream.step(x[:, 3], dt[:, 3])
    stream.reset(h)
    torch.testing.assert_close(stream.step(x[:, 0], dt[:, 0]), expected[:, 0].detach())
    torch.testing.assert_close(stream.state, after.detach())
    state = stream.state
    stream.step(x[:, 1], dt[:, 1])
    torch.testing.assert_close(state, after.detach())  # a copy, not the stream's own memory
    stream.reset()
    begin, _ = rnn(x[:, :1], dt=dt[:, :1])
    torch.testing.assert_close(stream.step(x[:, 0], dt[:, 0]), begin[:, 0].detach())


def test_outputs_are_the_callers_own():
    stream, (x, _) = module("cfc").stream(), samples(1)
    first = stream.step(x[0, 0].numpy())
    before = first.copy()
    stream.step(x[0, 1].numpy())
    np.testing.assert_array_equal(first, before)


@pytest.mark.parametrize("name", ["cfc", "ltc-clip", "cfc-mmrnn", "wired-ncp", "gru"])
def test_changed_parameters_are_noticed(name):
    rnn, (x, dt) = module(name), samples(1)
    stream = rnn.stream()
    stream.step(x[:, 0])
    state = stream.state
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.1)
    rnn(x, dt=dt)[0].square().sum().backward()
    optimizer.step()
    with pytest.raises(StreamError, match=r"has changed.*refresh"):
        stream.step(x[:, 1])
    stream.refresh()
    torch.testing.assert_close(stream.state, state)
    expected, _ = rnn(x[:, 1:2], state)
    torch.testing.assert_close(stream.step(x[:, 1]), expected[:, 0].detach())


def test_loading_a_state_dict_is_noticed():
    rnn = module("ltc")
    stream = rnn.stream()
    rnn.load_state_dict(module("ltc").state_dict())
    with pytest.raises(StreamError, match="has changed"):
        stream.step(samples(1)[0][:, 0])


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("name", ["cfc", "ltc", "stacked"])
def test_another_tensor_in_place_of_one_is_noticed(name, assign):
    rnn, (x, _) = module(name), samples(1)
    stream = rnn.stream()
    if assign:
        rnn.load_state_dict({k: v + 1 for k, v in rnn.state_dict().items()}, assign=True)
    else:
        key, weight = next(rnn.cell.named_parameters())
        owner, _, attribute = key.rpartition(".")
        setattr(rnn.cell.get_submodule(owner), attribute, torch.nn.Parameter(weight.detach() + 1))
    with pytest.raises(StreamError, match="has changed"):
        stream.step(x[:, 0])
    stream.refresh()
    torch.testing.assert_close(stream.step(x[:, 0]), rnn(x[:, :1])[0][:, 0].detach())


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_steps_of_fused_optimizers_are_noticed(kind):
    rnn, other, (x, _) = module("cfc"), module("cfc"), samples(1)
    stream, untouched = rnn.stream(), other.stream()
    optimizer = getattr(torch.optim, kind)(rnn.parameters(), lr=0.1, fused=True)
    optimizer.step()  # without gradients, which changes nothing
    stream.step(x[:, 0])
    rnn(x)[0].square().sum().backward()
    optimizer.step()
    with pytest.raises(StreamError, match="has changed"):
        stream.step(x[:, 0])
    untouched.step(x[:, 0])
    stream.refresh()
    stream.reset()
    torch.testing.assert_close(stream.step(x[:, 0]), rnn(x[:, :1])[0][:, 0].detach())


def test_reparametrisations_that_step_when_read():
    rnn, (x, _) = module("cfc"), samples(1)
    torch.nn.utils.parametrizations.spectral_norm(rnn.cell.heads)
    stream = rnn.train().stream()  # packing it takes a step of the power iteration
    stream.step(x[:, 0])
    stream.step(x[:, 1])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
@pytest.mark.parametrize("begun", [False, True])
def test_copies_go_on_by_themselves(copied, begun):
    rnn, (x, dt) = module("ltc"), samples(2)
    stream = rnn.stream(2)
    if begun:
        stream.step(x[:, 0], dt[:, 0])
    twin = copied(stream)
    want = stream.step(x[:, 1], dt[:, 1])
    stream.step(x[:, 2], dt[:, 2])
    assert torch.equal(twin.step(x[:, 1], dt[:, 1]), want)
    assert not torch.equal(twin.state, stream.state)


def test_what_cannot_be_streamed_is_refused():
    with pytest.raises(StreamError, match="bidirectional"):
        tauflow.CfC(D, N, bidirectional=True).stream()
    dropping = tauflow.CfC(D, N, num_layers=2, dropout=0.5)
    with pytest.raises(StreamError, match=r"module\.eval\(\)"):
        dropping.stream()
    assert dropping.eval().stream().batch_size == 1
    with pytest.raises(StreamError, match=r"module\.eval\(\)"):
        tauflow.CfC(D, N, backbone_dropout=0.5).stream()
    assert tauflow.CfC(D, N, backbone_dropout=0.5).eval().stream().batch_size == 1
    with pytest.raises(StreamError, match="has not begun"):
        _ = module("cfc").stream().state
    with pytest.raises(ArgumentError, match="batch_size"):
        module("cfc").stream(0)


@pytest.mark.parametrize(
    ("x", "dt", "error", "match"),
    [
        (np.zeros(D), 1.0, DtypeError, "float32.*float64"),
        ([0.0] * D, 1.0, DtypeError, "NumPy array or tensor"),
        (np.zeros(D + 1, np.float32), 1.0, ShapeError, r"\(1, 3\) or \(3,\)"),
        (np.zeros((2, D), np.float32), 1.0, ShapeError, r"\(1, 3\)"),
        (np.zeros(D, np.float32), -1.0, TimeError, "not negative, got -1"),
        (np.zeros(D, np.float32), float("nan"), TimeError, "finite"),
        (np.zeros(D, np.float32), np.array([np.inf]), TimeError, "finite"),
        (np.zeros(D, np.float32), 1e300, TimeError, "finite in float32"),
        (np.zeros(D, np.float32), np.array([1e300]), TimeError, "finite in float32"),
        (np.zeros(D, np.float32), np.ones(3), ArgumentError, r"\(1,\) numbers"),
    ],
)
def test_bad_samples_are_refused(x, dt, error, match):
    with pytest.raises(error, match=match):
        module("cfc").stream().step(x, dt)


@pytest.mark.parametrize(
    "name", ["gru-d", "rnn-delta-t", "rnn-impute", "rnn-decay-rubanova", "ode-rnn-rubanova"]
)
def test_nan_is_missing_where_the_module_takes_it_so(name):
    rnn = module(name)
    x, dt = samples(2)
    x[0, 2, 1] = x[1, 0] = x[1, 3] = float("nan")
    expected, _ = rnn(x, dt=dt)
    stream = rnn.stream(2)
    for k in range(T):
        torch.testing.assert_close(stream.step(x[:, k], dt[:, k]), expected[:, k].detach())


@pytest.mark.parametrize(("name", "value"), [("cfc", np.nan), ("ltc", np.inf), ("gru-d", np.inf)])
def test_a_sample_that_is_no_number_leaves_the_state(name, value):
    rnn = module(name)
    x, dt = samples(1)
    stream, other = rnn.stream(), rnn.stream()
    for each in (stream, other):
        each.step(x[:, 0], 1.0)
    bad = x[0, 1].clone()
    bad[2] = value
    with pytest.raises(NonFiniteError, match=f"x is {value} in sequence 0, feature 2"):
        stream.step(bad)
    torch.testing.assert_close(stream.step(x[:, 2], dt[:, 2]), other.step(x[:, 2], dt[:, 2]))


def test_a_gap_that_solver_steps_cannot_follow_is_told():
    stream = module("ode-lstm").stream()
    start = stream.step(torch.ones(D))

    def pauses() -> None:
        for _ in range(20):
            stream.step(torch.ones(D), 1e5)

    with pytest.raises(NonFiniteError, match=r"time step of 100000.*stable up to dt = .*reset\(\)"):
        pauses()
    stream.reset()
    torch.testing.assert_close(stream.step(torch.ones(D)), start)


def test_observed_has_the_shape_of_the_samples():
    stream = module("gru-d").stream(2)
    with pytest.raises(ShapeError, match=r"observed has shape \(3, 2\).*\(2, 3\)"):
        stream.step(torch.zeros(2, D), observed=torch.ones(D, 2, dtype=torch.bool))
    single = module("gru-d").stream()
    output = single.step(torch.ones(D), observed=torch.tensor([True, False, True]))
    assert output.shape == (N,)


def test_tokens_may_come_one_at_a_time():
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.CfC(4, N), 2, vocabulary=9).eval()
    ids = torch.tensor([[[3], [0], [8]]])
    expected = model(ids)[0][0]
    stream, batched = model.stream(), model.stream()
    for k in range(3):
        torch.testing.assert_close(stream.step(ids[0, k]), expected[k].detach())
        torch.testing.assert_close(batched.step(ids[:, k]), expected[k : k + 1].detach())


def test_a_given_state_needs_no_initial_one():
    stream = tauflow.GNODE(D, N, initial_state="affine").stream(2)
    stream.reset(rows=np.array([False, False]))
    h = torch.rand(2, N)
    stream.reset(h, rows=np.array([True, True]))
    assert torch.equal(stream.state, h)
    with pytest.raises(ArgumentError, match="first sample"):
        stream.reset(rows=np.array([True, False]))


@pytest.mark.parametrize("name", ["gnode", "lem", "mgru"])
def test_a_learned_start_is_that_of_the_sequence_call(name):
    torch.manual_seed(0)
    rnn, (x, dt) = tauflow.build(name, D, N, initial_state="learned", num_layers=2), samples(3)
    stream = rnn.stream(3)
    rows = [stream.step(x[:, t], dt[:, t]) for t in range(T)]
    torch.testing.assert_close(torch.stack(rows, 1), rnn(x, dt=dt)[0].detach())


def test_bad_states_are_refused():
    stream = module("cfc").stream()
    with pytest.raises(ShapeError, match=r"\(1, 6\)"):
        stream.reset(torch.zeros(1, 7))
    with pytest.raises(DtypeError, match="float64"):
        stream.reset(torch.zeros(1, 6, dtype=torch.float64))
    with pytest.raises(ArgumentError, match="does not model missing features"):
        stream.step(torch.zeros(1, D), observed=torch.ones(1, D, dtype=torch.bool))


@pytest.mark.parametrize("rows", [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("begun", [True, False])
def test_bad_states_of_some_rows_are_refused(rows, begun):
    stream = tauflow.LSTM(D, N).stream(2)
    if begun:
        stream.step(samples(2)[0][:, 0])
    before = stream.state if begun else None
    for shape in [(2, 1), (1,), (), (1, 2 * N), (2 * N,), (2, N)]:
        with pytest.raises(ShapeError, match=r"h has shape .*, expected \(2, 12\)"):
            stream.reset(torch.full(shape, 9.0), rows=np.array(rows))
    for dtype in (torch.float64, torch.float16, torch.int64):  # which torch.where would convert
        with pytest.raises(DtypeError, match=r"must be a torch\.float32 tensor, got torch"):
            stream.reset(torch.ones(2, 2 * N, dtype=dtype), rows=np.array(rows))
    if begun:
        assert torch.equal(stream.state, before)
    else:
        with pytest.raises(StreamError, match="has not begun"):
            _ = stream.state


def test_a_state_may_be_an_array_of_numpy():
    stream = tauflow.LSTM(D, N).stream(2)
    state = np.random.default_rng(0).normal(size=(2, 2 * N)).astype(np.float32)
    stream.reset(state)
    assert np.array_equal(stream.state, state)
    stream.reset(-state, rows=np.array([True, False]))
    assert np.array_equal(stream.state, np.stack([-state[0], state[1]]))
    with pytest.raises(DtypeError, match=r"must be a torch\.float32 tensor, got torch\.float64"):
        stream.reset(state.astype(np.float64))


def test_a_state_that_is_no_tensor_is_refused():
    stream = tauflow.LSTM(D, N).stream(2)
    with pytest.raises(DtypeError, match=r"must be a torch\.float32 tensor, got list"):
        stream.reset([[0.0]], rows=np.array([True, False]))


@pytest.mark.parametrize("name", ["cfc", "stacked", "gru-d"])
def test_some_sequences_start_anew(name):
    rnn, (x, dt) = module(name), samples(4)
    rows = torch.tensor([True, False, False, True])
    stream = rnn.stream(4)
    stream.reset(rows=rows)  # before the first sample nothing is to be done
    for t in range(T):
        if t == 2:
            stream.reset(rows=rows.numpy())
        y = stream.step(x[:, t], dt[:, t])
    uncut, _ = rnn(x, dt=dt)
    late, h = rnn(x[:, 2:], dt=dt[:, 2:])
    torch.testing.assert_close(y, torch.where(rows[:, None], late[:, -1], uncut[:, -1]).detach())
    other = torch.rand(4, rnn.state_size)
    stream.reset(other, rows=rows)
    torch.testing.assert_close(stream.state[rows], other[rows])
    assert not torch.allclose(stream.state[~rows], other[~rows])
    torch.testing.assert_close(stream.state[1], rnn(x[1], dt=dt[1])[1].detach())
    fresh = rnn.stream(4)
    fresh.reset(h.detach(), rows=rows)
    torch.testing.assert_close(fresh.state[rows], h.detach()[rows])
    torch.testing.assert_close(fresh.state[~rows], rnn.initial_state(4)[~rows])


def test_rows_that_do_not_fit_are_refused():
    stream = module("cfc").stream(2)
    with pytest.raises(ShapeError, match=r"rows has shape \(3,\), expected \(2,\)"):
        stream.reset(rows=torch.zeros(3, dtype=torch.bool))
    with pytest.raises(DtypeError, match=r"rows has dtype torch\.int64"):
        stream.reset(rows=np.array([1, 0]))
    late = tauflow.GNODE(D, N, initial_state="affine").stream(2)
    late.step(samples(2)[0][:, 0])
    with pytest.raises(ArgumentError, match="derives its initial state from the first sample"):
        late.reset(rows=torch.ones(2, dtype=torch.bool))


@pytest.mark.parametrize("name", ["cfc", "gru", "ltc"])
def test_a_step_is_compiled_before_the_first(name):
    loops = kernels.cpu.binding.import_kernels
    taken = loops("streaming.numba_steps").run_program, loops("streaming.numba_steps").ltc_step
    stream = module(name).stream(2)
    compiled = [len(step.signatures) for step in taken]
    assert not stream._engines[0].state.any()  # as before
    stream.step(np.ones((2, D), np.float32))
    assert [len(step.signatures) for step in taken] == compiled
    assert compiled[name == "ltc"] > 0
