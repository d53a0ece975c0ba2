"""Data sets on disk: what is opened is what was written, whoever reads it; errors are clear."""

import errno
import hashlib
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_tasks import CARD, OPTIONAL, batch, parts, same

from tauflow.batch import SequenceBatch
from tauflow.data import load_task, open_task, registry, write_task
from tauflow.errors import (
    ArgumentError,
    ChecksumError,
    DataError,
    DataNotFoundError,
    DtypeError,
    ShapeError,
    TauflowError,
)

REAL = [torch.float16, torch.float32, torch.float64]
WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.fixture
def written(tmp_path):
    return write_task(tmp_path / "sensors", CARD, **parts())


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@st.composite
def tasks(draw):
    """Draw a card, a part that fits it, and where to cut the part into pieces."""
    sequences, steps, features, outputs = (draw(st.integers(1, n)) for n in (9, 4, 3, 3))
    kind = draw(st.sampled_from(["regress", "classify", "binary"]))
    per_step, tokens = draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 99)))

    def drawn(dtypes, *shape):
        values = torch.from_numpy(rng.normal(0, 40, shape))
        return (values.abs() if dtypes is WHOLE else values).to(draw(st.sampled_from(dtypes)))

    lead = (sequences, steps) if per_step else (sequences,)
    is_single = kind == "classify" or (outputs == 1 and draw(st.booleans()))
    y = drawn(WHOLE if kind == "classify" else REAL, *lead, *(() if is_single else (outputs,)))
    shapes = {
        "dt": (sequences, steps),
        "mask": (sequences, steps),
        "observed": (sequences, steps, features),
        "y_mask": y.shape if y.ndim == 3 and draw(st.booleans()) else (sequences, steps),
    }
    chosen = draw(st.sets(st.sampled_from(OPTIONAL)))
    fields = {
        name: drawn(REAL if name == "dt" else [torch.bool], *shape)
        for name, shape in shapes.items()
        if name in chosen
    }
    x = drawn(WHOLE if tokens else REAL, sequences, steps, features)
    card = replace(
        CARD, task=kind, input_size=features, target_size=outputs, per_step=per_step, targets=()
    )
    cuts = sorted(draw(st.sets(st.integers(0, sequences))) | {0, sequences})
    return card, SequenceBatch(x, y, **fields), cuts


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(task=tasks())
def test_what_is_opened_is_what_was_written(tmp_path_factory, task):
    card, part, cuts = task
    pieces = [part[a:b] for a, b in itertools.pairwise(cuts)]
    folder = tmp_path_factory.mktemp("stored") / "task"
    write_task(folder, card, train=iter(pieces), test=part)
    data = open_task(folder, verify=True)
    assert same(data.train, part)
    assert same(data.test, part)
    assert data.valid is None
    assert data.card == replace(card, sizes=(len(part), 0, len(part)))


def test_the_files_are_numpys_and_their_digests_those_of_any_tool(written):
    task_entries = json.loads((written / "task.json").read_text(encoding="utf-8"))
    listed = ["task.json"]
    for part, given_part in parts().items():
        for name, tensor in given_part.tensors().items():
            file = written / part / f"{name}.npy"
            assert np.array_equal(np.load(file), tensor.numpy())
            noted = task_entries["parts"][part][name]
            assert noted["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
            assert noted["shape"] == list(tensor.shape)
            listed.append(f"{part}/{name}.npy")
    assert names(written) == sorted(listed)
    assert [path.name for path in written.parent.iterdir()] == ["sensors"]


@pytest.mark.parametrize("sizes", [(7, 3, 4), (0, 0, 0), (10**12, 1, 1)])
def test_the_card_need_not_know_the_sizes(tmp_path, sizes):
    folder = write_task(tmp_path / "sensors", replace(CARD, sizes=sizes), **parts())
    data = open_task(folder, verify=True)
    assert data.card == CARD
    assert data.sizes == (7, 3, 4)


def test_the_card_may_hold_numbers_of_numpy(tmp_path):
    numbers = {"input_size": np.int64(2), "sizes": tuple(np.array([7, 3, 4])), "per_step": np.True_}
    folder = write_task(tmp_path / "sensors", replace(CARD, **numbers), **parts())
    assert np.load(folder / "train" / "x.npy").shape == (7, 5, 2)
    data = open_task(folder, verify=True)
    assert data.card == CARD
    assert same(data.train, parts()["train"])


def test_a_card_that_cannot_be_stored_is_refused_before_any_data(tmp_path):
    def pieces():
        raise AssertionError("asked for data")
        yield

    card = replace(CARD, notes=(tmp_path,))
    with pytest.raises(ArgumentError, match=r"card: a \w+Path, .* cannot be stored"):
        write_task(tmp_path / "sensors", card, train=pieces(), test=batch(1))
    assert list(tmp_path.iterdir()) == []


def test_data_sets_of_the_catalog_are_kept_whole(tmp_path):
    data = load_task("pendulum", sizes=(6, 2, 2), steps=4)
    parts = {part: getattr(data, part) for part in ("train", "valid", "test")}
    opened = open_task(write_task(tmp_path / "copy", data.card, **parts))
    assert opened.card == data.card
    for part, given_part in parts.items():
        assert same(getattr(opened, part), given_part)


def test_only_one_piece_is_held_at_a_time(tmp_path):
    def pieces():
        held = None
        for number in range(4):
            assert held is None or held() is None, "the piece before is still in memory"
            piece = batch(2, seed=number)
            held = weakref.ref(piece.x)
            yield piece
            del piece

    write_task(tmp_path / "sensors", CARD, train=pieces(), test=batch(1), steps=6)


def test_views_of_other_tensors_are_written_as_they_look(tmp_path, monkeypatch):
    monkeypatch.setattr("tauflow._internal.tensor_file._BLOCK_BYTES", 64)
    wide = torch.randn(2, 5, 9, requires_grad=True)
    x = wide.permute(2, 1, 0)  # (9, 5, 2), not contiguous
    y = torch.randn(1, 5, 1).expand(9, 5, 1)
    folder = write_task(tmp_path / "sensors", CARD, train=SequenceBatch(x, y), test=batch(1))
    opened = open_task(folder, verify=True).train
    assert torch.equal(opened.x, x.detach())
    assert torch.equal(opened.y, y)


@pytest.mark.skipif(sys.platform != "linux", reason="reads how Linux lists mappings")
def test_nothing_is_read_into_memory(written):
    data = open_task(written)
    x, sliced, chosen = data.train.x, data.train[2:5].x, data.train[torch.tensor([4, 2])].x
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        places = [
            (*(int(end, 16) for end in line.split()[0].split("-")), line.split()[1])
            for line in maps
            if line.rstrip().endswith("train/x.npy")
        ]
    assert places
    assert {flags for _, _, flags in places} == {"rw-p"}  # copied where written
    blocks = Path("/proc/self/smaps").read_text(encoding="utf-8").split("train/x.npy")[1:]
    assert all(" nr" in block.partition("VmFlags:")[2].split("\n")[0] for block in blocks)

    def mapped(tensor):
        return any(low <= tensor.data_ptr() < high for low, high, _ in places)

    assert mapped(x)
    assert mapped(sliced)
    assert not mapped(chosen)
    assert torch.equal(chosen, parts()["train"].x[[4, 2]])


def test_an_operation_in_place_changes_the_tensor_and_never_the_file(written):
    before = (written / "train" / "x.npy").read_bytes()
    data = open_task(written)
    data.train.x.mul_(2)
    data.train.x[0] = 7.0
    assert torch.equal(data.train.x[1:], 2 * parts()["train"].x[1:])
    assert (data.train.x[0] == 7).all()
    assert torch.equal(open_task(written, verify=True).train.x, parts()["train"].x)
    assert (written / "train" / "x.npy").read_bytes() == before


HOSTILE = {
    "an object": (lambda f: f["parts"]["train"]["x"].update(dtype="object"), "an array of float32"),
    "another folder": (lambda f: f["parts"].update({"../x": f["parts"]["train"]}), "no part has"),
    "another file": (lambda f: f["parts"]["train"].update({"../x": {}}), "no part has a field"),
    "a size below 0": (lambda f: f["parts"]["train"]["x"].update(shape=[-1, 2]), "has the shape"),
    "a mistyped card": (lambda f: f["card"].update(title=[1]), "title must be a str, got"),
    "another card": (lambda f: f["card"].update(input_size=10**9), "x has 2 features per step"),
    "an infinite version": (lambda f: f.update(format_version=float("inf")), "is damaged"),
    "no parts": (lambda f: f.update(parts=[]), "is damaged"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_unknown_metadata_are_refused(case, written):
    change, message = HOSTILE[case]
    entries = json.loads((written / "task.json").read_text())
    change(entries)
    (written / "task.json").write_text(json.dumps(entries))
    with pytest.raises(TauflowError, match=message):
        open_task(written)


def test_arrays_begin_where_those_in_memory_may(written):
    # Products of matrices may round otherwise at other alignments.
    for part in ("train", "valid", "test"):
        for tensor in getattr(open_task(written), part).tensors().values():
            assert tensor.data_ptr() % 64 == 0


def test_tensors_outlive_the_data_set(written):
    x = open_task(written).train.x
    assert torch.equal(x, parts()["train"].x)


def test_a_stored_data_set_gets_a_name(written, monkeypatch):
    for table in (registry.DATASETS, registry._LOADERS):
        monkeypatch.setattr(table, "_entries", dict(table._entries))
    card = replace(open_task(written).card, files={})
    registry.register(card, lambda root, download: open_task(written))
    assert registry.is_available("sensors")
    assert same(load_task("sensors").test, parts()["test"])


class TestPadding:
    def test_to_a_stated_length(self, tmp_path):
        first, second = batch(2, 3, without=["mask"]), batch(3, 5, seed=1)
        folder = write_task(
            tmp_path / "sensors", CARD, train=[first, second], test=batch(1), steps=6
        )
        train = open_task(folder).train
        assert train.x.shape == (5, 6, 2)
        for piece, rows, length in ((first, slice(0, 2), 3), (second, slice(2, 5), 5)):
            for name, tensor in piece.tensors().items():
                stored = train.tensors()[name][rows]
                assert torch.equal(stored[:, :length], tensor)
                assert not stored[:, length:].any()
        assert train.mask[:2, :3].all()

    def test_targets_of_sequences_stay(self, tmp_path):
        card = replace(CARD, per_step=False, target_size=3, targets=())
        y = torch.randn(2, 3)
        piece = SequenceBatch(torch.randn(2, 3, 2), y)  # as many targets as steps
        data = open_task(write_task(tmp_path / "s", card, train=piece, test=piece, steps=4))
        assert torch.equal(data.train.y, y)
        assert data.train.mask.tolist() == [[True, True, True, False]] * 2

    def test_is_not_cutting(self, tmp_path):
        with pytest.raises(ShapeError, match=r"train, piece 0: .* 5 steps, more than steps=4"):
            write_task(tmp_path / "sensors", CARD, train=batch(2), test=batch(1), steps=4)


def changed(**changes):
    return lambda: replace(batch(2), **{k: make(batch(2)) for k, make in changes.items()})


@pytest.mark.parametrize(
    ("second", "error", "message"),
    [
        (lambda: batch(2, without=["dt"]), DataError, "train, piece 1: dt is in some pieces"),
        (changed(y=lambda b: b.y.double()), DtypeError, r"piece 1: y has dtype torch.float64, and"),
        (lambda: batch(2, 4), ShapeError, r"piece 1: x has rows of shape \(4, 2\).* take steps="),
        (lambda: 3, ArgumentError, "train, piece 1 is a int, expected a SequenceBatch"),
        (
            changed(y_mask=lambda b: b.y_mask[..., 0]),
            ShapeError,
            r"piece 1: y_mask has rows of shape \(5,\), and \(5, 1\) in the pieces before",
        ),
    ],
    ids=["fields", "dtype", "length", "type", "shape"],
)
def test_pieces_must_agree(tmp_path, second, error, message):
    with pytest.raises(error, match=message):
        write_task(tmp_path / "sensors", CARD, train=[batch(3), second()], test=batch(1))
    assert list(tmp_path.iterdir()) == []


def test_a_field_that_comes_late_is_named(tmp_path):
    pieces = [batch(2, without=["observed"]), batch(2)]
    with pytest.raises(DataError, match="train, piece 1: observed is in some pieces"):
        write_task(tmp_path / "sensors", CARD, train=pieces, test=batch(1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_size": 3}, "x has 2 features per step, but the card says input_size=3"),
        ({"target_size": 2, "targets": ()}, r"y has shape \(2, 5, 1\), expected \(2, 5, 2\)"),
        ({"per_step": False}, r"expected \(2,\) or \(2, 1\). The card says 'regress'"),
        ({"task": "classify"}, r"expected \(2, 5\)\. The card says 'classify'"),
    ],
    ids=["inputs", "outputs", "per-step", "classes"],
)
def test_pieces_must_be_what_the_card_says(tmp_path, changes, message):
    with pytest.raises(ShapeError, match=rf"train, piece 0: .*{message}"):
        write_task(tmp_path / "s", replace(CARD, **changes), train=batch(2), test=batch(1))


def test_a_target_per_sequence_is_told_from_one_per_step_when_padding(tmp_path):
    part = replace(batch(2), y=torch.zeros(2, 1), y_mask=None)
    with pytest.raises(
        ShapeError, match=r"y has shape \(2, 1\), expected \(2, 5\) or .*per_step=True"
    ):
        write_task(tmp_path / "s", CARD, train=part, test=part, steps=6)


@pytest.mark.parametrize("train", [(), [batch(2)[:0]]], ids=["no-pieces", "empty-pieces"])
def test_a_part_needs_sequences(tmp_path, train):
    with pytest.raises(DataError, match="the train part has no sequences"):
        write_task(tmp_path / "sensors", CARD, train=train, test=batch(1))
    assert list(tmp_path.iterdir()) == []


def test_empty_pieces_are_passed_over(tmp_path):
    pieces = [batch(2)[:0], batch(2), batch(2)[:0]]
    data = open_task(write_task(tmp_path / "s", CARD, train=pieces, test=batch(1)), verify=True)
    assert same(data.train, batch(2))


def test_a_dtype_without_a_name_in_numpy_is_refused(tmp_path):
    part = replace(batch(2), x=batch(2).x.bfloat16())
    with pytest.raises(DtypeError, match=r"x has dtype torch.bfloat16, which .npy .* x.float\(\)"):
        write_task(tmp_path / "sensors", CARD, train=part, test=batch(1))


def test_a_folder_is_never_replaced(written):
    with pytest.raises(ArgumentError, match=r"sensors exists already. Delete it, or choose"):
        write_task(written, CARD, **parts())
    assert same(open_task(written, verify=True).train, parts()["train"])


def test_an_error_of_the_pieces_leaves_nothing(tmp_path):
    def pieces():
        yield batch(2)
        raise OSError(errno.ENOSPC, "not this disk")

    with pytest.raises(OSError, match="not this disk"):
        write_task(tmp_path / "sensors", CARD, train=pieces(), test=batch(1))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*train.x\.npy"):
        write_task(tmp_path / "sensors", CARD, train=[batch(20), batch(9)], test=batch(1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills as Unix does")
def test_a_killed_writer_leaves_nothing_under_the_name(tmp_path):
    folder = tmp_path / "sensors"
    program = [sys.executable, str(Path(__file__).with_name("kill_a_writer.py")), str(folder)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as child:
        for _ in range(3):
            assert child.stdout.readline()
        child.kill()
    assert not folder.exists()
    (left,) = tmp_path.iterdir()
    assert re.fullmatch(r"sensors\.\w{8}\.partial", left.name)
    with pytest.raises(DataNotFoundError, match=r"holds no data set: there is no task.json"):
        open_task(left)
    write_task(folder, CARD, **parts())
    assert same(open_task(folder, verify=True).train, parts()["train"])


def rewritten(change):
    """Return a change of ``task.json``."""

    def damage(folder):
        file = folder / "task.json"
        entries = json.loads(file.read_text(encoding="utf-8"))
        change(entries)
        file.write_text(json.dumps(entries), encoding="utf-8")

    return damage


def cut(folder):
    with (folder / "train" / "x.npy").open("r+b") as file:
        file.truncate(300)


def other_header(folder):
    file = folder / "train" / "y.npy"
    file.write_bytes(file.read_bytes().replace(b"<f4", b"<i4"))


def in_columns(folder):
    file = folder / "train" / "x.npy"
    np.save(file, np.asfortranarray(np.load(file)))


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (in_columns, DataError, r"x.npy is damaged .* columns stand before rows"),
        (cut, DataError, r"x.npy is damaged or truncated: it has 300 bytes. Restore"),
        (
            other_header,
            DataError,
            r"y.npy is damaged or truncated: an array of int32, .*float32",
        ),
        (
            lambda f: (f / "valid" / "dt.npy").unlink(),
            DataNotFoundError,
            r"valid.dt.npy is missing. Restore",
        ),
        (lambda f: (f / "task.json").unlink(), DataNotFoundError, "there is no task.json. Give a"),
        (lambda f: (f / "task.json").write_text("{"), DataError, "task.json is damaged, or no fil"),
        (lambda f: (f / "task.json").write_text("[]"), DataError, "task.json is damaged, or no fi"),
        (
            rewritten(lambda entries: entries.update(format_version=2)),
            DataError,
            "has format version 2, and this tauflow reads up to 1. Upgrade",
        ),
        (
            rewritten(lambda entries: entries.update(format="a table")),
            DataError,
            "is a 'a table', expected a 'tauflow data set'",
        ),
        (
            rewritten(lambda entries: entries["parts"].pop("test")),
            DataError,
            r"task.json is damaged, or from another version .*KeyError\('test'\)",
        ),
        (
            rewritten(lambda entries: entries["card"].update(colour="red")),
            DataError,
            "task.json is damaged, or from another version .*colour",
        ),
        (
            rewritten(lambda entries: entries["parts"]["train"]["x"].update(shape=["7", 5, 2])),
            DataError,
            "task.json is damaged",
        ),
        (
            rewritten(lambda entries: entries["parts"]["train"].pop("x")),
            DataError,
            "task.json is damaged",
        ),
    ],
)
def test_damage_is_named(written, damage, error, message):
    damage(written)
    with pytest.raises(error, match=message):
        open_task(written)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataNotFoundError, match="nowhere holds no data set"):
        open_task(tmp_path / "nowhere")


def test_a_flipped_bit_is_found_if_asked(written):
    file = written / "test" / "mask.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert math.prod(open_task(written).test.mask.shape) == 20
    with pytest.raises(ChecksumError, match=r"mask.npy is damaged: its SHA-256 is not that"):
        open_task(written, verify=True)


IRREGULAR = {
    "a link to itself": (
        lambda path: path.symlink_to(path.name),
        "cannot be read: Too many levels",
    ),
    "a link to memory": (
        lambda path: path.symlink_to("/proc/self/mem"),
        "cannot be read: Input/output error",
    ),
    "a folder": (Path.mkdir, "is a folder, expected a regular file"),
    "a pipe": (os.mkfifo, "is a pipe, expected a regular file"),
    "a device": (lambda path: path.symlink_to("/dev/null"), "is a device, expected"),
    "a terminal": (lambda path: path.symlink_to("/dev/tty"), "is a device, expected"),
}


@pytest.fixture
def no_hang():
    """Fail instead of waiting for the writer of a pipe."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(sys.platform != "linux", reason="makes files as Linux has them")
@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize("file", ["task.json", "train/x.npy", "valid/dt.npy"])
@pytest.mark.parametrize("kind", IRREGULAR)
def test_what_is_not_a_regular_file_is_named(written, file, kind):
    make, message = IRREGULAR[kind]
    path = written / file
    path.unlink()
    make(path)
    for verify in (False, True):
        with pytest.raises(DataError, match=rf"{path.name} {message}.*Restore"):
            open_task(written, verify=verify)
