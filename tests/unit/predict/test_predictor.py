"""What a run leaves predicts as the model that was trained, in the words of its table."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

import tauflow
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.data import from_table, load_task
from tauflow.errors import (
    ArgumentError,
    DataError,
    DataNotFoundError,
    ModelFileError,
    TimeError,
    UnknownNameError,
)
from tauflow.predict import Predictor

SAID = {"id": "patient", "time": "hours", "features": ["b"]}
ASKED = {
    "classification": ("predict_proba", {}),
    "regression": ("predict", {}),
    "next-step": ("predict", {"lead_time": 2.0}),
}
ELSEWHERE = """
import json, sys, tauflow
for folder, new, method, said, out in json.loads(sys.argv[1]):
    getattr(tauflow.load_predictor(folder), method)(new, **said).to_csv(out)
"""


@pytest.fixture
def loaded(runs):
    return {task: tauflow.load_predictor(run.directory) for task, run in runs.items()}


@pytest.mark.thorough
@pytest.mark.slow
def test_another_process_predicts_the_same_bits(runs, table, tmp_path):
    pytest.importorskip("pyarrow")
    new = {task: tmp_path / f"new.{'csv' if task == 'next-step' else 'parquet'}" for task in runs}
    inputs = table[["patient", "hours", "a", "b"]]
    inputs.to_csv(new["next-step"], index=False)
    inputs.to_parquet(new["regression"])
    jobs = [
        (str(run.directory), str(new[task]), *ASKED[task], str(tmp_path / task))
        for task, run in runs.items()
    ]
    subprocess.run([sys.executable, "-c", ELSEWHERE, json.dumps(jobs)], check=True)
    for task, run in runs.items():
        method, arguments = ASKED[task]
        here = getattr(run.predictor, method)(new[task], **arguments)
        assert (tmp_path / task).read_text() == here.to_csv()
        assert here.iloc[:, -1].nunique() == len(here)


def test_classes_have_their_names_and_chances_add_up(loaded, table):
    predictor = loaded["classification"]
    predictions = predictor.predict(table.drop(columns="died"))
    assert list(predictions) == ["patient", "died"]
    assert predictions["patient"].tolist() == list(range(20))
    probabilities = predictor.predict_proba(table)
    assert list(probabilities) == ["patient", "no", "yes"]
    assert probabilities[["no", "yes"]].sum(axis=1).tolist() == pytest.approx([1.0] * 20)
    assert predictions["died"].tolist() == probabilities[["no", "yes"]].idxmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("classes", "kind"),
    [
        ((False, True), "bool"),
        ((0, 1), "int64"),
        ((7, 2**70), "object"),
        ((0.5, 2.5), "float64"),
        (("0", "1"), None),
        (("True", "False"), None),
    ],
)
def test_classes_are_what_they_are_in_the_table(classes, kind, table, tmp_path):
    frame = table.assign(died=[classes[number % 2] for number in table["patient"]])
    data = from_table(frame, task="classification", target="died", **SAID)
    before, after = reloaded(data, tmp_path / "p")
    predicted, probabilities = after.predict(frame)["died"], after.predict_proba(frame)
    assert set(predicted) <= set(classes)
    assert kind is None or predicted.dtype == kind
    assert (
        predicted.astype(str).tolist()
        == probabilities[list(data.schema.outputs)].idxmax(1).tolist()
    )
    assert predicted.equals(before.predict(frame)["died"])


def test_files_of_numbers_have_classes_of_numbers(table, tmp_path):
    died = table["patient"] % 2
    for name, values, kind in [("0", died, "int64"), ("f", died == 1, "bool")]:
        table.assign(died=values).to_csv(tmp_path / name, index=False)
        predictor, _ = reloaded(
            from_table(tmp_path / name, target="died", **SAID), tmp_path / f"{name}.p"
        )
        assert predictor.predict(tmp_path / name)["died"].dtype == kind


def test_older_files_say_no_kind_and_give_names(table, tmp_path):
    data = from_table(table.assign(died=table["patient"] % 2), target="died", **SAID)
    torch.manual_seed(0)
    rnn = tauflow.GRU(data.card.input_size, 3, return_sequences=False)
    Predictor.from_data(tauflow.SequenceModel(rnn, 2), data).save(tmp_path / "p")
    tensors, metadata = read_tensor_file(
        tmp_path / "p", "predictor", error=ModelFileError, advice=""
    )
    older = {name: value for name, value in metadata["table"].items() if name != "kind"}
    write_tensor_file(tmp_path / "old", "predictor", tensors, {**metadata, "table": older})
    assert set(tauflow.load_predictor(tmp_path / "old").predict(table)["died"]) <= {"0", "1"}


def test_values_have_the_units_and_times_of_the_table(loaded, runs, table):
    predictions = loaded["regression"].predict(table)
    assert predictions[["patient", "hours"]].equals(table[["patient", "hours"]])
    info, test = runs["regression"].data.schema, runs["regression"].data.test
    with torch.no_grad():
        scaled, _ = runs["regression"].model.eval()(test.x, dt=test.dt, mask=test.mask)
    whose = info.ids["test"]
    mine = predictions[predictions["patient"].astype(str) == whose[0]]["level"].tolist()
    want = scaled[0, : len(mine), 0].double() * info.y_scale + info.y_mean
    assert mine == pytest.approx(want.tolist(), rel=1e-5)
    batch = loaded["regression"].predict(test)
    assert batch[0, : len(mine), 0].tolist() == pytest.approx(mine, rel=1e-6)


def test_the_file_holds_no_ids_and_comes_back_whole(runs, loaded):
    run = runs["classification"]
    info = loaded["classification"].schema
    assert dict(info.ids) == {}
    assert info == replace(run.data.schema, ids={}, groups={})
    assert torch.equal(info.x_scale, run.data.schema.x_scale)
    assert loaded["classification"].card == run.data.card
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(loaded["classification"].model.state_dict()[name], tensor)


def test_batches_of_a_known_data_set_are_answered_too(tmp_path):
    data = load_task("pendulum", sizes=(4, 2, 2), steps=3)
    model = tauflow.SequenceModel(tauflow.GRU(data.card.input_size, 3), data.card.target_size)
    Predictor.from_data(model, data).save(tmp_path / "pendulum.safetensors")
    predictor = tauflow.load_predictor(tmp_path / "pendulum.safetensors")
    with torch.no_grad():
        want, _ = model.eval()(data.test.x, dt=data.test.dt)
    assert torch.equal(predictor.predict(data.test), want)
    with pytest.raises(ArgumentError, match="'pendulum' is no table of your own"):
        predictor.predict({"a": [1.0]})
    with pytest.raises(ArgumentError, match="are values and no classes"):
        predictor.predict_proba(data.test)


@pytest.mark.parametrize("task", ["classify", "binary", "regress"])
@pytest.mark.parametrize("per_step", [False, True])
def test_a_batch_of_no_sequences_has_empty_answers(task, per_step):
    rnn = tauflow.GRU(2, 3, return_sequences=per_step)
    model = tauflow.SequenceModel(rnn, 1 if task == "binary" else 4)
    card = replace(load_task("pendulum", sizes=(4, 2, 2), steps=3).card, task=task)
    batch = tauflow.SequenceBatch(torch.randn(3, 5, 2), torch.zeros(3), dt=torch.ones(3, 5))
    predictor = Predictor(model, card)
    for ask in [predictor.predict] + [predictor.predict_proba] * (task != "regress"):
        some, none = ask(batch), ask(batch[:0])
        assert none.shape == (0, *some.shape[1:])
        assert none.dtype == some.dtype


def test_large_tables_go_through_in_pieces(loaded, table, monkeypatch):
    predictions = loaded["regression"].predict(table)
    monkeypatch.setattr("tauflow.tabular.transform.BATCH_SIZE", 7)
    read = loaded["regression"].read_table(table)
    assert read.plan_batches() == [(0, 7), (7, 14), (14, 20)]
    monkeypatch.setattr("tauflow.tabular.transform._MAX_ELEMENTS", 1)
    pieces = loaded["regression"].predict(table)
    assert pieces["level"].tolist() == pytest.approx(predictions["level"].tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t.drop(columns="b"), UnknownNameError, r"no column 'b' \(feature\)"),
        (lambda t: t.drop(columns="patient"), UnknownNameError, r"no column 'patient' \(id\)"),
        (lambda t: t.iloc[::-1], TimeError, "time runs backwards"),
        (lambda t: t.assign(hours="2024-05-31"), TimeError, "are dates, but numbers in the other"),
        (lambda t: t.assign(b="high"), DataError, r"row 0 .*, column 'b' holds 'high', expected"),
        (lambda t: t.assign(b=float("nan")), ArgumentError, "'b' has missing values, and in the"),
        (lambda t: t.assign(patient=None), DataError, "row 0 .*, column 'patient' is empty"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_name(loaded, table, change, error, message):
    with pytest.raises(error, match=message):
        loaded["classification"].predict(change(table))


def test_what_is_no_predictor(tmp_path, runs):
    folder = runs["classification"].directory
    with pytest.raises(DataNotFoundError, match="which a finished 'tauflow run' leaves"):
        tauflow.load_predictor(tmp_path)
    with pytest.raises(DataNotFoundError, match=f"is a folder of runs.*{folder.name}"):
        tauflow.load_predictor(folder.parent)
    with pytest.raises(DataNotFoundError, match="does not exist"):
        tauflow.load_predictor(tmp_path / "none")
    with pytest.raises(ModelFileError, match="is a weights file, expected a predictor"):
        tauflow.load_predictor(folder / "best.safetensors")
    with pytest.raises(DataNotFoundError, match=r"that of a run: tauflow.load_predictor"):
        tauflow.load(folder)
    with pytest.raises(ModelFileError, match=r"expected a model. tauflow.load_predictor reads it"):
        tauflow.load(folder / "predictor.safetensors")
    with pytest.raises(ModelFileError, match=r"load_predictor\(its folder\)"):
        tauflow.load(folder / "best.safetensors")
    write_tensor_file(tmp_path / "new", "predictor", {}, {"version": 4})
    with pytest.raises(ModelFileError, match="of version 4, and this tauflow reads up to 3"):
        tauflow.load_predictor(tmp_path / "new")
    write_tensor_file(tmp_path / "odd", "predictor", {}, {"version": 1, "card": {"name": 3}})
    with pytest.raises(ModelFileError, match="is damaged, or from another version"):
        tauflow.load_predictor(tmp_path / "odd")


def test_a_model_that_takes_observed_is_told(table, tmp_path):
    data = from_table(table, id="patient", time="hours", target="died", features=["a", "b"])
    rnn = tauflow.GRUD(2, 3, return_sequences=False)
    predictor = Predictor.from_data(tauflow.SequenceModel(rnn, 2), data)
    predictor.save(tmp_path / "p.safetensors")
    again = tauflow.load_predictor(tmp_path / "p.safetensors")
    assert again.observed
    assert again.predict_proba(table).equals(predictor.predict_proba(table))


def reloaded(data, path):
    torch.manual_seed(0)
    rnn = tauflow.GRU(data.card.input_size, 3, return_sequences=data.card.per_step)
    predictor = Predictor.from_data(tauflow.SequenceModel(rnn, data.card.target_size), data)
    predictor.save(path)
    return predictor, tauflow.load_predictor(path)


def test_long_tables_with_categories_are_read_alike_again(table, tmp_path):
    frame = table.assign(ward=["east" if row % 3 else "west" for row in range(len(table))])
    options = {"id": "patient", "time": "hours", "target": "died", "missing": "inputs"}
    wide = from_table(frame, features=["b", "ward"], **options)
    before, after = reloaded(wide, tmp_path / "wide")
    assert after.predict_proba(frame).equals(before.predict_proba(frame))
    with pytest.raises(DataError, match=r"'ward' holds 'north', a category .* Known are: east, we"):
        after.predict(frame.assign(ward="north"))
    long = table.melt(["patient", "hours", "died"], ["a", "b"]).dropna()
    before, after = reloaded(
        from_table(long, long=["variable", "value"], **options), tmp_path / "l"
    )
    new = long.drop(columns="died")
    assert after.predict_proba(new).equals(before.predict_proba(long))
    assert after.predict_proba(new)["yes"].nunique() == 20


def test_a_forecast_of_dates_says_the_date_that_it_is_for(table, tmp_path):
    when = pandas.Timestamp("2024-05-31") + pandas.to_timedelta(table["hours"], unit="h")
    dated = table.assign(when=when.dt.round("s"))
    data = from_table(dated, id="patient", time="when", features=["b"])
    _, predictor = reloaded(data, tmp_path / "p")
    predictions = predictor.predict(dated, lead_time=1.5)
    mine = predictions[predictions["patient"] == 3]
    assert mine["when predicted"][:-1].tolist() == mine["when"][1:].tolist()
    assert mine["when predicted"].iloc[-1] - mine["when"].iloc[-1] == pandas.Timedelta("90min")
    texts = dated.assign(when=dated["when"].dt.strftime("%Y-%m-%dT%H:%M:%S"))
    dates = predictor.predict(texts, lead_time=1.5)["when predicted"]
    assert pandas.to_datetime(dates).tolist() == predictions["when predicted"].tolist()


@pytest.mark.parametrize("dtype", ["uint64", "int64"])
def test_a_forecast_of_whole_times_keeps_their_digits(dtype):
    start = 1_700_000_000_000_000_001
    times = [start + 7 * step + step % 3 for step in range(6)]
    draw = np.random.default_rng(0)
    frame = pandas.DataFrame({"id": np.repeat(np.arange(20), 6), "ns": np.tile(times, 20)})
    frame = frame.astype({"ns": dtype}).assign(a=draw.normal(size=120))
    data = from_table(frame, id="id", time="ns", features=["a"])
    model = tauflow.SequenceModel(tauflow.GRU(len(data.schema.inputs), 4), 1)
    predictions = Predictor.from_data(model, data).predict(frame, lead_time=10)
    ahead = predictions["ns predicted"]
    assert [int(time) for time in ahead[:6]] == [*times[1:], times[-1] + 10]
    assert ahead.dtype == dtype
