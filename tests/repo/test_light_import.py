"""``import tauflow`` loads torch and nothing heavier, not even what is converted from."""

import subprocess
import sys

import pytest
from derived import PACKAGES

HEAVY = {
    *("numba", "triton", "sklearn", "scipy", "pandas", "narwhals", "networkx"),
    *("matplotlib", "rich", "typer", "pooch", "jinja2", "joblib", "ncps", "beartype"),
    *("torchode", "torchtyping", "torchdiffeq"),
}


@pytest.mark.slow
def test_import_is_light():
    code = "import sys, torch; before = set(sys.modules); import tauflow, tauflow.export; "
    code += "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "tauflow" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.slow
def test_packages_that_load_more_are_found_as_attributes():
    code = "import sys, tauflow; assert 'tauflow.estimators' not in sys.modules; "
    code += f"names = {PACKAGES}; assert set(names) <= set(dir(tauflow)); "
    code += "print(*(getattr(tauflow, name).__name__ for name in names))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [f"tauflow.{name}" for name in PACKAGES]
