"""A stream goes with its model: other parts, hooks, reparametrisations and dtypes are seen."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune, spectral_norm, weight_norm

import tauflow
from tauflow.errors import ArgumentError, StreamError
from tauflow.models import TokenEmbedding
from tauflow.sequence import Stream

D, N, T = 3, 6, 5
X = torch.randn(2, T, D, generator=torch.Generator().manual_seed(0))


def model(seed=0, body=tauflow.CfC, **options):
    torch.manual_seed(seed)
    return tauflow.SequenceModel(body(D, N, **options), 2).eval()


def streamed(stream, x=X):
    return torch.stack([stream.step(sample) for sample in x.unbind(1)], 1)


def check_like_the_model(stream, model, x=X):
    torch.testing.assert_close(streamed(stream, x), model(x)[0].detach())


PLACES = {"head": lambda model: model.head, "projection": lambda model: model.rnn.projections[0]}
HOOKS = {
    "prune": lambda part: prune.l1_unstructured(part, "weight", 0.5),
    "weight_norm": weight_norm,
    "spectral_norm": spectral_norm,
    "foreign": lambda part: part.register_forward_pre_hook(lambda _, args: (args[0] * 2,)),
    "kwargs": lambda part: part.register_forward_pre_hook(
        lambda _, args, named: ((args[0] * 2,), named), with_kwargs=True
    ),
    "foreign-after-ours": lambda part: HOOKS["foreign"](HOOKS["prune"](part)),
    "forward": lambda part: vars(part).update(forward=lambda y: nn.Linear.forward(part, y) * 2),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", HOOKS)
def test_what_hangs_on_a_linear_part_is_computed(kind, place):
    """The parameters come from a file, so that no pass has computed the weights from them."""
    trained, fresh = model(proj_size=4), model(seed=1, proj_size=4)
    for hooked in (trained, fresh):
        HOOKS[kind](PLACES[place](hooked))
    fresh.load_state_dict(trained.state_dict())
    stream = fresh.stream(2)
    torch.testing.assert_close(streamed(stream), trained(X)[0].detach())
    with torch.no_grad():
        for parameter in PLACES[place](fresh).parameters():
            parameter.mul_(1.5)
    with pytest.raises(StreamError, match="has changed"):
        stream.step(X[:, 0])
    stream.refresh()
    stream.reset()
    check_like_the_model(stream, fresh)


def replace_head(model):
    model.head = nn.Linear(N, 4)


def replace_head_by_another_kind(model):
    model.head = nn.Sequential(nn.Linear(N, 4), nn.Tanh())


def replace_body(model):
    model.rnn = tauflow.GRU(D, N)


@pytest.mark.parametrize("replace", [replace_head, replace_head_by_another_kind, replace_body])
@pytest.mark.parametrize("begun", [False, True])
def test_another_part_of_the_model_is_noticed_and_taken(replace, begun):
    streamed_model = model()
    stream = streamed_model.stream(2)
    if begun:
        stream.step(X[:, 0])
    replace(streamed_model)
    with pytest.raises(StreamError, match=r"part or hook of the module has changed.*refresh"):
        stream.step(X[:, 0])
    state = stream.state if begun else None
    stream.refresh()
    assert stream.module is streamed_model.rnn
    if begun:
        torch.testing.assert_close(stream.state, state)
        torch.testing.assert_close(
            stream.step(X[:, 1]), streamed_model.step(X[:, 1], state)[0].detach()
        )
    stream.reset()
    check_like_the_model(stream, streamed_model)


def test_an_embedding_that_comes_or_goes_is_noticed_and_taken():
    ids = torch.tensor([[[3], [0], [8], [1]]])
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.CfC(D, N), 2).eval()
    stream = model.stream()
    stream.step(X[:1, 0])
    model.embedding = TokenEmbedding(9, D)
    with pytest.raises(StreamError, match="has changed"):
        stream.step(X[:1, 0])
    stream.refresh()
    stream.reset()
    check_like_the_model(stream, model, ids)
    model.embedding = TokenEmbedding(9, D)
    with pytest.raises(StreamError, match="has changed"):
        stream.step(ids[:, 0])
    model.embedding = None
    stream.refresh()
    stream.reset()
    check_like_the_model(stream, model, X[:1])


@pytest.mark.parametrize(
    ("body", "widths"),
    [
        (lambda: tauflow.CfC(D, 8), r"\[8\].*\[6\]"),
        (lambda: tauflow.CfC(D, 3, num_layers=2), r"\[3, 3\].*\[6\]"),
    ],
)
def test_states_that_no_longer_fit_are_told(body, widths):
    streamed_model = model()
    stream = streamed_model.stream(2)
    stream.step(X[:, 0])
    old, state = streamed_model.rnn, stream.state
    streamed_model.rnn = body().eval()
    streamed_model.head = nn.Linear(streamed_model.rnn.output_size, 2)
    with pytest.raises(StreamError, match=rf"states of widths {widths}.*reset\(\) before refresh"):
        stream.refresh()
    assert torch.equal(stream.state, state)  # as before
    assert stream.module is old
    stream.reset()
    stream.refresh()
    check_like_the_model(stream, streamed_model)


def test_new_parts_pass_the_checks_of_the_first_ones():
    streamed_model = model()
    stream = streamed_model.stream()
    streamed_model.rnn = tauflow.CfC(D, N, bidirectional=True)
    with pytest.raises(StreamError, match="bidirectional"):
        stream.refresh()
    streamed_model.rnn = tauflow.CfC(D, N, num_layers=2, dropout=0.5)
    with pytest.raises(StreamError, match=r"module\.eval\(\)"):
        stream.refresh()
    streamed_model.rnn = tauflow.models.Transformer(D, 8)
    with pytest.raises(StreamError, match="reads sequences as a whole"):
        stream.refresh()
    streamed_model.rnn = tauflow.CfC(D, N).to("meta")
    with pytest.raises(StreamError, match="runs on the CPU"):
        stream.refresh()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_goes_with_a_model_of_its_own(copied):
    streamed_model = model()
    stream = streamed_model.stream(2)
    stream.step(X[:, 0])
    twin = copied(stream)
    streamed_model.head = nn.Linear(N, 4)
    expected = streamed_model.rnn(X[:, 1:2], stream.state)[0][:, 0]
    with pytest.raises(StreamError, match="has changed"):
        stream.step(X[:, 1])
    torch.testing.assert_close(twin.step(X[:, 1]), model().head(expected).detach())
    stream.refresh()
    torch.testing.assert_close(stream.step(X[:, 1]), streamed_model.head(expected).detach())


def test_a_module_may_have_parts_around_it_without_a_model():
    streamed_model = model()
    stream = Stream(
        streamed_model.rnn, 2, preprocessor=nn.Identity(), postprocessor=streamed_model.head
    )
    check_like_the_model(stream, streamed_model)
    check_like_the_model(
        copy.deepcopy(Stream(streamed_model.rnn, 2, postprocessor=streamed_model.head)),
        streamed_model,
    )
    with pytest.raises(ArgumentError, match="Leave preprocessor and postprocessor out"):
        Stream(streamed_model, 2, postprocessor=nn.Linear(2, 2))


@pytest.mark.parametrize("body", [tauflow.PhasedLSTM, tauflow.CfC, tauflow.LTC])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (torch.float32, torch.float64),
        (torch.float64, torch.float32),
        (torch.float32, torch.float16),
    ],
)
def test_the_states_follow_the_dtype_of_the_parameters(body, first, then):
    streamed_model = model(body=body).to(first)
    stream = streamed_model.stream(2)
    stream.step(X[:, 0].to(first))
    state = stream.state
    streamed_model.to(then)
    with pytest.raises(StreamError, match="has changed"):
        stream.step(X[:, 1].to(first))
    stream.refresh()
    assert torch.equal(stream.state, state.to(then))
    y = stream.step(X[:, 1].to(then))
    assert (y.dtype, stream.state.dtype) == (then, then)
    exact = streamed_model.double()
    close = {"rtol": 0.01, "atol": 0.01} if then is torch.float16 else {}
    expected = exact.step(X[:, 1].double(), state.double())[0].detach()
    torch.testing.assert_close(y.double(), expected, **(close or {"rtol": 1e-5, "atol": 1e-5}))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", ["input", "state"])
@pytest.mark.parametrize("core", ["cfc", "wired-cfc", "ltc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_core_of_a_mixed_memory_is_streamed(core, form, dtype):
    torch.manual_seed(0)
    size = N if core == "cfc" else tauflow.AutoNCP(12, 2)
    rnn = tauflow.MixedMemory(D, size, core=core, form=form).to(dtype)
    x, dt = X.to(dtype), torch.rand(2, T, dtype=dtype)
    stream = rnn.stream(2)
    y = [stream.step(x[:, t], dt[:, t]) for t in range(T)]
    expected, last = rnn(x, dt=dt)
    torch.testing.assert_close(torch.stack(y, 1), expected.detach())
    torch.testing.assert_close(stream.state, last.detach())


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_that_came_later_is_seen(kind):
    streamed_model = model()
    stream = streamed_model.stream(2)
    check_like_the_model(stream, streamed_model)
    getattr(streamed_model.head, kind)(lambda _, *args: None)
    with pytest.raises(StreamError, match="has changed"):
        stream.step(X[:, 0])
    stream.refresh()
    stream.reset()
    check_like_the_model(stream, streamed_model)


def test_what_drops_units_is_no_stream_and_is_seen_when_it_trains():
    streamed_model = model()
    streamed_model.head = nn.Sequential(nn.Linear(N, 4), nn.AlphaDropout(0.5), nn.Linear(4, 2))
    streamed_model.eval()
    stream = streamed_model.stream(2)
    check_like_the_model(stream, streamed_model)
    state = stream.state
    for part in (streamed_model, streamed_model.head):
        part.train()
        with pytest.raises(StreamError, match=r"has changed.*train\(\)"):
            stream.step(X[:, 0])
        for again in (stream.refresh, streamed_model.stream):
            with pytest.raises(StreamError, match=r"no dropout.*module\.eval\(\)"):
                again()
        streamed_model.eval()
        torch.testing.assert_close(
            stream.step(X[:, 0]), streamed_model.step(X[:, 0], state)[0].detach()
        )
        stream.reset(state)


class Doubled(tauflow.SequenceModel):
    def forward(self, x, hx=None, **times_and_masks):
        y, h = super().forward(x, hx, **times_and_masks)
        return 2 * y, h


class DoubledInStreams(Doubled):
    def stream_parts(self):
        parts = super().stream_parts()
        return parts._replace(postprocessor=nn.Sequential(parts.postprocessor, Twice()))


class DoubledBody(tauflow.RNN):
    forward = Doubled.forward


class Twice(nn.Module):
    def forward(self, y):
        return 2 * y


def with_forward(part):
    part.forward = lambda *args, **named: type(part).forward(part, *args, **named)


def replace_body_by_a_subclass(model):
    model.rnn = DoubledBody(model.rnn.cell)


BEYOND = {
    "hook": lambda model: model.register_forward_hook(lambda _, x, y: (y[0] * 2, y[1])),
    "hook-before": lambda model: model.register_forward_pre_hook(lambda _, x: (x[0] * 2, *x[1:])),
    "hook-on-body": lambda model: BEYOND["hook"](model.rnn),
    "hook-before-body": lambda model: BEYOND["hook-before"](model.rnn),
    "forward": with_forward,
    "forward-of-body": lambda model: with_forward(model.rnn),
    "body-of-a-subclass": replace_body_by_a_subclass,
}


@pytest.mark.parametrize("kind", BEYOND)
def test_what_a_call_does_beyond_its_parts_is_refused(kind):
    streamed_model = model()
    stream = streamed_model.stream(2)
    BEYOND[kind](streamed_model)
    for again in (stream.refresh, streamed_model.stream):
        with pytest.raises(StreamError, match=r"has (forward hooks|another forward), which"):
            again()


def test_a_forward_of_a_subclass_is_streamed_if_it_says_what_to_run():
    with pytest.raises(StreamError, match=r"Doubled has another forward.*stream_parts\(\)"):
        Doubled(tauflow.CfC(D, N), 2).stream()
    streamed_model = DoubledInStreams(tauflow.CfC(D, N), 2)
    check_like_the_model(streamed_model.stream(2), streamed_model)


def test_a_parametrization_of_the_body_is_no_forward_of_its_own():
    streamed_model = model()
    streamed_model.rnn.register_parameter("scale", nn.Parameter(torch.ones(1)))
    parametrize.register_parametrization(streamed_model.rnn, "scale", nn.Softplus())
    check_like_the_model(streamed_model.stream(2), streamed_model)
