import json

import pytest
import torch

import tauflow
from tauflow.data import from_table


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    tauflow.save(tauflow.Elman(2, 3), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_a_step_as_onnx(call, saved, tmp_path):
    options = (
        "--time-unit",
        "s",
        "--inputs",
        "angle,speed",
        "--names",
        "robot",
        "--fixed-dt",
        "0.1",
    )
    result = call("export", saved, "--to", "onnx-step", "--out", tmp_path / "m.onnx", *options)
    assert "m.onnx and m.json: at most" in result.output
    metadata = json.loads((tmp_path / "m.json").read_text())
    assert metadata["labels"]["inputs"] == ["angle", "speed"]
    assert list(metadata["inputs"]) == ["obs", "h_in"]


def test_a_program_of_one_step(call, saved, tmp_path):
    call("export", saved, "--to", "program-step", "--out", tmp_path / "m.pt2")
    run = torch.export.load(tmp_path / "m.pt2").module()
    y, h = run(x=torch.randn(4, 2), dt=torch.ones(4), h_in=torch.zeros(4, 3))
    assert torch.equal(y, h)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("to", ["onnx-step", "program-step", "c"])
def test_the_tolerance_is_that_of_the_option(call, saved, tmp_path, to):
    words = ("export", saved, "--to", to, "--out", tmp_path / ("m" if to == "c" else "m.out"))
    assert "(tolerance 0.5)" in call(*words, "--tolerance", 0.5).output


def predictor_of_a_table():
    """Return a predictor, which need not be trained, its table and its data."""
    pd = pytest.importorskip("pandas")
    rows = [(f"s{i}", 3.0 * k, 100.0 + 7 * i + k, 0.01 * i) for i in range(12) for k in range(4)]
    frame = pd.DataFrame(rows, columns=["who", "minute", "pressure", "flow"])
    data = from_table(frame, id="who", time="minute", target="flow", task="regression")
    torch.manual_seed(0)
    body = tauflow.Elman(data.card.input_size, 3, return_sequences=False)
    return tauflow.Predictor.from_data(tauflow.SequenceModel(body, 1), data), frame, data


def test_a_run_is_exported_with_its_names_and_in_its_units(call, tmp_path):
    predictor, frame, data = predictor_of_a_table()
    predictor.save(tmp_path / "predictor.safetensors")
    call("export", tmp_path, "--to", "program-step", "--out", tmp_path / "m.pt2", "--scaled")
    metadata = json.loads((tmp_path / "m.json").read_text())
    assert metadata["labels"]["inputs"] == ["pressure"]
    assert metadata["labels"]["time_unit"] == data.card.time_unit
    run = torch.export.load(tmp_path / "m.pt2").module()
    (tmp_path / "predictor.safetensors").rename(tmp_path / "flow.safetensors")
    again = ("--to", "program-step", "--out", tmp_path / "again.pt2", "--scaled")
    call("export", tmp_path / "flow.safetensors", *again)  # whatever its file is called
    assert json.loads((tmp_path / "again.json").read_text())["labels"] == metadata["labels"]
    h = torch.zeros(1, 3)
    for pressure in (100.0, 101.0, 102.0, 103.0):
        y, h = run(x=torch.tensor([[pressure]]), dt=torch.ones(1), h_in=h)
    expected = predictor.predict(frame[frame.who == "s0"])["flow"]
    assert float(y) == pytest.approx(float(expected.iloc[0]), rel=1e-5)


@pytest.mark.parametrize(
    ("option", "known"),
    [
        (("--time-unit", "fortnight"), "--time-unit: the run knows that itself, '3 minutes'"),
        (("--inputs", "volt"), "--inputs: the run knows that itself, 'pressure'"),
        (("--outputs", "amp"), "--outputs: the run knows that itself, 'flow'"),
    ],
)
def test_what_a_run_knows_itself_is_not_told_otherwise(call, tmp_path, option, known):
    predictor_of_a_table()[0].save(tmp_path / "predictor.safetensors")
    out = ("--to", "program-step", "--out", tmp_path / "m.pt2")
    assert known in " ".join(call("export", tmp_path, *out, *option, code=1).output.split())
    assert not (tmp_path / "m.pt2").exists()


def test_what_is_wrong_is_one_message(call, saved, tmp_path):
    out = ("--out", tmp_path / "m")
    assert "to='onyx' is unknown" in call("export", saved, "--to", "onyx", *out, code=1).output
    assert "does not exist" in call("export", tmp_path / "no", "--to", "c", *out, code=1).output
    assert (
        "identifier of C"
        in call("export", saved, "--to", "c", *out, "--name", "a*/", code=1).output
    )


@pytest.mark.parametrize(
    ("to", "option", "forms"),
    [
        ("program", ("--names", "robot"), "--names is for --to onnx and onnx-step, not program"),
        ("c", ("--names", "tauflow"), "--names is for --to onnx and onnx-step, not c"),
        ("onnx", ("--name", "net"), "--name is for --to c, not onnx"),
        ("onnx-step", ("--no-mask",), "--no-mask are for --to onnx and program, not onnx-step"),
        ("program-step", ("--mask",), "--no-mask are for --to onnx and program, not program-step"),
        ("c", ("--no-mask",), "--no-mask are for --to onnx and program, not c"),
    ],
)
def test_an_option_that_a_form_does_not_take_is_refused(call, saved, tmp_path, to, option, forms):
    output = call("export", saved, "--to", to, "--out", tmp_path / "m.out", *option, code=1).output
    assert forms in " ".join(output.split())
    assert not (tmp_path / "m.out").exists()


def test_without_a_mask_a_program_takes_none(call, saved, tmp_path):
    call("export", saved, "--to", "program", "--out", tmp_path / "m.pt2", "--no-mask")
    exported = torch.export.load(tmp_path / "m.pt2")
    assert set(exported.graph_signature.user_inputs) == {"x", "dt", "h_in"}


def write_machines(path, ids=6, rows=12):
    lines = ["machine,t,u,force"]
    for number in range(ids):
        for k in range(rows):
            u = 5 + ((7 * k + 3 * number) % 11) / 11
            lines.append(f"m{number},{0.5 * k + 0.2 * (k % 2)},{u},{100 + 10 * u - number}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run_of_a_table(tmp_path_factory):
    pytest.importorskip("pandas")
    from tauflow.runs.run import CsvFile, Run
    from tauflow.runs.task import run_task
    from tauflow.tabular.options import TableOptions
    from tauflow.training import Recipe

    folder = tmp_path_factory.mktemp("run")
    table = write_machines(folder / "train.csv")
    options = TableOptions(id="machine", time="t", target=("force",))
    source, recipe = CsvFile(table, options), Recipe(epochs=1)
    run = run_task(Run(source, "gru", hidden_size=4, recipe=recipe, runs_dir=folder))
    return run, table


def test_integers_are_calibrated_by_a_table(call, run_of_a_table, saved, tmp_path):
    run, table = run_of_a_table
    words = ("--to", "c", "--dtype", "int16", "--scaled", "--out", tmp_path / "own")
    result = call("export", run.directory, *words, "--calibrate", table)
    assert "irregular sequences" in result.output
    integers = json.loads((tmp_path / "own" / "model.json").read_text())["integers"]
    assert integers["x_zero"][0] / 2 ** integers["x_q"][0] == pytest.approx(5.5, abs=0.1)  # raw u
    ticks = round(1e6 * run.data.schema.gap)
    assert f"model_gap(ticks, {ticks}u)" in (tmp_path / "own" / "README.md").read_text()
    for model, more in ((saved, ("--calibrate", table)), (run.directory, ())):
        refused = ("--to", "c", "--dtype", "int8", "--out", tmp_path / "c", *more)
        assert "--calibrate TABLE" in " ".join(
            call("export", model, *refused, code=1).output.split()
        )
    assert not (tmp_path / "c").exists()
