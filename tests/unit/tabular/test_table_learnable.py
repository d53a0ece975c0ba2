"""What the training split of a table lacks: nothing is learned of it, and it changes no answer."""

import numpy as np
import pandas
import pytest
import torch

import tauflow
from tauflow.data import from_table

IDS = [f"p{number:02d}" for number in range(30)]
SPLIT = {"train": IDS[:20], "valid": IDS[20:25], "test": IDS[25:]}
SAID = {"id": "id", "time": "t", "target": "y", "split": SPLIT}


def visits(**later):
    """Return thirty ids of six rows; ``later`` columns have such values in the test split alone."""
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "id": np.repeat(IDS, 6),
            "t": np.tile(np.arange(6.0), 30),
            "u": rng.normal(size=180),
            "c": rng.choice(["a", "b"], 180),
            "y": rng.normal(size=180),
        }
    )
    for name, value in later.items():
        if name not in frame:
            frame[name] = np.nan if isinstance(value, float) else None
        frame.loc[frame["id"].isin(IDS[25:]), name] = value
    return frame


def network(data):
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.GRU(data.card.input_size, 4), 1)
    return model.eval()


def test_a_category_that_only_other_parts_have_is_no_input():
    data = from_table(visits(c="zz"), **SAID)
    assert data.schema.inputs == ("u", "c=a", "c=b")
    assert data.schema.categories == (("c", ("a", "b")),)
    assert data.schema.unseen == (("c", ("zz",)),)
    assert not data.test.x[..., 1:].any()
    np.testing.assert_array_equal(data.train.x[..., 1:].sum(-1), np.ones((20, 6)))
    (note,) = [note for note in data.card.notes if "lacks" in note]
    assert "'c'" in note
    assert note.endswith(": zz.")


def test_such_a_category_is_predicted_from_as_it_was_tested(tmp_path):
    frame = visits(c="zz")
    data = from_table(frame, **SAID)
    predictor = tauflow.Predictor.from_data(network(data), data)
    predictor.save(tmp_path / "p.safetensors")
    test = frame[frame["id"].isin(IDS[25:])].drop(columns="y")
    for reader in (predictor, tauflow.load_predictor(tmp_path / "p.safetensors")):
        predicted = reader.predict(test).iloc[:, -1].to_numpy()
        with torch.no_grad():
            wanted = data.schema.unscale(network(data)(data.test.x, dt=data.test.dt)[0])
        np.testing.assert_allclose(predicted, wanted.numpy().ravel(), rtol=1e-4)
        with pytest.raises(tauflow.errors.DataError, match="holds 'new', a category"):
            reader.predict(test.assign(c="new"))


@pytest.mark.parametrize("split_by", ["id", "time"])
def test_a_category_of_the_last_rows_alone(split_by):
    frame = visits()
    options = {**SAID, "split": (0.5, 0.25, 0.25), "split_by": split_by}
    plain = from_table(frame, **options)
    place = frame["t"] == 5.0 if split_by == "time" else frame["id"].isin(plain.schema.ids["test"])
    frame.loc[place, "c"] = "zz"
    assert from_table(frame, **options).schema.unseen == (("c", ("zz",)),)


@pytest.mark.parametrize(
    "column", [{"e": 1.5}, {"e": "text"}, {"e": 1e30}], ids=["number", "text", "large"]
)
def test_a_feature_without_a_value_in_the_training_part_is_left_out(column):
    frame = visits(**column)
    data, plain = from_table(frame, **SAID), from_table(visits(), **SAID)
    assert data.schema.inputs == plain.schema.inputs
    assert data.schema.features == plain.schema.features
    assert data.test.observed is None
    assert torch.equal(data.test.x, plain.test.x)
    (note,) = [note for note in data.card.notes if "left out of the features" in note]
    assert note.startswith("Warning: no value in the training split")
    assert note.endswith(": e.")
    predictor = tauflow.Predictor.from_data(network(data), data)
    new = frame.drop(columns="y")
    pandas.testing.assert_frame_equal(
        predictor.predict(new), predictor.predict(new.drop(columns="e"))
    )


def test_other_values_of_a_constant_are_ignored_with_a_warning():
    frame = visits().assign(k=2.5, one="only")
    data = from_table(frame, **SAID)
    assert data.schema.inputs == ("u", "k", "c=a", "c=b", "one=only")
    held = [data.schema.inputs.index(name) for name in ("k", "one=only")]
    assert not data.train.x[..., held].any()
    predictor = tauflow.Predictor.from_data(network(data), data)
    new = frame.drop(columns="y")
    before = predictor.predict(new)
    with pytest.warns(UserWarning, match=r"constant in training are ignored: 'k' \(2.5\)"):
        after = predictor.predict(new.assign(k=1e6))
    pandas.testing.assert_frame_equal(after, before)


@pytest.mark.thorough
def test_a_constant_is_held_in_what_is_exported(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    frame = visits().drop(columns="c").assign(k=2.5, serial=1234567890123456789)
    data = from_table(frame, **SAID)
    model, labels = network(data), tauflow.export.IOSchema.from_data(data)
    tauflow.export.to_onnx(model, tmp_path / "m.onnx", fixed_dt=1.0, schema=labels, scaled=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    with torch.no_grad():
        wanted = data.schema.unscale(model(data.test.x[:1], dt=1.0)[0]).numpy()
    rows_of_id = frame[frame["id"] == data.schema.ids["test"][0]]
    start = np.zeros((1, model.rnn.state_size), np.float32)
    for k in (2.5, 1e6):
        x = rows_of_id.assign(k=k)[["u", "k", "serial"]].to_numpy(np.float32)[None]
        predicted = {"x": x, "mask": np.ones((1, 6), np.bool_), "h_in": start}
        np.testing.assert_allclose(session.run(["y"], predicted)[0], wanted, atol=1e-4)
