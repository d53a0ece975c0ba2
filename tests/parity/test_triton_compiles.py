"""The Triton kernels compile for GPUs, and fit them, which the interpreter cannot tell."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="triton is not installed"
    ),
]

SPILLS = 400
"""Bytes that a thread may keep in the cache at most: numbers used once per step or less."""

SHARED = {80: 163 * 1024, 90: 227 * 1024}
"""Bytes of shared memory that one program may take, by compute capability."""


@pytest.mark.thorough
@pytest.mark.sampled(5)
@pytest.mark.parametrize("capability", [90, 80])  # the first one compiles every kernel
def test_kernels_fit_the_processors(capability, tmp_path, request):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).parent / "triton_compiled.py"
    few = [] if request.config.getoption("--full") else ["few"]
    command = [sys.executable, str(script), str(capability), *few]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    resources = json.loads(run.stdout)
    assert len(resources) >= 4
    assert {name: use for name, use in resources.items() if use["spills"] > SPILLS} == {}
    room = SHARED[capability]
    assert {name: use for name, use in resources.items() if use["shared"] > room} == {}
    assert {n: u for n, u in resources.items() if u["shared"] > u.get("planned", room)} == {}
    assert all(0 < use["registers"] <= 255 for use in resources.values())
