"""Parts by group and by time: no leak between them, and what is said of them is so."""

import numpy as np
import pytest
import torch
from own_tables import NAN, changed, transform_table, visits

from tauflow.data import from_table
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow.tabular.load import add_missing_indicators

SAID = {"id": "patient", "time": "hours", "features": ["a", "b"]}
WARDS = [f"w{row // 9}" for row in range(36)]  # four groups of three ids each
PARTS = ("train", "valid", "test")
THIRDS = (1, 1, 1)


def read(table, **options):
    return from_table(table, **{**SAID, **options})


def recording(length=20, ids=("r",)):
    """Return one long id, or several, with targets in every row."""
    rows = np.arange(length * len(ids))
    return {
        "patient": np.repeat(ids, length),
        "hours": np.cumsum(1 + rows % 3) * 0.5,
        "a": rows * 1.0,
        "b": np.sin(rows),
        "y": rows * 10 + 0.5,
        "stage": np.array(["I", "II"])[rows % 2],
    }


def pieces(data):
    """Return {part: {id: (a, y, dt, ...) of its valid steps, in the units of the table}}."""
    pieces_by_part = {}
    for part in PARTS:
        batch = getattr(data, part)
        pieces_by_part[part] = {}
        if batch is None:
            assert data.schema.ids[part] == ()
            continue
        assert len(batch) == len(data.schema.ids[part])
        x = data.schema.unscale_inputs(batch.x.double())
        for place, name in enumerate(data.schema.ids[part]):
            there = slice(None) if batch.mask is None else batch.mask[place]
            y = batch.y[place][there]
            y = y if data.card.task == "classify" else data.schema.unscale(y.double())[:, 0]
            gaps = batch.dt[place][there].flatten().tolist()
            pieces_by_part[part][name] = (x[place][there][:, 0].tolist(), y.tolist(), gaps)
    return pieces_by_part


def close(values):
    return pytest.approx(list(values), abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_ids_of_a_group_stay_together(seed):
    table = visits(ward=WARDS)
    owner = dict(zip(table["patient"], WARDS, strict=True))
    options = {"features": None, "target": "died", "group": "ward", "split": (2, 1, 1)}
    data = read(table, split_seed=seed, **options)
    wards = [{owner[name] for name in data.schema.ids[part]} for part in PARTS]
    assert [len(ward) for ward in wards] == [2, 1, 1]
    assert len(set.union(*wards)) == 4
    assert data.sizes == (6, 3, 3)
    assert data.schema.inputs == ("a", "b")  # the group is no feature unless it is named as one
    assert data.card.split == f"by group ('ward'), 0.5, 0.25 and 0.25, seed {seed}"
    assert (
        "12 ids in 4 groups of 'ward': 6 for training, 3 for validation, 3 for the test; of the "
        f"groups 2 for training, 1 for validation, 1 for the test, drawn with seed {seed}."
    ) in data.card.notes


def test_the_seed_draws_groups_and_their_order_does_not_matter():
    table = visits(ward=WARDS)
    options = {"target": "died", "group": "ward", "split": THIRDS}
    drawn = {read(table, split_seed=seed, **options).schema.ids["test"] for seed in range(6)}
    assert len(drawn) > 1
    backwards = {name: list(cells)[::-1] for name, cells in table.items()}
    again = read(backwards, sort=True, **options).schema.ids
    for part, ids in read(table, **options).schema.ids.items():
        assert again[part] == ids[::-1]


def test_each_id_as_its_own_group_is_the_draw_of_ids():
    table = visits(owner=[f"of {name}" for name in visits()["patient"]])
    grouped, plain = (read(table, target="died", group=group) for group in ("owner", None))
    assert grouped.schema.ids == plain.schema.ids


@pytest.mark.parametrize("seed", range(4))
def test_groups_with_a_rare_class_are_spread(seed):
    ids = [f"p{number:02d}" for number in range(60)]
    wards = [f"w{number // 5:02d}" for number in range(60)]  # twelve wards
    rare = {f"w{number:02d}" for number in range(0, 12, 3)}  # in four of them one id of five
    stage = [
        "rare" if ward in rare and number % 5 == 2 else "common"
        for number, ward in enumerate(wards)
    ]
    table = {"patient": ids, "hours": range(60), "a": range(60), "b": range(60)}
    options = {"target": "stage", "per_step": False, "group": "ward", "split": (2, 1, 1)}
    data = read({**table, "ward": wards, "stage": stage}, split_seed=seed, **options)
    code = data.schema.outputs.index("rare")
    assert [int((getattr(data, part).y == code).sum()) for part in PARTS] == [2, 1, 1]


@pytest.mark.parametrize(
    ("ward", "message"),
    [
        (
            [*WARDS[:4], "w9", *WARDS[5:]],
            r"row 4 \(counted from 0\), column 'ward' holds 'w9', but row 3 of the same id, 'p01', "
            "holds 'w0': an id in two groups .*patient and day for day",
        ),
        ([*WARDS[:4], None, *WARDS[5:]], r"row 4 .*column 'ward' is empty, expected a group"),
        (
            ["w0"] * 18 + ["w1"] * 18,
            "2 groups of 'ward', one of each class kept for .*cannot be split .*--split-by time",
        ),
    ],
)
def test_groups_that_do_not_fit(ward, message):
    with pytest.raises(DataError, match=message):
        read(visits(ward=ward), target="died", group="ward")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": "patient"}, "column 'patient' is named as id and as group"),
        ({"group": "hours"}, "column 'hours' is named as time and as group"),
        ({"group": "died", "target": "died"}, "column 'died' is named as target and as group"),
        ({"group": "died", "split_by": "time"}, "group is for a draw of ids, and split_by='time'"),
        ({"split_seed": 1, "split_by": "time"}, "split_seed is for a draw of ids"),
        ({"target": "died", "split_by": "time"}, "'died' holds one target per id: the answers of"),
    ],
)
def test_options_that_contradict_each_other(options, message):
    with pytest.raises(ArgumentError, match=message):
        read(visits(), **options)


def test_unknown_names():
    with pytest.raises(UnknownNameError, match=r"no column 'wards' \(group\)\. Did you mean"):
        read(visits(ward=WARDS), group="wards")
    with pytest.raises(
        UnknownNameError, match=r"split_by='tine' is unknown.*Choose from: id, time"
    ):
        read(visits(), split_by="tine")


def test_targets_of_rows_are_cut_into_early_middle_and_late():
    table = recording(20)
    data = read(table, target="y", split_by="time")
    assert data.sizes == (1, 1, 1)
    by_part = pieces(data)
    edges = {"train": (0, 14), "valid": (14, 17), "test": (17, 20)}
    for part, (start, stop) in edges.items():
        a, y, gaps = by_part[part]["r"]
        assert a == close(table["a"][start:stop])
        assert y == close(table["y"][start:stop])
        assert gaps == close([0.0, *np.diff(table["hours"][start:stop])])
    for place, name in enumerate(("a", "b")):
        assert float(data.schema.x_mean[place]) == pytest.approx(table[name][:14].mean())
        assert float(data.schema.x_scale[place]) == pytest.approx(table[name][:14].std())
    assert float(data.schema.y_mean) == pytest.approx(table["y"][:14].mean())
    assert data.card.split == "by time within each id, 0.7, 0.15 and 0.15 of its rows"
    assert (
        "1 id, cut by time: 14 rows for training, 3 for validation, 3 for the test, one sequence "
        "each; the first time step of each is 0."
    ) in data.card.notes


def test_no_next_row_is_that_of_another_part():
    table = recording(20)
    data = read(table, split_by="time")
    by_part = pieces(data)
    edges = {"train": (0, 14), "valid": (14, 17), "test": (17, 20)}
    for part, (start, stop) in edges.items():
        a, y, _ = by_part[part]["r"]
        assert a == close(table["a"][start : stop - 1])
        assert y == close(table["a"][start + 1 : stop])
        assert getattr(data, part).y_mask is None
    assert data.schema.inputs == ("a", "b", "gap ahead")
    # Scaled by all rows for training, of which the last is a target only.
    assert float(data.schema.x_mean[0]) == pytest.approx(table["a"][:14].mean())
    ahead = data.schema.unscale_inputs(data.test.x)[0, :, 2].tolist()
    assert ahead == close(np.diff(table["hours"][17:]))
    assert float(data.schema.x_scale[2]) == pytest.approx(np.diff(table["hours"][:14]).mean())


def test_later_rows_do_not_reach_the_training_part():
    table = recording(30, ("r", "s"))
    later = {name: cells.copy() for name, cells in table.items()}
    for rows in (slice(21, 30), slice(51, 60)):
        later["a"][rows] = -5.0
        later["b"][rows] = NAN
        later["y"][rows] = 77.0
    for target in ("y", None):
        early, two = (
            read(each, target=target, split_by="time", features=["a"]) for each in (table, later)
        )
        for name in ("x", "y", "dt"):
            assert torch.equal(getattr(early.train, name), getattr(two.train, name))
        assert torch.equal(early.schema.x_mean, two.schema.x_mean)
        assert not torch.equal(early.test.y, two.test.y)


def test_classes_of_rows_without_a_validation_part():
    table = recording(10, ("r", "s"))
    data = read(table, target="stage", split_by="time", split=(80, 0, 20))
    assert data.sizes == (2, 0, 2)
    assert data.schema.ids == {"train": ("r", "s"), "valid": (), "test": ("r", "s")}
    by_part = pieces(data)
    assert by_part["test"]["s"][1] == [0, 1]
    assert by_part["train"]["s"][0] == close(range(10, 18))


def test_missing_values_and_targets_of_cut_ids():
    table = recording(12, ("r", "s"))
    table["a"][[2, 20]] = NAN
    table["y"][[1, 10, 11]] = NAN  # of r, nothing is left for the test
    table["y"][17:20] = NAN
    data = read(table, target="y", split_by="time", split=(2, 1, 1))
    assert data.schema.ids == {"train": ("r", "s"), "valid": ("r", "s"), "test": ("r", "s")}
    assert "6 of 24 targets are missing and do not count." in data.card.notes
    table["y"][9] = NAN
    data = read(table, target="y", split_by="time", split=(2, 1, 1))
    assert data.schema.ids == {"train": ("r", "s"), "valid": ("r", "s"), "test": ("s",)}
    notes = " ".join(data.card.notes)
    assert "12 rows for training, 6 for validation, 3 for the test, sequences: 2, 2, 1" in notes
    assert "Left out: 1 sequence cut from ids, without a target." in notes
    assert "4 of 21 targets are missing and do not count." in notes
    with_indicators = add_missing_indicators(data)
    assert with_indicators.schema.inputs == ("a", "b", "a measured")
    assert with_indicators.valid.x[1, :, 2].tolist() == [1.0, 1.0, 0.0]


def test_ids_too_short_to_be_cut_are_for_training_alone():
    table = recording(20)
    table = {name: [*cells, *cells[:5]] for name, cells in table.items()}
    table["patient"] = [*["r"] * 20, *["s"] * 5]
    assert read(table, target="y", split_by="time").schema.ids["test"] == ("r", "s")
    data = read(table, split_by="time")  # next steps need two rows in each part
    assert data.schema.ids == {"train": ("r", "s"), "valid": ("r",), "test": ("r",)}
    note = "1 id with fewer than 6 rows, used for training only: s."
    assert note in data.card.notes


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (visits(), {}, "no id has the 6 rows that it takes .* the longest, 'p00', has 3"),
        (visits(), {"split": (1, 0, 1)}, "no id has the 4 rows"),
        (
            {**recording(20), "y": [*range(14), *[None] * 3, *range(3)]},
            {"target": "y", "task": "regression"},
            "no row of the validation split has a target.*other fractions",
        ),
        (
            {**recording(20), "stage": [*["I", "II"] * 9, "III", "I"]},
            {"target": "stage"},
            r"'stage' .* lacks: 'III' \(id 'r'\)\. Split at other fractions \(--split\), join rare",
        ),
        (
            {**recording(20), "a": [*[None] * 15, *range(5)]},
            {"target": ["a", "y"], "task": "next-step"},
            "'a' has no value in the training split.*or split at other fractions",
        ),
    ],
)
def test_what_cannot_be_cut_by_time(table, options, message):
    with pytest.raises(DataError, match=message):
        read(table, split_by="time", **options)


def test_one_target_per_row_that_happens_not_to_change_is_asked_for():
    table = recording(12, ("r", "s"))
    table["stage"] = np.repeat(["I", "II"], 12)
    with pytest.raises(ArgumentError, match="holds one target per id"):
        read(table, target="stage", split_by="time")
    assert read(table, target="stage", split_by="time", per_step=True).sizes == (2, 2, 2)


def test_rows_without_times_are_cut_in_their_order():
    data = read(recording(10), time=None, target="y", split_by="time", split=(60, 20, 20))
    assert data.train.dt is None
    assert data.card.time_unit == "row"
    back = data.schema.unscale_inputs(data.test.x)[0, :, 0].tolist()
    assert back == close([8, 9])


@pytest.mark.parametrize("missing", ["observed", "inputs"])
def test_new_tables_are_scaled_as_the_parts_and_not_cut(missing):
    table = {**recording(20), **{"b": [NAN, *np.sin(range(19))]}}
    data = read(table, target="y", split_by="time")
    data = add_missing_indicators(data) if missing == "inputs" else data
    new = {name: cells for name, cells in table.items() if name != "y"}
    ids, batch = transform_table(data, new)
    assert (ids, batch.x.shape[1]) == (("r",), 20)
    assert torch.equal(batch.x[0], torch.cat([getattr(data, part).x[0] for part in PARTS]))
    assert batch.dt.flatten().tolist() == close([0.0, *np.diff(table["hours"])])
    forecast = read(recording(20), split_by="time")
    _, batch = transform_table(forecast, recording(20), lead_time=1.0)
    assert torch.equal(batch.x[0, :13], forecast.train.x[0, :13])
    assert batch.x.shape[1] == 20


def test_new_tables_need_no_groups():
    data = read(visits(ward=WARDS), target="died", group="ward", split=THIRDS)
    ids, batch = transform_table(data, visits(**changed("died", 0, "unknown")))
    place = ids.index(data.schema.ids["train"][0])
    assert torch.equal(batch.x[place], data.train.x[0])
