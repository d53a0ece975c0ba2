import gzip
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from published_data import content_hash, load_or_skip

from tauflow.data import load_task
from tauflow.data.store import find_data_folder
from tauflow.errors import ArgumentError, DataError
from tauflow_papers.datasets.real.idx import read_idx
from tauflow_papers.datasets.real.mnist import SEQ_MNIST, encode_changes, read_mnist


@pytest.fixture
def rows():
    return load_or_skip("seq-mnist")


@pytest.fixture
def events():
    return load_or_skip("event-mnist")


def test_rows_have_the_published_counts_and_shapes(rows):
    assert rows.sizes == (54000, 6000, 10000)
    for part in (rows.train, rows.valid, rows.test):
        assert part.x.shape == (len(part), 28, 28)
        assert (part.x.dtype, part.y.dtype) == (torch.float32, torch.int64)
        assert (part.x.min().item(), part.x.max().item()) == (0, 1)
        assert part.dt is part.mask is None
    counts = torch.cat([rows.train.y, rows.valid.y]).bincount().tolist()
    assert counts == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert rows.test.y[:5].tolist() == [7, 2, 1, 0, 4]


def test_a_pixel_is_followed_from_the_file(rows):
    raw = gzip.decompress((find_data_folder(SEQ_MNIST) / "train-images-idx3-ubyte.gz").read_bytes())
    image, row, column = 54001, 12, 14
    pixel = raw[16 + (image * 28 + row) * 28 + column]
    assert pixel > 0
    assert rows.valid.x[1, row, column].item() == np.float32(pixel) / np.float32(255)


@pytest.mark.thorough
def test_events_have_the_published_counts(events):
    assert events.sizes == (60000, 0, 10000)
    for part, mean in ((events.train, 53.05), (events.test, 52.92)):
        assert part.x.shape == (len(part), 256, 1)
        assert part.mask.sum(1).float().mean().item() == pytest.approx(mean, abs=5e-3)
        assert (part.x[~part.mask] == 0).all()
        assert (part.dt[~part.mask] == 0).all()
        assert (part.dt[part.mask] * 256 >= 1).all()
    assert [part.mask.sum(1).max() for part in (events.train, events.test)] == [103, 105]
    assert content_hash(events.test.x, events.test.dt, events.test.mask) == "222dc4612b5b9385"


def test_events_are_those_of_the_published_loop(events, rows):
    stream = (rows.test.x[7].flatten() * 255).round() > 128
    expected, last, elapsed = [], -1, 0
    for bit in stream.int().tolist():
        elapsed += 1
        if bit != last:
            expected.append((bit, elapsed / 256))
            last, elapsed = bit, 0
    shown = events.test.mask[7]
    ours = zip(events.test.x[7][shown, 0].tolist(), events.test.dt[7][shown].tolist(), strict=True)
    assert list(ours) == expected


@settings(max_examples=50, deadline=None)
@given(arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 40))))
def test_streams_can_be_rebuilt_from_their_events(pixels):
    values, elapsed, counts = encode_changes(pixels)
    ends = np.cumsum(counts)
    for row, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
        starts = np.cumsum(elapsed[start:end]) - 1
        lengths = np.diff(starts, append=pixels.shape[1])
        assert np.repeat(values[start:end], lengths).tolist() == pixels[row].tolist()


@pytest.mark.thorough
def test_options(events):
    short = load_task("event-mnist", steps=105, holdout=0.1, download=False)
    assert short.sizes == (54000, 6000, 10000)
    assert torch.equal(short.valid.x, events.train.x[54000:, :105])
    assert load_task("seq-mnist", holdout=0.0, download=False).valid is None
    with pytest.raises(ArgumentError, match="holdout must be a number from 0 to"):
        load_task("seq-mnist", holdout=0.9)
    with pytest.raises(ArgumentError, match="steps must be at least 1"):
        load_task("event-mnist", steps=0)


def idx(array, kind=8):
    header = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes(), mtime=0)


def test_idx_round_trip(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "a.gz").write_bytes(idx(array))
    assert read_idx(tmp_path / "a.gz", 3).tolist() == array.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.gz begins with the bytes of an empty file"),
        (b"no gzip", r"a\.gz is not a gzip file .* get the file again"),
        (idx(np.zeros((2, 2), np.uint8))[:-12], r"a\.gz is not a gzip file"),
        (
            gzip.compress(b"", mtime=0),
            r"begins with the bytes of an empty file, expected 00 00 08 02",
        ),
        (idx(np.zeros((2, 2), np.uint8), kind=13), r"bytes 00 00 0d 02, expected 00 00 08 02"),
        (idx(np.zeros(4, np.uint8)), r"bytes 00 00 08 01, expected 00 00 08 02, .* with 2 axes"),
        (gzip.compress(b"\0\0\x08\x02\0", mtime=0), "and their lengths"),
        (
            gzip.compress(b"\0\0\x08\x02\0\0\0\2\0\0\0\2abc", mtime=0),
            r"\(2, 2\), but holds 3 .* expected 4",
        ),
    ],
)
def test_malformed_files_are_refused(tmp_path, content, message):
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(tmp_path / "a.gz", 2)


def test_other_arrays_than_mnist_are_refused(monkeypatch, tmp_path):
    paths = [tmp_path / name for name in sorted(SEQ_MNIST.files)]
    shapes = [(2, 28, 28), (2,), (3, 28, 28), (3,)]
    for path, shape in zip(paths, shapes, strict=True):
        path.write_bytes(idx(np.full(shape, 9, np.uint8)))
    with pytest.raises(DataError, match=r"train-images.* has shape \(3, 28, 28\), expected \(6000"):
        read_mnist(paths)
    monkeypatch.setattr("tauflow_papers.datasets.real.mnist.TRAIN_SIZE", 3)
    monkeypatch.setattr("tauflow_papers.datasets.real.mnist.TEST_SIZE", 2)
    assert [labels.tolist() for _, labels in read_mnist(paths)] == [[9, 9, 9], [9, 9]]
    paths[3].write_bytes(idx(np.array([9, 9, 10], np.uint8)))
    with pytest.raises(DataError, match=r"train-labels.* holds the label 10 in entry 2, expected"):
        read_mnist(paths)
