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


CODE = f"""
import sys, torch
before = set(sys.modules)
import tauflow, tauflow.export
print(*sorted({{name.split('.')[0] for name in set(sys.modules) - before}}))
assert 'tauflow.estimators' not in sys.modules
names = {PACKAGES}
assert set(names) <= set(dir(tauflow))
print(*(getattr(tauflow, name).__name__ for name in names))
"""


@pytest.mark.slow
def test_import_is_light_and_packages_that_load_more_are_found_as_attributes():
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    first, second = map(str.split, run.stdout.splitlines())
    assert "tauflow" in first
    assert HEAVY.isdisjoint(first)
    assert second == [f"tauflow.{name}" for name in PACKAGES]
