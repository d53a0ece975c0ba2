import hashlib
import json
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pandas
import pytest
import torch

import tauflow
from tauflow.cells import ElmanCell
from tauflow.errors import (
    ArgumentError,
    DataNotFoundError,
    ExportError,
    MissingExtraError,
    UnknownNameError,
)
from tauflow.export import IOSchema, exported_initial_state, onnx_files, to_c, to_onnx, to_program
from tauflow.models import SequenceModel

LABELS = IOSchema("hour", ["pulse", "oxygen"], ["risk"], [60.0, 90.0], [10.0, 2.0], [1.0], [0.5])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    torch.manual_seed(0)
    model = SequenceModel(tauflow.GNODE(2, 4, initial_state="affine"), 1).eval()
    path = tmp_path_factory.mktemp("onnx") / "risk.onnx"
    return model, to_onnx(model, path, schema=LABELS)


def session_of(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_a_file_runs_with_other_sizes(written):
    model, file = written
    session = session_of(file.path)
    shapes = {value.name: value.shape for value in session.get_inputs()}
    assert shapes == {
        "x": ["batch", "time", 2],
        "dt": ["batch", "time"],
        "mask": ["batch", "time"],
        "h_in": ["batch", 4],
    }
    assert [value.name for value in session.get_outputs()] == ["y", "h_out"]
    metadata = json.loads(file.metadata_path.read_text())
    for B, T in ((1, 1), (5, 30)):
        x, dt, mask = torch.randn(B, T, 2), torch.rand(B, T), torch.rand(B, T) > 0.3
        mask[:, 0] = True
        h = exported_initial_state(metadata, x[:, 0])
        expected = model(x, dt=dt, mask=mask)
        feed = {"x": x, "dt": dt, "mask": mask, "h_in": h}
        results = session.run(None, {name: tensor.numpy() for name, tensor in feed.items()})
        for ours, theirs in zip(results, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=0, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.sampled(5)
@pytest.mark.parametrize("mask", [True, False])
def test_a_model_of_both_directions_runs_with_other_sizes(mask, tmp_path):
    torch.manual_seed(3)
    model = SequenceModel(tauflow.LTC(3, 5, bidirectional=True, substeps=2), 2).eval()
    session = session_of(to_onnx(model, tmp_path / "both.onnx", mask=mask).path)
    x, dt, h = torch.randn(4, 9, 3), torch.rand(4, 9), torch.zeros(4, 10)
    inputs = {"x": x, "dt": dt}
    if mask:
        inputs["mask"] = torch.rand(4, 9) > 0.4
    feed = {name: value.numpy() for name, value in {**inputs, "h_in": h}.items()}
    y, last = (torch.from_numpy(out) for out in session.run(["y", "h_out"], feed))
    torch.testing.assert_close((y, last), model(**inputs), rtol=1e-5, atol=1e-5)


class Bessel(ElmanCell):
    """A cell with a function of its state for which ONNX has no operator."""

    def step(self, x, h, dt):
        return torch.special.i0e(super().step(x, h, dt))


@pytest.mark.thorough
@pytest.mark.sampled(9)
@pytest.mark.parametrize("form", ["sequence", "step"])
def test_what_has_no_operator_is_named(tmp_path, form):
    with pytest.raises(ExportError, match="graph: No ONNX function found for"):
        to_onnx(tauflow.RNN(Bessel(2, 4)).eval(), tmp_path / "e.onnx", mode=form)
    assert not list(tmp_path.iterdir())


def constant_nodes(graph):
    """Return the operators of a graph that read nothing but constants."""
    constants, types = {tensor.name for tensor in graph.initializer}, []
    for node in graph.node:
        if all(name in constants for name in node.input):
            types.append(node.op_type)
            constants |= {*node.output}
    return types


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("name", "options"), [("cfc", {}), ("ct-rnn", {"damping": 0.3})])
def test_numbers_keep_their_digits_in_double_precision(tmp_path, name, options):
    model = tauflow.build(name, 2, 3, **options).double()
    to_onnx(model, tmp_path / "model.onnx", mode="step", tolerance=1e-12)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("name", "form"), [("exprnn", "sequence"), ("lipschitz-rnn", "step")])
def test_what_only_parameters_enter_is_computed_beforehand(tmp_path, name, form):
    model = tauflow.build(name, 2, 96).eval()  # too large for the exporter to do so by itself
    graph = onnx.load(to_onnx(model, tmp_path / "m.onnx", mode=form).path).graph
    assert set(constant_nodes(graph)) <= {"Constant"}


def test_the_description_says_what_one_must_know(written):
    file = written[1]
    metadata = json.loads(file.metadata_path.read_text())
    assert metadata["sha256"] == hashlib.sha256(file.path.read_bytes()).hexdigest()
    assert (metadata["cell"], metadata["state_size"], metadata["opset"]) == ("GNODECell", 4, 20)
    assert metadata["labels"]["time_unit"] == "hour"
    assert metadata["labels"]["inputs"] == ["pulse", "oxygen"]
    assert not metadata["scaling_inside"]
    assert metadata["state"][0]["parts"] == {"h": 4}
    assert tauflow.export.from_config(metadata["model"]).rnn.cell.state_size == 4
    inside = {p.key: p.value for p in onnx.load(file.path).metadata_props}
    assert json.loads(inside["tauflow"])["labels"] == metadata["labels"]
    assert "of 17 steps (tolerance 1e-05)" in str(file.parity)
    assert "over 1 irregular sequence of 1 step (" in str(
        replace(file.parity, sequences=1, steps=1)
    )


def test_nothing_of_the_makers_machine_is_in_a_file(written):
    for word in (b"site-packages", b".py"):
        assert word not in written[1].path.read_bytes()


def test_a_robots_step_with_the_scales_inside(tmp_path):
    torch.manual_seed(0)
    model = SequenceModel(tauflow.CfC(2, 3, backbone_layers=0), 1).eval()
    file = to_onnx(
        model,
        tmp_path / "r.onnx",
        mode="step",
        names="robot",
        fixed_dt=0.25,
        schema=LABELS,
        scaled=True,
    )
    session = session_of(file.path)
    assert [value.name for value in session.get_inputs()] == ["obs", "h_in"]
    assert [value.name for value in session.get_outputs()] == ["actions", "h_out"]
    raw = torch.tensor([[72.0, 95.0]])
    scaled = (raw - torch.tensor([60.0, 90.0])) / torch.tensor([10.0, 2.0])
    y, h = model(scaled[:, None], dt=0.25)
    results = session.run(None, {"obs": raw.numpy(), "h_in": torch.zeros(1, 3).numpy()})
    torch.testing.assert_close(torch.from_numpy(results[0]), y[:, 0] * 0.5 + 1.0)
    torch.testing.assert_close(torch.from_numpy(results[1]), h)


def test_a_difference_leaves_no_file(tmp_path, monkeypatch):
    runner = onnx_files.make_onnx_runner

    def wrong(*args, **options):
        run = runner(*args, **options)
        return lambda inputs: tuple(value + 1e-3 for value in run(inputs))

    monkeypatch.setattr(onnx_files, "make_onnx_runner", wrong)
    with pytest.raises(ExportError, match="differs from the model by"):
        to_onnx(tauflow.Elman(2, 3), tmp_path / "e.onnx", mode="step")
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_refused(tmp_path):
    rnn = tauflow.Elman(2, 3)
    with pytest.raises(DataNotFoundError, match="there is no folder"):
        to_onnx(rnn, tmp_path / "none" / "e.onnx")
    with pytest.raises(DataNotFoundError, match="it is a folder"):
        to_onnx(rnn, tmp_path)
    with pytest.raises(UnknownNameError, match="mode='stepp'"):
        to_onnx(rnn, tmp_path / "e.onnx", mode="stepp")
    with pytest.raises(ArgumentError, match="opset must be at least 18"):
        to_onnx(rnn, tmp_path / "e.onnx", opset=9)
    with pytest.raises(ArgumentError, match="no scales are known"):
        to_onnx(rnn, tmp_path / "e.onnx", scaled=True)
    with pytest.raises(ArgumentError, match="inputs has 3 entries, but the model has 2 inputs"):
        to_onnx(rnn, tmp_path / "e.onnx", schema=IOSchema(inputs=["a", "b", "c"]))
    with pytest.raises(ArgumentError, match="name of its description"):
        to_onnx(rnn, tmp_path / "e.json", mode="step")
    with pytest.raises(ArgumentError, match="x_scale must hold finite numbers, none of them 0"):
        IOSchema(x_mean=[0.0], x_scale=[0.0])
    with pytest.raises(ArgumentError, match="of one length, or neither"):
        IOSchema(x_mean=[0.0])
    for values in (0.0, [None], [[1.0]], "a", [np.nan]):
        with pytest.raises(ArgumentError, match="x_mean must hold finite numbers, in a list"):
            IOSchema(x_mean=values, x_scale=[1.0])
    for names in ("ab", [1, 2], None):
        with pytest.raises(ArgumentError, match="inputs must be a list of names"):
            IOSchema(inputs=names)
    with pytest.raises(ArgumentError, match="time_unit must be a text"):
        IOSchema(time_unit=None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_a_description_of_another_file_is_not_written_over(tmp_path):
    rnn = tauflow.Elman(2, 3).eval()
    first = to_onnx(rnn, tmp_path / "m.onnx", mode="step")
    before = first.metadata_path.read_bytes()
    with pytest.raises(ExportError, match=r"cannot write m\.pt2: m\.json, .*describes m\.onnx\."):
        to_program(rnn, tmp_path / "m.pt2", mode="step")
    with pytest.raises(ExportError, match=r"cannot write m\.c: m\.json, .*describes m\.onnx\."):
        to_c(rnn, tmp_path, name="m")
    assert first.metadata_path.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.json", "m.onnx"]
    again = to_onnx(rnn, tmp_path / "m.onnx", mode="step", fixed_dt=0.5)  # itself, again
    assert json.loads(again.metadata_path.read_text())["gap"] == 0.5
    to_c(rnn, tmp_path / "c", name="m")
    to_c(rnn, tmp_path / "c", name="m", fixed_dt=1.0)
    with pytest.raises(ExportError, match=r"describes m\.c\. Choose another name"):
        to_onnx(rnn, tmp_path / "c" / "m.onnx", mode="step")


@pytest.mark.parametrize("text", ["{}", "[1]", "no JSON", '{"format": "another"}', "\u00ff"])
def test_a_json_file_of_someone_elses_is_not_written_over(text, tmp_path):
    (tmp_path / "m.json").write_text(text, encoding="latin-1")
    with pytest.raises(ExportError, match=r"m\.json.* is no description by tauflow\. Choose"):
        to_onnx(tauflow.Elman(2, 3), tmp_path / "m.onnx", mode="step")
    assert (tmp_path / "m.json").read_text(encoding="latin-1") == text


@pytest.mark.parametrize("missing", ["onnxruntime", "onnx"])
def test_a_library_that_is_missing_is_named(missing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=f"{missing} is not installed.*pip install"):
        to_onnx(tauflow.Elman(2, 3), tmp_path / "e")
    assert list(tmp_path.iterdir()) == []


def test_labels_of_a_table():
    rows = range(24)
    table = {
        "id": [row // 4 for row in rows],
        "t": [float(row % 4) for row in rows],
        "a": [row * 0.5 for row in rows],
        "y": [row**0.5 for row in rows],
    }
    data = tauflow.data.from_table(
        table, id="id", time="t", features=["a"], target="y", task="regression", time_unit="hour"
    )
    labels = IOSchema.from_data(data)
    assert (labels.time_unit, tuple(labels.inputs)) == ("hour", ("a",))
    assert (labels.time_scale, labels.y) == (1.0, "values")
    with pytest.raises(ArgumentError, match="time_scale must be a number above 0"):
        IOSchema(time_scale=0.0)
    torch.testing.assert_close(labels.scaling()[0].float(), data.schema.x_mean.float())


def named(values):
    return pandas.Series(values, index=list("ab")[: len(values)])


@pytest.mark.parametrize("kind", [np.array, torch.tensor, tuple, named])
def test_numbers_of_a_schema_may_be_of_any_kind(kind):
    numbers = {"x_mean": [1, 2], "x_scale": [3.0, 0.5], "y_mean": [0], "y_scale": [2]}
    time_scale = np.float32(60) if kind is np.array else 60
    wrapped = {name: kind(values) for name, values in numbers.items()}
    schema = IOSchema(**wrapped, time_scale=time_scale, inputs=np.array(["a", "b"]))
    assert schema == IOSchema(**numbers, time_scale=60.0, inputs=["a", "b"])
    data = json.loads(json.dumps(schema.to_dict()))
    assert {name: data[name] for name in numbers} == numbers
    assert (data["time_scale"], data["inputs"]) == (60, ["a", "b"])


def missing_some(kind):
    """Return a table with missing values, and a predictor, which need not be trained, for it."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(12), 4)
    table = pandas.DataFrame({"id": ids, "t": np.tile([0.0, 3.0, 6.0, 9.0], 12)})
    table["a"], table["b"] = rng.normal(80, 15, 48), rng.normal(-3, 0.5, 48)
    table.loc[rng.random(48) < 0.3, "a"] = np.nan
    table["y"] = table["id"] % 3
    kind_of_missing = "observed" if kind is tauflow.GRUD else "inputs"
    data = tauflow.data.from_table(table, id="id", time="t", target="y", missing=kind_of_missing)
    torch.manual_seed(0)
    body = kind(data.card.input_size, 5, return_sequences=False)
    predictor = tauflow.Predictor.from_data(SequenceModel(body, 3).eval(), data)
    return table, predictor


@pytest.mark.thorough
@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", [tauflow.GRUD, tauflow.GRU])
def test_a_missing_value_is_nan_as_for_a_predictor(kind, tmp_path):
    table, predictor = missing_some(kind)
    labels = IOSchema.from_data(predictor)
    file = to_onnx(predictor.model, tmp_path / "m.onnx", schema=labels, scaled=True, mask=False)
    x = torch.from_numpy(table[["a", "b"]].to_numpy(np.float32)).reshape(12, 4, 2)
    there, h = ~x.isnan(), torch.zeros(12, predictor.model.rnn.state_size)
    feed = {"x": x, "dt": torch.tensor([[0.0, 3.0, 3.0, 3.0]] * 12) / labels.time_scale, "h_in": h}
    if kind is tauflow.GRUD:
        feed["observed"] = there
        feed["h_in"] = predictor.model.rnn.cell.initial_state(torch.zeros(12, 2))
    else:  # "a measured" is an input
        feed["x"] = torch.cat([x, there[..., :1]], dim=-1)
    session = session_of(file.path)
    y, _ = session.run(None, {name: value.detach().numpy() for name, value in feed.items()})
    expected = predictor.predict_proba(table)[["0", "1", "2"]].to_numpy()
    np.testing.assert_allclose(torch.from_numpy(y).softmax(-1).numpy(), expected, atol=1e-5)
    metadata_labels = json.loads(file.metadata_path.read_text())["labels"]
    assert (metadata_labels["time_scale"], metadata_labels["y"]) == (3.0, "logits")


def test_parameters_that_are_no_numbers_are_refused(tmp_path):
    rnn = tauflow.Elman(2, 3)
    with torch.no_grad():
        next(rnn.parameters())[0, 0] = float("nan")
    with pytest.raises(ExportError, match="holds a number that is not finite"):
        to_onnx(rnn, tmp_path / "e.onnx")
