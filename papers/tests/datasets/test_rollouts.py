import numpy as np
import pytest

from tauflow.errors import DataError
from tauflow_papers.datasets.real.rollouts import read_rollout


def saved(tmp_path, array):
    path = tmp_path / "rollout_003.npy"
    np.save(path, array)
    return path


def test_reads_single_precision(tmp_path):
    values = np.arange(12.0).reshape(4, 3) / 7
    rollout = read_rollout(saved(tmp_path, values), 3)
    assert rollout.dtype == np.float32
    assert (rollout == values.astype(np.float32)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_value_that_is_not_finite_is_located(tmp_path, bad):
    values = np.zeros((4, 3))
    values[2, 1] = bad
    with pytest.raises(DataError, match=rf"rollout_003\.npy holds {bad} in row 2, column 1"):
        read_rollout(saved(tmp_path, values), 3)


@pytest.mark.parametrize("shape", [(4, 5), (12,), (4, 3, 1), (1, 3)])
def test_wrong_shape_is_refused(tmp_path, shape):
    with pytest.raises(DataError, match=r"rollout_003\.npy has shape .*, expected \(T, 3\)"):
        read_rollout(saved(tmp_path, np.zeros(shape)), 3)


@pytest.mark.parametrize("dtype", ["f4", "i8", "U3"])
def test_wrong_dtype_is_refused(tmp_path, dtype):
    with pytest.raises(DataError, match=r"rollout_003\.npy has dtype .*, expected float64"):
        read_rollout(saved(tmp_path, np.zeros((4, 3), dtype)), 3)


def test_file_that_is_no_array_is_refused(tmp_path):
    path = tmp_path / "rollout_003.npy"
    for content in (b"", b"<html>404</html>", saved(tmp_path, np.zeros((4, 3))).read_bytes()[:-1]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"rollout_003\.npy is not an array file"):
            read_rollout(path, 3)


def test_pickled_objects_are_never_run(tmp_path):
    with pytest.raises(DataError, match="is not an array file"):
        read_rollout(saved(tmp_path, np.array([{"a": 1}], dtype=object)), 3)
