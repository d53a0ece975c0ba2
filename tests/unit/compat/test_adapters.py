"""Adapters to libraries of others, each where that library is installed.

``packaging/adapters.txt`` pins the versions.
"""

import importlib.util
import sys

import numpy as np
import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError, MissingExtraError
from tauflow.estimators import SequenceClassifier, SequenceForecaster

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs


def labelled(rows=24, steps=8, channels=2):
    """Series (rows, channels, steps), whose class is the sign of the first channel's mean."""
    x = np.random.default_rng(0).normal(size=(rows, channels, steps))
    y = np.where(np.arange(rows) % 2, "up", "down")
    x[:, 0] += np.where(y == "up", 2.0, -2.0)[:, None]
    return x, y


def small(**options):
    return SequenceClassifier(
        model="gru", hidden_size=8, epochs=15, lr=0.03, ensemble=1, random_state=0, **options
    )


def test_a_network_of_skorch_takes_dictionaries():
    skorch = pytest.importorskip("skorch")
    from tauflow.compat.skorch import SequenceNet

    x, y = labelled()
    data = {
        "x": x.transpose(0, 2, 1).astype(np.float32),
        "dt": np.ones((24, 8), np.float32),
        "lengths": np.full(24, 8),
    }
    torch.manual_seed(0)
    net = skorch.NeuralNetClassifier(
        SequenceNet,
        module__input_size=2,
        module__output_size=2,
        module__hidden_size=8,
        module__model="gru-d",
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=0.03,
        max_epochs=10,
        train_split=None,
        verbose=0,
    )
    labels = (y == "up").astype(np.int64)
    net.fit(data, labels)
    assert (net.predict(data) == labels).mean() > 0.9
    whole_model = SequenceNet(2, 3, hidden_size=4, per_step=True)
    assert whole_model(torch.zeros(5, 7, 2)).shape == (5, 7, 3)


def test_a_classifier_of_sktime():
    pytest.importorskip("sktime")
    from tauflow.compat.sktime import SktimeClassifier

    x, y = labelled()
    classifier = SktimeClassifier(small()).fit(x, y)
    model = small().fit(x.transpose(0, 2, 1), y)
    assert list(classifier.predict(x)) == list(model.predict(x.transpose(0, 2, 1)))
    np.testing.assert_allclose(
        classifier.predict_proba(x), model.predict_proba(x.transpose(0, 2, 1)), rtol=1e-6
    )
    assert classifier.clone().estimator.get_params() == small().get_params()
    hollow = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x)
    assert (classifier.predict(hollow) == y).mean() > 0.8


def test_a_forecaster_of_sktime():
    pytest.importorskip("sktime")
    import pandas as pd

    from tauflow.compat.sktime import SktimeForecaster

    index = pd.period_range("2020-01", periods=60, freq="M")
    y = pd.Series(np.sin(np.arange(60) * np.pi / 6), index=index, name="v")
    model = SequenceForecaster(model="gru", hidden_size=8, epochs=2, random_state=0)
    forecaster = SktimeForecaster(model).fit(y, fh=[1, 3, 6])
    predictions = forecaster.predict()
    assert list(predictions.index) == list(
        pd.PeriodIndex(["2025-01", "2025-03", "2025-06"], freq="M")
    )
    expected = model.set_params(horizon=6).fit(y.to_numpy()[:, None]).predict(y.to_numpy()[:, None])
    np.testing.assert_allclose(predictions.to_numpy().ravel(), expected[[0, 2, 5], 0], rtol=1e-6)
    with pytest.raises(NotImplementedError, match="in-sample"):
        SktimeForecaster(model).fit(y, fh=[0, 1])


@pytest.mark.parametrize("update_params", [False, True])
def test_a_forecaster_of_sktime_goes_on_from_new_data(update_params):
    pytest.importorskip("sktime")
    import pandas as pd

    from tauflow.compat.sktime import SktimeForecaster

    y = pd.Series(np.sin(np.arange(50) * np.pi / 6) + 0.05 * np.arange(50))
    model = SequenceForecaster(model="gru", hidden_size=4, epochs=1, random_state=0)
    forecaster = SktimeForecaster(model).fit(y[:40], fh=[1, 2])
    forecaster.update(y[40:45], update_params=False)
    predictions = forecaster.update(y[45:], update_params=update_params).predict()
    columns = y.to_numpy()[:, None]
    model.set_params(horizon=2).fit(columns if update_params else columns[:40])
    assert list(predictions.index) == [50, 51]
    np.testing.assert_allclose(predictions.to_numpy(), model.predict(columns).ravel(), rtol=1e-6)


def test_a_classifier_of_aeon_takes_unequal_lengths():
    pytest.importorskip("aeon")
    from tauflow.compat.aeon import AeonClassifier

    x, y = labelled()
    series = [array[:, : 5 + i % 4] for i, array in enumerate(x)]
    classifier = AeonClassifier(small()).fit(series, y)
    model = small().fit([array.T for array in series], y)
    assert list(classifier.predict(series)) == list(model.predict([array.T for array in series]))
    assert classifier.predict_proba(x).shape == (24, 2)  # of equal length


def test_a_module_of_torchrl_steps_as_it_runs():
    pytest.importorskip("torchrl")
    from tensordict import TensorDict
    from torchrl.modules import set_recurrent_mode

    from tauflow.compat.torchrl import RecurrentModule

    torch.manual_seed(0)
    rnn = tauflow.CfC(3, 4)
    module = RecurrentModule(rnn, dt="dt")
    x, dt = torch.randn(2, 6, 3), torch.rand(2, 6, 1)
    start = torch.zeros(2, 6, 1, dtype=torch.bool)
    start[:, 0] = start[1, 3] = True
    state = torch.zeros(2, 6, rnn.state_size)
    steps = TensorDict(
        {"observation": x, "dt": dt, "is_init": start, "recurrent_state": state}, [2, 6]
    )
    with set_recurrent_mode(True):
        module(steps)
    y, h = rnn(x, dt=dt, episode_start=start.squeeze(-1))
    torch.testing.assert_close(steps["embedding"], y)
    torch.testing.assert_close(steps["next", "recurrent_state"][:, -1], h)
    now = torch.zeros(2, rnn.state_size)
    for k in range(6):
        step = TensorDict(
            {
                "observation": x[:, k],
                "dt": dt[:, k],
                "is_init": start[:, k],
                "recurrent_state": now,
            },
            [2],
        )
        module(step)
        now = step["next", "recurrent_state"]
        torch.testing.assert_close(step["embedding"], y[:, k])
    with pytest.raises(ArgumentError, match="of one direction"):
        RecurrentModule(tauflow.CfC(3, 4, bidirectional=True))


def test_a_module_of_torchrl_acts_in_an_environment():
    pytest.importorskip("torchrl")
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.envs import Compose, InitTracker, TransformedEnv
    from torchrl.testing.mocking_classes import ContinuousActionVecMockEnv

    from tauflow.compat.torchrl import RecurrentModule

    env = ContinuousActionVecMockEnv()
    features = env.observation_spec["observation"].shape[-1]
    actions = env.action_spec.shape[-1]
    module = RecurrentModule(tauflow.GRU(features, 5))
    env = TransformedEnv(env, Compose(InitTracker(), module.make_tensordict_primer()))
    head = TensorDictModule(torch.nn.Linear(5, actions), ["embedding"], ["action"])
    rollout = env.rollout(4, TensorDictSequential(module, head), break_when_any_done=False)
    states = rollout["next", "recurrent_state"]
    assert states.shape[-1] == 5
    assert not torch.equal(states[..., 0, :], states[..., -1, :])


@pytest.mark.parametrize(
    ("library", "module", "name", "argument"),
    [
        ("sktime", "tauflow.compat.sktime", "SktimeClassifier", None),
        ("sktime", "tauflow.compat.sktime", "SktimeForecaster", None),
        ("aeon", "tauflow.compat.aeon", "AeonClassifier", None),
        ("torchrl", "tauflow.compat.torchrl", "RecurrentModule", "rnn"),
        ("rsl_rl", "tauflow.compat.rsl_rl", "RecurrentModel", None),
    ],
)
def test_without_the_library_it_says_what_to_install(library, module, name, argument):
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    adapter = getattr(importlib.import_module(module), name)
    assert library not in sys.modules
    package = {"rsl_rl": "rsl-rl-lib"}.get(library, library)
    with pytest.raises(MissingExtraError, match=f"pip install {package}"):
        adapter(tauflow.CfC(2, 3) if argument else None)


def test_a_classifier_of_pyrregular_is_hashable():
    from tauflow.compat.pyrregular import PyrregularClassifier

    classifier = PyrregularClassifier()
    assert {classifier: 1}[classifier] == 1


def test_a_classifier_of_pyrregular_reads_each_series_at_its_times():
    pytest.importorskip("pyrregular")
    import sparse
    import xarray

    from tauflow.compat.pyrregular import PyrregularClassifier

    rng = np.random.default_rng(0)
    y = np.where(np.arange(24) % 2, "up", "down")
    padded = np.full((24, 2, 30), np.nan)
    own_x, own_t = [], []
    seconds = np.cumsum(rng.integers(1, 9, 30))
    for k in range(24):
        times = np.sort(rng.choice(30, 6 + k % 5, replace=False))
        rows = rng.normal(size=(len(times), 2)) + np.array([2.0 if y[k] == "up" else -2.0, 0])
        rows[0, 1] = np.nan
        padded[k][:, times] = rows.T
        own_x.append(rows)
        own_t.append(seconds[times].astype(float))
    start = np.datetime64("2024-05-01", "ns")
    data = xarray.DataArray(
        sparse.COO.from_numpy(padded, fill_value=np.nan),
        dims=["ts_id", "signal_id", "time_id"],
        coords={"time_id": start + seconds.astype("timedelta64[s]")},
    )
    classifier = PyrregularClassifier(small()).fit(data, y)
    model = small().fit(own_x, y, t=own_t)
    np.testing.assert_allclose(
        classifier.predict_proba(data), model.predict_proba(own_x, t=own_t), rtol=1e-3
    )
    assert classifier.score(data, y) > 0.9


def test_without_pyrregular_it_says_what_to_install():
    if importlib.util.find_spec("pyrregular") is not None:
        pytest.skip("pyrregular is installed")
    from tauflow.compat.pyrregular import PyrregularClassifier

    with pytest.raises(MissingExtraError, match="pip install pyrregular"):
        PyrregularClassifier().fit(None, None)


OBSERVED, ACTIONS, ENVS = 3, 2, 4


def make_rsl_model(name="cfc", **options):
    from tensordict import TensorDict

    from tauflow.compat.rsl_rl import RecurrentModel

    torch.manual_seed(0)
    obs = TensorDict({"policy": torch.zeros(ENVS, OBSERVED)}, batch_size=[ENVS])
    groups = {"actor": ["policy"]}
    return RecurrentModel(
        obs, groups, "actor", ACTIONS, hidden_dims=[8], rnn_type=name, rnn_hidden_dim=6, **options
    )


@pytest.mark.parametrize("layers", [1, 2])
def test_a_model_of_rsl_rl_updates_from_the_states_it_acted_with(layers):
    pytest.importorskip("rsl_rl")
    from rsl_rl.storage import RolloutStorage
    from tensordict import TensorDict

    model = make_rsl_model(rnn_num_layers=layers, dt=0.1)
    generator = torch.Generator().manual_seed(0)
    steps = 7
    seen = torch.randn(steps, ENVS, OBSERVED, generator=generator)
    dones = (torch.rand(steps, ENVS, generator=generator) < 0.3).byte()
    first = TensorDict({"policy": seen[0]}, batch_size=[ENVS])
    storage = RolloutStorage("rl", ENVS, steps, first, [ACTIONS])
    model(first)  # so that the rollout begins within episodes
    acted = []
    with torch.inference_mode():
        for k in range(steps):
            obs = TensorDict({"policy": seen[k]}, batch_size=[ENVS])
            move = RolloutStorage.Transition()
            move.observations, move.hidden_states = obs, (model.get_hidden_state(), None)
            acted.append(model(obs))
            move.actions, move.dones = acted[-1], dones[k]
            move.rewards, move.values = torch.zeros(ENVS), torch.zeros(ENVS, 1)
            move.actions_log_prob = torch.zeros(ENVS)
            move.distribution_params = (acted[-1],)
            storage.add_transition(move)
            model.reset(dones[k])
    for batch in storage.recurrent_mini_batch_generator(2, 1):
        again = model(batch.observations, masks=batch.masks, hidden_state=batch.hidden_states[0])
        torch.testing.assert_close(again, batch.actions, rtol=1e-5, atol=1e-6)
        again.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.rnn.parameters())


def test_a_model_of_rsl_rl_restarts_and_refuses():
    pytest.importorskip("rsl_rl")
    from tensordict import TensorDict

    model = make_rsl_model("lstm")
    obs = TensorDict({"policy": torch.randn(ENVS, OBSERVED)}, batch_size=[ENVS])
    begun = model(obs)
    model(obs)
    model.reset(torch.tensor([1, 0, 1, 0]))
    again = model(obs)
    torch.testing.assert_close(again[::2], begun[::2])
    assert not torch.allclose(again[1::2], begun[1::2])
    model.detach_hidden_state(torch.tensor([1, 0, 0, 0]))
    assert model.get_hidden_state().requires_grad
    model.detach_hidden_state()
    assert not model.get_hidden_state().requires_grad
    model.reset()
    torch.testing.assert_close(model(obs), begun)
    with pytest.raises(ArgumentError, match="outputs of 2, expected rnn_hidden_dim=6"):
        make_rsl_model("cfc", rnn_options={"proj_size": 2})
