import numpy as np
import pytest

from tauflow.errors import DataError
from tauflow_papers.datasets.real.matlab import read_matlab

io = pytest.importorskip("scipy.io")


@pytest.fixture(params=[True, False], ids=["compressed", "plain"])
def path(request, tmp_path):
    cells = np.empty((1, 3), dtype=object)
    cells[0] = [np.arange(6.0).reshape(2, 3), np.zeros((2, 0)), np.array([[0.5]])]
    words = np.array([["a", "b"]], dtype=object)
    variables = {"cells": cells, "y": np.array([[1, 2, 3]], np.uint8), "words": words, "z": 1j}
    io.savemat(tmp_path / "a.mat", variables, do_compression=request.param)
    return tmp_path / "a.mat"


def test_numbers_and_cells_are_read(path):
    matlab = read_matlab(path)
    assert set(matlab) == {"cells", "y"}
    assert matlab["y"].tolist() == [[1, 2, 3]]
    assert [cell.tolist() for cell in matlab["cells"]] == [
        [[0, 1, 2], [3, 4, 5]],
        [[], []],
        [[0.5]],
    ]


def test_every_cut_within_a_variable_is_noticed(path):
    content, expected = path.read_bytes(), read_matlab(path)
    for size in range(0, len(content) - 8, 7):
        path.write_bytes(content[:size])
        try:
            matlab = read_matlab(path)
        except DataError:
            continue
        # A file that ends between two variables has the ones before.
        assert {name: str(value) for name, value in matlab.items()}.items() <= {
            name: str(value) for name, value in expected.items()
        }.items()


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.mat").write_bytes(b"x,y\n1,2\n")
    with pytest.raises(DataError, match=r"a\.mat is not a little-endian MATLAB 5 file"):
        read_matlab(tmp_path / "a.mat")
