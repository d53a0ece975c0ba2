"""A model takes tables in other forms than the one that it learned from."""

import pandas
import pytest
import torch

import tauflow
from tauflow.data import from_table, read_csv
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow.predict import Predictor
from tauflow.tabular.transform import transform

pytest.importorskip("pyarrow")
SAID = {"id": "patient", "time": "hours", "target": "level"}


@pytest.fixture
def visits():
    rows = range(60)
    frame = pandas.DataFrame({"patient": [f"p{row // 4:02d}" for row in rows]})
    frame["hours"] = [0.5 + row % 4 for row in rows]
    frame["a"], frame["level"] = [0.5 + row % 7 for row in rows], [0.25 + row for row in rows]
    return frame


@pytest.fixture
def files(visits, tmp_path):
    """Return the table in all its forms, by name."""
    visits.to_csv(tmp_path / "points.csv", index=False)
    visits.to_csv(tmp_path / "commas.csv", index=False, sep=";", decimal=",")
    visits.to_parquet(tmp_path / "t.parquet")
    names = {"points": "points.csv", "commas": "commas.csv", "parquet": "t.parquet"}
    return {"frame": visits, **{name: tmp_path / file for name, file in names.items()}}


def predictor(data):
    torch.manual_seed(0)
    rnn = tauflow.GRU(data.card.input_size, 3, return_sequences=data.card.per_step)
    return Predictor.from_data(tauflow.SequenceModel(rnn, data.card.target_size), data)


HOW = {"points": {"delimiter": ",", "decimal": "."}, "commas": {"delimiter": ";", "decimal": ","}}


@pytest.mark.parametrize("learned", ["points", "commas"])
@pytest.mark.parametrize("read", ["points", "commas", "frame", "parquet"])
def test_delimiter_and_decimals_are_of_each_table(learned, read, files):
    data = read_csv(files[learned], features=["a"], **HOW[learned], **SAID)
    model, options = predictor(data), {} if read == learned else HOW.get(read, {})
    predictions, same = model.predict(files[read], **options), model.predict(files[learned])
    assert predictions.astype(same.dtypes).equals(same)
    ids, batch = transform(data.schema, files[read], **options)
    again, others = transform(data.schema, files[learned])
    assert ids == again
    assert torch.equal(batch.x, others.x)


def test_what_was_said_of_another_file_is_refused_or_told(files):
    model = predictor(read_csv(files["commas"], features=["a"], **HOW["commas"], **SAID))
    with pytest.raises(DataError, match=r"with a point, .* or pass decimal='\.' \(--decimal\)"):
        model.predict(files["points"], delimiter=",")
    with pytest.raises(ArgumentError, match="delimiter is for a CSV file"):
        model.predict(files["parquet"], delimiter=";")
    with pytest.raises(UnknownNameError, match=r"decimal=.* is unknown"):
        model.predict(files["points"], delimiter=",", decimal="'")
    with pytest.raises(ArgumentError, match="delimiter is for a CSV file"):
        from_table(files["parquet"], delimiter=";", **SAID)


@pytest.mark.parametrize("saved", [False, True])
def test_new_variables_matter_where_all_were_features(visits, saved, tmp_path):
    visits["b"] = visits["a"] + 1
    long = visits.melt(["patient", "hours", "level"], ["a", "b"])
    new = pandas.concat([long, long.tail(1).assign(variable="new code", value=7.0)])
    options = {"long": ["variable", "value"], **SAID}
    named = predictor(from_table(long, features=["a", "b"], **options))
    everything = predictor(from_table(long, **options))
    if saved:
        for number, trained in enumerate([named, everything]):
            trained.save(tmp_path / str(number))
        named, everything = (tauflow.load_predictor(tmp_path / str(n)) for n in range(2))
    assert named.predict(new).equals(named.predict(long))
    with pytest.raises(DataError, match="holds the variable 'new code', which the table of the"):
        everything.predict(new)
