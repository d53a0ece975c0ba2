"""Where numba is installed and cannot be used, nothing is compiled and everything runs."""

import os
import subprocess
import sys

import pytest

CODE = """
import warnings
import torch, tauflow
warnings.simplefilter("ignore")
x = torch.randn(2, 5, 3)
for backend in ("auto", "reference"):
    assert tauflow.GRU(3, 4, backend=backend)(x)[0].shape == (2, 5, 4)
assert tauflow.GRU(3, 4).stream().step(x[0, 0]).shape == (4,)
try:
    tauflow.GRU(3, 4, backend="numba")(x)
except tauflow.errors.BackendError as error:
    assert "or NUMBA_DISABLE_JIT is set" in str(error), error
else:
    raise AssertionError("numba ran")
"""


@pytest.mark.parametrize(
    "trouble", ["import", pytest.param("switched off", marks=pytest.mark.thorough)]
)
def test_networks_run_without_it(trouble, tmp_path):
    (tmp_path / "numba").mkdir()
    variables = {"NUMBA_DISABLE_JIT": "1"}
    if trouble == "import":
        text = 'raise ImportError("numba needs an older NumPy")'
        (tmp_path / "numba" / "__init__.py").write_text(text, encoding="utf-8")
        paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
        variables = {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
