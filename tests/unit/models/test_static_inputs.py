"""Static inputs that the head reads beside the output of the body."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import linear

import tauflow
from tauflow.data import from_table
from tauflow.errors import ArgumentError, OptionError
from tauflow.estimators import SequenceRegressor
from tauflow.models import SequenceModel, StaticInputs
from tauflow.models.spec import ModelSpec, build_model


def visits(count=60):
    rng, rows = np.random.default_rng(0), []
    for who in range(count):
        age, ward = rng.normal(60, 10), "ns"[who % 2]
        for hour in range(4):
            rows.append((who, hour, rng.normal(), age if hour == 0 else np.nan, ward, age / 10))
    return pd.DataFrame(rows, columns=["who", "hour", "x", "age", "ward", "y"])


SAID = {"id": "who", "time": "hour", "static": ["age", "ward"]}


@pytest.mark.parametrize("per_step", [False, True])
def test_the_head_reads_the_output_of_the_body_and_the_static_inputs(per_step):
    torch.manual_seed(0)
    rnn = tauflow.GRU(3, 4, return_sequences=per_step)
    model = SequenceModel(StaticInputs(rnn, [2, 0]), 2)
    x, lengths = torch.randn(5, 6, 3), torch.tensor([6, 5, 1, 3, 2])
    x[..., [0, 2]] = x[:, :1, [0, 2]]
    prediction, h = model(x, lengths=lengths)
    y, expected_h = rnn(x, lengths=lengths)
    weight, bias = model.head.weight, model.head.bias
    static = x[..., [2, 0]] if per_step else x[:, 0, [2, 0]]
    expected = linear(y, weight[:, :4], bias) + linear(static, weight[:, 4:])
    torch.testing.assert_close(prediction, expected)
    torch.testing.assert_close(h, expected_h)


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("masks", ["lengths", "mask"])
def test_padding_and_missing_values_do_not_reach_the_head(per_step, masks):
    """Sequence 0 has its static input at step 1 first, 1 is padded, 2 lacks it altogether."""
    model = StaticInputs(tauflow.GRUD(3, 4, return_sequences=per_step), [1])
    x, lengths = torch.randn(3, 5, 3), torch.tensor([5, 2, 4])
    x[..., 1] = torch.tensor([7.0, 8.0, 9.0])[:, None]
    x[0, 0, 1] = x[0, 2:, 1] = x[2, :, 1] = torch.nan
    x[1, 2:] = x[2, 4:] = torch.nan
    masked = {"mask": torch.arange(5) < lengths[:, None], "lengths": lengths}
    y = model(x, **{masks: masked[masks]})[0][..., 4]
    expected = torch.tensor([[0.0, 7, 7, 7, 7], [8, 8, 8, 8, 8], [0, 0, 0, 0, 0]])
    assert torch.equal(y, expected if per_step else expected[:, -1])
    assert torch.equal(model(x[0])[0][..., 4], y[0])


def test_what_was_not_measured_says_observed_and_an_episode_has_static_inputs_of_its_own():
    x, seen = torch.full((1, 6, 2), 5.0), torch.ones(1, 6, 2, dtype=torch.bool)
    seen[0, [0, 4], 0] = False
    start = torch.tensor([[True, False, False, True, True, False]])
    model = StaticInputs(tauflow.GRUD(2, 4), [0])
    y, _ = model(x, observed=seen, episode_start=start)
    assert y[0, :, 4].tolist() == [0, 5, 5, 5, 0, 5]


def test_a_table_says_which_inputs_are_static_texts_too():
    data = from_table(visits(), **SAID, target="y")
    names = [data.schema.inputs[place] for place in data.card.static_inputs]
    assert names == ["age", *(name for name in data.schema.inputs if "ward" in name)]
    assert len(names) == 3
    spec = ModelSpec("gru", 4, options={"static_to_head": True})
    model = build_model(spec, data.card)
    assert model.head.in_features == 4 + 3
    plain = from_table(visits(), id="who", time="hour", target="y", features=["x"])
    with pytest.raises(OptionError, match=r"static_to_head is for data with static inputs"):
        build_model(spec, plain.card)
    with pytest.raises(ArgumentError, match="static_to_head"):
        build_model(ModelSpec("gru", 4, options={"static_to_head": "no"}), data.card)


def test_an_estimator_learns_from_it_what_is_static_and_keeps_it(tmp_path):
    table = visits()
    options = {"hidden_size": 4, "epochs": 30, "lr": 0.02, "random_state": 0, "ensemble": 1}
    regressor = SequenceRegressor(model="gru", options={"static_to_head": True}, **options)
    regressor.fit(table, "y", **SAID)
    assert isinstance(regressor.module_.rnn, StaticInputs)
    assert regressor.score(table, "y") > 0.9
    regressor.save(tmp_path / "e.safetensors")
    again = SequenceRegressor.load(tmp_path / "e.safetensors")
    np.testing.assert_array_equal(again.predict(table), regressor.predict(table))


def test_a_predictor_of_a_table_keeps_it(tmp_path):
    data = from_table(visits(), **SAID, target="y", missing="inputs")
    model = build_model(ModelSpec("cfc", 4, options={"static_to_head": True}), data.card)
    predictor = tauflow.Predictor.from_data(model, data)
    predictor.save(tmp_path / "p.safetensors")
    new = visits().drop(columns="y")
    again = tauflow.load_predictor(tmp_path / "p.safetensors")
    assert again.predict(new).equals(predictor.predict(new))


def test_bodies_and_inputs_that_do_not_fit_are_refused():
    rnn = tauflow.GRU(3, 4)
    for places in ([], [3], [-1]):
        with pytest.raises(ArgumentError, match="numbers of inputs below 3"):
            StaticInputs(rnn, places)
    with pytest.raises(ArgumentError, match="its own head"):
        StaticInputs(tauflow.models.RNNVAE(3, 4), [0])
    rnn_with_loss = tauflow.GRU(3, 4)
    rnn_with_loss.training_loss = print
    with pytest.raises(ArgumentError, match="its own loss"):
        StaticInputs(rnn_with_loss, [0])
    packed = torch.nn.utils.rnn.pack_sequence([torch.randn(4, 3)])
    with pytest.raises(ArgumentError, match="padded sequences"):
        StaticInputs(rnn, [0])(packed)
