"""Recurrent policies for Stable-Baselines3: states, time steps, training, files, exports."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import GRUCell
from tauflow.compat.sb3 import RecurrentPolicy
from tauflow.errors import ArgumentError

N = 6


sb3_contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
from gymnasium import spaces  # noqa: E402
from sb3_contrib.common.recurrent.type_aliases import RNNStates  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs
POSITION = spaces.Box(-1, 1, (2,), np.float32)
STEP = spaces.Box(0, 10, (1,), np.float32)
TIMED = spaces.Dict({"dt": STEP, "position": POSITION, "angle": spaces.Box(-1, 1, (1,))})


class Drift(gymnasium.Env):
    """Follow a point that drifts, seen at irregular times; episodes have 7 samples."""

    def __init__(self, observation_space=TIMED, action_space=None, missing=0.0):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.missing = missing

    def observe(self):
        draw = self.np_random
        seen = {
            "dt": draw.uniform(0.1, 2.0, 1),
            "position": draw.uniform(-1, 1, 2),
            "angle": draw.uniform(-1, 1, 1),
        }
        seen["position"][draw.uniform(size=2) < self.missing] = np.nan
        seen = {name: value.astype(np.float32) for name, value in seen.items()}
        return seen if isinstance(self.observation_space, spaces.Dict) else seen["position"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.samples = 0
        return self.observe(), {}

    def step(self, action):
        self.samples += 1
        return self.observe(), float(np.mean(action)), self.samples == 7, False, {}


def make_policy(name="cfc", space=TIMED, action_space=None, dt="dt", **options):
    torch.manual_seed(0)
    rnn = partial(tauflow.build, name, hidden_size=N)
    action_space = action_space or spaces.Discrete(2)
    return RecurrentPolicy(space, action_space, lambda _: 1e-3, rnn=rnn, dt=dt, **options)


def make_sequences(batch=3, steps=5):
    generator = torch.Generator().manual_seed(1)
    draw = partial(torch.rand, generator=generator)
    observations = {
        "dt": 2 * draw(batch, steps, 1),
        "position": draw(batch, steps, 2),
        "angle": draw(batch, steps, 1),
    }
    starts = draw(batch, steps) < 0.3
    starts[0, 0], starts[1, 0], starts[2, 3] = True, False, True
    return observations, starts


def run_by_hand(rnn, observations, starts, h):
    """Return the outputs of a cell stepped by hand, (B, T, H)."""
    outputs = []
    features = torch.cat([observations["angle"], observations["position"]], dim=-1)
    for step in range(features.shape[1]):
        fresh = rnn.cell.initial_state(features[:, step])
        h = torch.where(starts[:, step, None], fresh, h)
        h = rnn.cell.step(features[:, step], h, observations["dt"][:, step])
        outputs.append(rnn.cell.readout(h))
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("name", ["cfc", "lstm", "gru-d"])
def test_actions_and_values_are_those_of_the_cells(name):
    policy = make_policy(name)
    observations, starts = make_sequences()
    flat = {key: value.flatten(0, 1) for key, value in observations.items()}
    size = policy.lstm_actor.hidden_size
    first = [torch.randn(1, 3, size) for _ in range(2)]
    states = RNNStates(*((h, torch.zeros_like(h)) for h in first))
    actions = torch.arange(15) % 2
    values, log_probability, _ = policy.evaluate_actions(
        flat, actions, states, starts.flatten().float()
    )
    latent = [
        run_by_hand(core.rnn, observations, starts, h[0]).flatten(0, 1)
        for core, h in zip((policy.lstm_actor, policy.lstm_critic), first, strict=True)
    ]
    logits = policy.action_net(policy.mlp_extractor.policy_net(latent[0]))
    expected = logits.log_softmax(-1).gather(1, actions[:, None])[:, 0]
    torch.testing.assert_close(log_probability, expected)
    torch.testing.assert_close(values, policy.value_net(policy.mlp_extractor.value_net(latent[1])))

    # the same, sample by sample, as in a rollout
    for step in range(starts.shape[1]):
        now = {key: value[:, step] for key, value in observations.items()}
        _, value, _, states = policy.forward(now, states, starts[:, step].float())
        torch.testing.assert_close(value, values.view(3, 5, 1)[:, step])


class RaisedCell(GRUCell):
    """A GRU that starts from ones."""

    def initial_state(self, x):
        return torch.ones(x.shape[0], self.state_size, dtype=x.dtype)


def test_episodes_start_from_the_initial_state_of_the_cell():
    policy = RecurrentPolicy(
        POSITION,
        spaces.Discrete(2),
        lambda _: 1e-3,
        rnn=lambda size: tauflow.RNN(RaisedCell(size, N)),
    )
    observation = np.full((2, 2), 0.3, np.float32)
    _, state = policy.predict(observation, deterministic=True)
    cell = policy.lstm_actor.rnn.cell
    x, second = torch.full((2, 2), 0.3), torch.ones(2, 1)
    expected = cell.step(x, torch.ones(2, N), second)
    np.testing.assert_allclose(state[0][0], expected.detach(), rtol=1e-5)
    _, later = policy.predict(observation, state, np.array([True, False]))
    np.testing.assert_allclose(later[0][0, 0], state[0][0, 0], rtol=1e-5)
    expected = cell.step(x, torch.from_numpy(state[0][0]), second)
    np.testing.assert_allclose(later[0][0, 1], expected[1].detach(), rtol=1e-5)


def test_a_number_is_the_time_step_of_every_sample():
    fast, slow = (make_policy(space=POSITION, dt=dt) for dt in (0.1, 3.0))
    observation = np.array([0.3, -0.7], np.float32)
    ends = [policy.predict(observation)[1][0].ravel() for policy in (fast, slow)]
    assert not np.allclose(*ends)
    cell = slow.lstm_actor.rnn.cell
    x = torch.from_numpy(observation)[None]
    expected = cell.step(x, torch.zeros(1, N), torch.tensor([[3.0]]))
    np.testing.assert_allclose(ends[1], expected[0].detach(), rtol=1e-5)


def learn(env=None, name="cfc", **policy_options):
    torch.manual_seed(0)
    rnn = partial(tauflow.build, name, hidden_size=N)
    model = sb3_contrib.RecurrentPPO(
        RecurrentPolicy,
        env or Drift(),
        policy_kwargs={"rnn": rnn, "dt": "dt", "net_arch": [8], **policy_options},
        n_steps=20,
        batch_size=10,
        n_epochs=2,
        seed=0,
        device="cpu",
    )
    before = {name: p.detach().clone() for name, p in model.policy.named_parameters()}
    model.learn(40)
    after = dict(model.policy.named_parameters())
    assert all(p.isfinite().all() for p in after.values())
    return model, {name for name, p in after.items() if not torch.equal(p, before[name])}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cfc", {}),
        ("ltc", {"shared_lstm": True, "enable_critic_lstm": False}),
        ("cfc", {"enable_critic_lstm": False}),
        ("gru", {"share_features_extractor": False}),
    ],
)
def test_everything_learns(name, options):
    model, changed = learn(name=name, **options)
    assert changed == {key for key, _ in model.policy.named_parameters()}
    assert any("lstm_actor.rnn" in key for key in changed)
    has_critic = options.get("enable_critic_lstm", True)
    assert has_critic == any("lstm_critic.rnn" in key for key in changed)


@pytest.mark.parametrize("action_space", [spaces.Box(-1, 1, (3,)), spaces.MultiDiscrete([2, 3])])
def test_other_actions_and_missing_values(action_space):
    model, changed = learn(Drift(action_space=action_space, missing=0.4), "gru-d")
    assert any("lstm_actor.rnn" in key for key in changed)
    observation, _ = Drift(missing=1.0).reset(seed=0)
    action, _ = model.predict(observation)
    assert action_space.contains(action)


def test_policies_are_saved_and_loaded(tmp_path):
    model, _ = learn(enable_critic_lstm=False)
    model.save(tmp_path / "model")
    model.policy.save(tmp_path / "policy.pt")
    others = [
        sb3_contrib.RecurrentPPO.load(tmp_path / "model").policy,
        RecurrentPolicy.load(tmp_path / "policy.pt"),
    ]
    env = Drift()
    observation, _ = env.reset(seed=3)
    action, state = model.predict(observation, deterministic=True)
    for policy in others:
        again, end = policy.predict(observation, deterministic=True)
        assert again == action
        np.testing.assert_array_equal(end[0], state[0])


@pytest.mark.sampled(9)
@pytest.mark.parametrize("action_space", [spaces.Discrete(3), spaces.Box(-0.1, 0.1, (2,))])
def test_the_actor_as_onnx_acts_alike(action_space, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    env = Drift(action_space=action_space)
    model, _ = learn(env)
    path = tmp_path / "policy.onnx"
    tauflow.export.to_onnx(model.policy.actor_model(), path, mode="step")
    session = onnxruntime.InferenceSession(path)
    stream = model.policy.actor_model().stream()
    observation, _ = env.reset(seed=5)
    state, h = None, np.zeros((1, N), np.float32)
    for _ in range(7):
        action, state = model.predict(observation, state, np.array([False]), deterministic=True)
        x = np.concatenate([observation["angle"], observation["position"]])[None]
        y, h = session.run(["y", "h_out"], {"x": x, "dt": observation["dt"], "h_in": h})
        np.testing.assert_allclose(h, state[0][0], atol=1e-5)
        np.testing.assert_allclose(stream.step(x[0], float(observation["dt"][0])), y[0], atol=1e-5)
        if isinstance(action_space, spaces.Discrete):
            assert y[0].argmax() == action
        else:
            np.testing.assert_allclose(np.clip(y[0], -0.1, 0.1), action, atol=1e-5)
        observation, *_ = env.step(action)


@pytest.mark.parametrize(
    "options", [{}, {"net_arch": [8], "activation_fn": nn.ELU}, {"net_arch": []}]
)
def test_the_actor_is_saved_and_loaded(options, tmp_path):
    policy = make_policy(**options)
    actor = policy.actor_model()
    tauflow.save(actor, tmp_path / "actor.safetensors")
    loaded = tauflow.load(tmp_path / "actor.safetensors").eval()
    x = torch.randn(2, 5, actor.rnn.input_size)
    torch.testing.assert_close(loaded(x), actor(x), rtol=0, atol=0)
    y = actor.rnn(x)[0]
    expected = policy.action_net(policy.mlp_extractor.policy_net(y))
    torch.testing.assert_close(actor(x)[0], expected)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ArgumentError, match="dt='time' must name an entry with one element"):
        make_policy(dt="time")
    with pytest.raises(ArgumentError, match="dt='dt' must name an entry"):
        make_policy(space=POSITION)
    with pytest.raises(ArgumentError, match="dt='dt' must name an entry"):
        make_policy(space=spaces.Dict({"dt": STEP}))
    with pytest.raises(ArgumentError, match="dt"):
        make_policy(dt=-1.0)
    for wrong in ({"bidirectional": True}, {"return_sequences": False}):
        rnn = partial(tauflow.CfC, hidden_size=N, **wrong)
        with pytest.raises(ArgumentError, match="one direction that returns sequences"):
            RecurrentPolicy(POSITION, spaces.Discrete(2), lambda _: 1e-3, rnn=rnn)
    categories = make_policy(space=spaces.Dict({"dt": STEP, "where": spaces.Discrete(4)}))
    with pytest.raises(ArgumentError, match="not the observations themselves"):
        categories.actor_model()
