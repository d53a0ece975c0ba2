import numpy as np
import pytest
import torch
from published_data import content_hash, load_or_skip

from tauflow.data.registry import load_task
from tauflow.data.store import find_data_folder
from tauflow.errors import ChecksumError, DataNotFoundError
from tauflow_papers.datasets.real.half_cheetah import HALF_CHEETAH

HASHES = ["1e9c5bd53047282c", "1029eb4409e36cb5", "422ad59cd90e04a0"]


@pytest.fixture
def data():
    return load_or_skip("half-cheetah")


def test_counts_and_shapes(data):
    assert data.sizes == (970, 485, 970)
    for part in (data.train, data.valid, data.test):
        assert part.x.shape == part.y.shape == (len(part), 32, 17)
        assert part.x.dtype == part.y.dtype == torch.float32
        assert part.dt is part.mask is None


def test_persistence_has_the_known_error(data):
    assert ((data.test.x - data.test.y) ** 2).mean().item() == pytest.approx(62.9, abs=0.05)


def test_target_is_the_next_input(data):
    assert torch.equal(data.train.y[:, :-1], data.train.x[:, 1:])


@pytest.mark.parametrize(("part", "first_trace"), [("valid", 0), ("test", 5), ("train", 15)])
def test_parts_begin_with_their_first_trace(data, part, first_trace):
    trace = np.load(find_data_folder(data.card) / f"trace_{first_trace:04d}.npy")
    batch = getattr(data, part)
    assert (batch.x[96].numpy() == trace[960:992].astype(np.float32)).all()
    assert (batch.y[96].numpy() == trace[961:993].astype(np.float32)).all()


def test_content(data):
    hashes = [content_hash(part.x, part.y) for part in (data.train, data.valid, data.test)]
    assert hashes == HASHES


def test_truncated_file_is_refused(data, tmp_path):
    folder = tmp_path / "half_cheetah"
    folder.mkdir()
    for source in find_data_folder(data.card).glob("*.npy"):
        (folder / source.name).write_bytes(source.read_bytes())
    damaged = folder / "trace_0007.npy"
    damaged.write_bytes(damaged.read_bytes()[:-8])
    with pytest.raises(
        ChecksumError, match=r"trace_0007\.npy is damaged .* 'tauflow data get half-cheetah'"
    ):
        load_task("half-cheetah", root=tmp_path, download=False)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"trace_0000\.npy and 30 more files not found"):
        load_task("half-cheetah", root=tmp_path, download=False)


def test_packaged_checksums_are_complete():
    files = HALF_CHEETAH.files
    assert len(files) == len(set(files.values())) == 31
    assert {len(digest) for digest in files.values()} == {64}
    assert f"/{HALF_CHEETAH.source.rsplit('@', 1)[-1]}" in HALF_CHEETAH.base_url
