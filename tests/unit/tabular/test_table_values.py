import re
from decimal import Decimal

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_tables import NAN, by_id, transform_table, unpadded, visits, write

import tauflow
from tauflow.data import from_table, read_csv
from tauflow.errors import ArgumentError, DataError, TimeError
from tauflow.predict import Predictor
from tauflow.tabular.options import INTEGER_LABELS, TEXT_LABELS

COLUMNS = {"id": "patient", "time": "hours"}
# Ids of one, two and three rows, scattered over the table; a value, a target and a label missing.
SCATTERED = {
    "who": ["u", "v", "u", "w", "u", "w", "x"],
    "t": [0.0, 10.0, 0.5, 1.0, 2.0, 4.0, 7.0],
    "a": [1.0, 2.0, NAN, 4.0, 5.0, 6.0, 7.0],
    "y": [0.5, 1.5, 2.5, NAN, 4.5, 5.5, 6.5],
}
HALF = (0.5, 0.25, 0.25)


def test_rows_of_an_id_are_put_together_with_gaps_masks_and_targets():
    data = from_table(
        SCATTERED, id="who", time="t", target="y", split=HALF, scale=False, time_unit=None
    )
    _, u, steps = by_id(data)["u"]
    assert steps == 3
    assert u.x[0, :3, 0].tolist() == [1.0, 0.0, 5.0]
    assert u.observed[0, :3, 0].tolist() == [True, False, True]
    assert u.dt[0, :3].tolist() == [0.0, 0.5, 1.5]
    assert u.y[0, :3, 0].tolist() == [0.5, 2.5, 4.5]
    _, w, steps = by_id(data)["w"]
    assert steps == 2
    assert w.dt[0, :2].tolist() == [0.0, 3.0]
    assert w.y_mask[0, :2].tolist() == [False, True]
    for part in (data.train, data.valid, data.test):
        assert not part.y_mask[~part.mask].any()
        assert not part.observed[~part.mask].any()


def test_next_step_predicts_the_next_row_at_its_time():
    table = {name: SCATTERED[name] for name in ("who", "t", "a")}
    table = {name: [*cells, *cells] for name, cells in table.items()}
    table["who"] = [*SCATTERED["who"], *(name.upper() for name in SCATTERED["who"])]
    data = from_table(table, id="who", time="t", split=HALF, scale=False)
    assert sorted(by_id(data)) == ["U", "W", "u", "w"]  # v and x have no next row
    _, u, steps = by_id(data)["u"]
    assert steps == 2
    assert u.y[0, :, 0].tolist() == [0.0, 5.0]
    assert u.y_mask[0].tolist() == [False, True]
    assert data.schema.inputs == ("a", "gap ahead")
    assert data.schema.unscale_inputs(u.x)[0, :, 1].tolist() == pytest.approx([0.5, 1.5])
    assert "Left out: 4 ids without a target" in " ".join(data.card.notes)


def test_without_irregular_gaps_nothing_is_said_of_the_next_one():
    regular = visits(hours=[0.0, 1.0, 2.0] * 12)
    assert from_table(regular, features=["a"], **COLUMNS).schema.inputs == ("a",)
    timeless = from_table(regular, id="patient", features=["a"])
    assert timeless.train.dt is None
    assert timeless.card.time_unit == "row"


@pytest.mark.parametrize("start", [0.0, 1000.0])
@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_small_gaps_that_differ_are_told(start, scale):
    gaps = np.array([1.0, 3.0]) * scale
    table = visits(hours=(start * scale + np.cumsum([0.0, *gaps])).tolist() * 12)
    assert from_table(table, features=["a"], **COLUMNS).schema.inputs == ("a", "gap ahead")


def test_milliseconds_in_days():
    regular = np.datetime64("2024-05-31", "ms") + np.arange(30).astype("timedelta64[ms]")
    # The same gaps years later, where a day's fraction has fewer digits left.
    late = [*regular, *(regular + np.timedelta64(9000, "D"))]
    table = {"who": np.repeat(list("abcdef"), 10), "t": late, "a": range(60)}
    options = {"id": "who", "time": "t", "time_unit": "days", "features": ["a"]}
    assert from_table(table, **options).schema.inputs == ("a",)
    late[9] += np.timedelta64(1, "ms")
    assert from_table({**table, "t": late}, **options).schema.inputs == ("a", "gap ahead")


def test_next_step_of_one_column_reads_it_first():
    data = from_table(visits(), target="b", task="next-step", features=["a", "b"], **COLUMNS)
    assert data.schema.inputs[:2] == ("b", "a")
    assert data.schema.outputs == ("b",)
    _, piece, _ = by_id(data)["p03"]
    assert torch.equal(piece.y[0, 0], piece.x[0, 1, :1])


@pytest.mark.parametrize(
    ("target", "kind", "per_step", "outputs"),
    [
        (["no", "no", "yes"] * 12, "classify", True, ("no", "yes")),
        ([True] * 18 + [False] * 18, "classify", False, ("False", "True")),
        ([10.0, 2.0, NAN] * 12, "classify", True, ("2", "10")),
        ([7] * 18 + [None] * 3 + [5] * 15, "classify", False, ("5", "7")),
        (list(range(36)), "regress", True, ("y",)),
        ([0.5] * 18 + [1.5] * 18, "regress", False, ("y",)),
    ],
)
def test_the_task_follows_from_the_target(target, kind, per_step, outputs):
    data = from_table(visits(y=target), target="y", features=["a"], **COLUMNS)
    assert (data.card.task, data.card.per_step, data.schema.outputs) == (kind, per_step, outputs)
    assert data.card.notes[0].startswith("Task: ")


def test_the_task_can_be_said():
    ages = visits(age=[30, 40, 50] * 12)
    assert (
        from_table(ages, target="age", task="regression", features=["a"], **COLUMNS).card.loss
        == "mse"
    )
    died = from_table(visits(), target="died", per_step=True, **COLUMNS)
    assert died.train.y.shape == (8, 3)


def test_scaling_is_of_the_training_ids_alone():
    table = visits(y=[row * 0.5 for row in range(36)])
    table["a"][::4] = [NAN] * 9
    data = from_table(table, target="y", features=["a", "b"], **COLUMNS)
    trained = np.isin(table["patient"], data.schema.ids["train"])
    for place, name in enumerate(("a", "b")):
        known = np.array(table[name])[trained]
        known = known[~np.isnan(known)]
        assert float(data.schema.x_mean[place]) == pytest.approx(known.mean())
        assert float(data.schema.x_scale[place]) == pytest.approx(known.std())
    for name, (_, piece, _) in by_id(data).items():
        rows = [row for row, who in enumerate(table["patient"]) if who == name]
        want = torch.tensor([table["y"][row] for row in rows], dtype=torch.float64)
        torch.testing.assert_close(
            data.schema.unscale(piece.y)[0, :, 0], want, rtol=1e-6, atol=1e-6
        )


NANS = ["-nan", "NAN", "Nan", "+nan", "nan", "NaN", "-NaN", "+NAN", Decimal("NaN")]


@pytest.mark.parametrize("word", NANS)
def test_what_reads_as_nan_is_missing(tmp_path, word):
    classes = [1, 1, 1, 2, 2, 2] * 6
    table = visits(y=[row / 7 for row in range(36)], level=classes)
    for column in ("a", "y", "level"):
        table[column] = [word if row == 4 else cell for row, cell in enumerate(table[column])]
    # In a file every cell is text; in memory text is text, and no number.
    sources = [write(tmp_path / "visits.csv", table)]
    if isinstance(word, str):
        with pytest.raises(DataError, match=f"holds '{re.escape(word)}'"):
            from_table(table, target="level", features=["a"], **COLUMNS)
    else:
        sources.append(table)
    for source in sources:
        read = from_table if source is table else read_csv
        level = read(source, target="level", features=["a"], **COLUMNS)
        assert (level.card.task, level.card.per_step) == ("classify", False)
        assert level.schema.outputs == ("1", "2")
        _, piece, _ = by_id(level)["p01"]
        assert piece.y.tolist() == [1]
        assert piece.observed[0, :, 0].tolist() == [True, False, True]
        each = read(source, target="level", per_step=True, features=["b"], **COLUMNS)
        assert by_id(each)["p01"][1].y_mask.tolist() == [[True, False, True]]
        number = read(source, target="y", features=["b"], **COLUMNS)
        _, piece, _ = by_id(number)["p01"]
        assert piece.y_mask.tolist() == [[True, False, True]]
        assert piece.y[0, 1, 0] == 0.0
        assert "1 of 36 targets are missing" in " ".join(number.card.notes)


def test_words_that_only_resemble_nan_are_not_missing():
    data = from_table(visits(y=["nan.", "nano", "-na"] * 12), target="y", features=["a"], **COLUMNS)
    assert data.schema.outputs == ("-na", "nan.", "nano")


def test_a_file_a_frame_and_a_mapping_give_the_same(tmp_path):
    table = visits(y=[(row * 7 % 11) / 3 for row in range(36)])
    table["a"][4] = NAN
    table["y"][7] = NAN
    for options in ({"target": "died"}, {"target": "y"}, {"missing": "inputs"}):
        table_options = {"features": ["a", "b"], **COLUMNS, **options}
        file = read_csv(write(tmp_path / "f.csv", table), **table_options)
        frame = from_table(pandas.DataFrame(table), **table_options)
        nullable = from_table(pandas.DataFrame(table).convert_dtypes(), **table_options)
        for other in (frame, nullable, from_table(table, **table_options)):
            assert other.card.notes == file.card.notes
            for part in ("train", "valid", "test"):
                for name in ("x", "y", "dt", "mask", "observed", "y_mask"):
                    value, two = (getattr(getattr(d, part), name) for d in (file, other))
                    assert (value is None and two is None) or torch.equal(value, two)


def test_masks_become_inputs_for_the_features_that_have_gaps():
    table = visits()
    table["b"][5] = NAN
    options = {"target": "died", "features": ["a", "b"], **COLUMNS}
    plain, with_indicators = (
        from_table(table, **options),
        from_table(table, missing="inputs", **options),
    )
    assert with_indicators.schema.inputs == ("a", "b", "b measured")
    assert with_indicators.card.input_size == 3
    for part in ("train", "valid", "test"):
        batch, two = getattr(plain, part), getattr(with_indicators, part)
        assert two.observed is None
        assert torch.equal(two.x[..., :2][batch.observed], batch.x[batch.observed])
        assert torch.equal(two.x[..., 2] > 0, batch.observed[..., 1])
    complete = from_table(visits(), missing="inputs", **options)
    assert complete.schema.inputs == ("a", "b")


def test_classes_have_no_scale_to_undo():
    data = from_table(visits(), target="died", **COLUMNS)
    with pytest.raises(ArgumentError, match=r"outputs\[prediction.argmax\(-1\)\]"):
        data.schema.unscale(torch.zeros(1, 2))


cells = st.one_of(st.none(), st.floats(-1e3, 1e3, width=32))
sequences = st.lists(
    st.lists(st.tuples(st.floats(0.125, 8.0, width=16), cells), min_size=1, max_size=4),
    min_size=5,
    max_size=9,
)


@settings(max_examples=60, deadline=None)
@given(sequences=sequences, order=st.randoms(use_true_random=False))
def test_values_come_back_and_the_order_of_ids_changes_the_order_only(sequences, order):
    rows, want = {}, {}
    for number, samples in enumerate(sequences):
        name = f"id {number}"
        values = [NAN if value is None else value for _, value in samples]
        values[0] = float(number)  # so that no part is without a value
        times = np.cumsum([gap for gap, _ in samples])
        rows[name] = [(name, t, a, t + number) for t, a in zip(times, values, strict=True)]
        want[name] = np.array(values)[:, None]
    drawn = list(rows)
    order.shuffle(drawn)
    first, second = (
        from_rows([row for name in names for row in rows[name]]) for names in (list(rows), drawn)
    )
    by_part, shuffled = unpadded(first), unpadded(second)
    for name in rows:
        np.testing.assert_allclose(by_part[name], want[name], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(shuffled[name], by_part[name], rtol=1e-4, atol=1e-3)
    for part, names in first.schema.ids.items():
        assert second.schema.ids[part] == tuple(n for n in drawn if n in names)
    assert sorted(by_part) == sorted(rows)


def from_rows(rows):
    columns = dict(zip(("who", "t", "a", "y"), map(list, zip(*rows, strict=True)), strict=True))
    options = {"target": "y", "task": "regression", "per_step": True}
    return from_table(columns, id="who", time="t", **options)


def test_whole_numbers_of_any_size_are_classes_of_their_own():
    codes = [2**53, 2**53, 2**53, 2**53 + 1, 2**53 + 1, 2**53 + 1] * 6
    for cells in (codes, [str(code) for code in codes]):
        data = from_table(
            visits(died=cells), id="patient", time="hours", target="died", features=["a"]
        )
        assert data.schema.outputs == ("9007199254740992", "9007199254740993")


def test_masked_entries_are_missing():
    numbers, mask = np.arange(36.0), np.arange(36) % 7 == 3
    options = {"id": "patient", "time": "hours", "target": "died", "features": ["a", "b"]}
    want = from_table(visits(a=np.where(mask, NAN, numbers)), **options)
    for values in (numbers, numbers.astype(int)):
        data = from_table(visits(a=np.ma.masked_array(values, mask=mask)), **options)
        assert torch.equal(data.train.observed, want.train.observed)
        assert torch.equal(data.train.x, want.train.x)
    hours = np.ma.masked_array(np.tile(np.arange(3), 12).astype("datetime64[h]"), mask=mask)
    with pytest.raises(TimeError, match=r"row 3 \(counted from 0\), column 'hours' is empty"):
        from_table(visits(hours=hours), **options)


def test_a_class_below_zero_after_zero_is_a_class():
    rows = [(0, -3), (1, 0), (2, -3), (3, 0)] * 4
    table = {
        "id": [str(row) for row in range(16)],
        "x": [float(value) for value, _ in rows],
        "y": [label for _, label in reversed(rows)],  # 0 first
    }
    data = from_table(table, id="id", target="y")
    assert data.schema.outputs == ("-3", "0")
    assert data.train.y.min() == 0


@pytest.mark.parametrize("kind", [list, pandas.Series, pandas.Categorical])
@pytest.mark.parametrize(
    "codes", [("0150", "0151"), ("01", "1"), ("1E5", "100000"), ("true", "false"), ("1.50", "2")]
)
def test_text_classes_stay_as_they_are_written(kind, codes):
    level = [codes[(row // 3) % 2] for row in range(36)]
    table = pandas.DataFrame({**visits(), "level": kind(level)})
    data = from_table(table, target="level", features=["a"], **COLUMNS)
    assert data.schema.outputs == tuple(sorted(codes))
    assert data.schema.kind == TEXT_LABELS
    model = tauflow.SequenceModel(tauflow.Elman(1, 3, return_sequences=False), 2)
    answers = Predictor.from_data(model, data).predict(table)["level"]
    assert set(answers) <= set(codes)


@pytest.mark.parametrize("task", [None, "classification"])
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_leading_zero_makes_a_class_of_its_own_if_classes_are_asked_for(
    tmp_path, task, plain, gaps
):
    codes = ("01", "1", "2")
    columns = visits()
    level = [codes[(row // 3) % 3] for row in range(36)]
    columns["level"] = [code if row % 3 == 0 or not gaps else "" for row, code in enumerate(level)]
    if not plain:
        columns["remark"] = ["two\nlines", *["one"] * 35]
    path = write(tmp_path / "t.csv", columns)
    options = {"target": "level", "features": ["a"], **COLUMNS}
    data = read_csv(path, task=task, **options)
    assert data.schema.outputs == (codes if task else codes[1:])
    assert data.schema.kind == (TEXT_LABELS if task else INTEGER_LABELS)
    if task is None:  # as pandas reads it
        return
    classes = {
        name: codes[int(piece.y.flatten()[0])] for name, (_, piece, _) in by_id(data).items()
    }
    assert classes == {f"p{number:02d}": codes[number % 3] for number in range(12)}


def test_leading_zeros_of_many_numbers_and_of_a_regression_are_written_so(tmp_path):
    options = {"features": ["a"], **COLUMNS}
    many = write(tmp_path / "many.csv", visits(y=[f"{row:02d}" for row in range(36)]))
    data = read_csv(many, target="y", **options)
    assert data.card.task == "regress"
    few = write(tmp_path / "few.csv", visits(y=[f"{row % 3:02d}" for row in range(36)]))
    data = read_csv(few, target="y", task="regression", scale=False, **options)
    assert data.train.y[data.train.y_mask].unique().tolist() == [0.0, 1.0, 2.0]


def test_large_targets_come_back_whole():
    y = [2e8 + row for row in range(36)]
    data = from_table(visits(y=y), target="y", features=["a"], **COLUMNS)
    unscaled = [
        data.schema.unscale(piece.y)[0, :, 0].tolist() for _, piece, _ in by_id(data).values()
    ]
    assert sorted(value for values in unscaled for value in values) == pytest.approx(
        y, rel=1e-14, abs=1e-4
    )


def test_answers_have_no_digits_that_mean_nothing():
    options = {"target": "b", "features": ["a"], "task": "regression", **COLUMNS}
    data = from_table(visits(), **options)
    model = tauflow.SequenceModel(tauflow.Elman(1, 3), 1)
    answers = Predictor.from_data(model, data).predict(pandas.DataFrame(visits()))["b"]
    assert all(len(repr(float(value)).lstrip("-").replace(".", "")) <= 9 for value in answers)
    _, batch = transform_table(data, visits())
    expected = data.schema.unscale(model.eval()(batch.x, dt=batch.dt)[0]).flatten().detach()
    assert answers.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
