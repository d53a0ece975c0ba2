"""The comparison on GPUs, rehearsed through Triton's interpreter; and the processes it runs in."""

import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy")
THERE = {"torch", "torchgen", "functorch", "numpy", "triton", "typing_extensions", *TORCH_NEEDS}
"""Where PyTorch, Triton and NumPy are installed, and nothing else."""

REHEARSED = """
import runpy, sys
from benchmarks.bare import stand_in

stand_in()
from benchmarks import hour


def lost(sizes, arguments):
    raise RuntimeError("an illegal memory access was encountered")


broken = ("chunks in time", "training steps beside the compiled reference")
hour.STEPS = [
    hour.Step(step.name, step.seconds, lost if step.name in broken else step.plan)
    for step in hour.STEPS
]
sys.argv[1:] = ["gpu", "--all", "--out", sys.argv[1]]
runpy.run_module("benchmarks", run_name="__main__")
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_every_step_runs_with_torch_triton_and_numpy_alone(tmp_path):
    pytest.importorskip("triton", reason="triton is not installed")
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(torch.__file__).parents[1].iterdir():
        if re.split(r"[-.]", path.name)[0] in THERE:
            (packages / path.name).symlink_to(path)
    settings = {"PYTHONPATH": str(packages), "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-S", "-c", REHEARSED, str(tmp_path)]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    (numbers,) = tmp_path.glob("*.json")
    steps = json.loads(numbers.read_text("utf-8"))
    failures = {name: step["failures"] for name, step in steps.items() if step["failures"]}
    broken = ("chunks in time", "training steps beside the compiled reference")
    why = "RuntimeError: an illegal memory access was encountered"
    assert failures == {name: [{"case": "all", "why": why}] for name in broken}, ran.stderr
    assert list(steps)[-3:] == ["memory", "compile times", broken[1]]
    assert all(step["rows"] for name, step in steps.items() if name not in broken)
    assert {row["outcome"] for row in steps["parity"]["rows"]} == {"passed"}
    loops = steps["training steps beside ncps and the reference"]["rows"][0]
    assert set(loops["values"]) == {"tauflow", "reference"}
    assert loops["notes"] == {"ncps": "ncps is not installed"}
    text = numbers.with_suffix(".md").read_text("utf-8")
    assert f"- all: **{why}**" in text
    assert "| CfC, N 2, packed, ms |" in text
    assert "| test_triton_equals_reference | 1 | 0 | 0 |" in text


def cases(isolated):
    """Return cases that end in every way, each with a word before."""

    def ends(how):
        yield {"said": how}
        if how == "raises":
            raise ValueError("not this way\nmore of it")
        if how == "dies":
            os._exit(9)
        if how == "hangs":
            time.sleep(60)

    ways = ("raises", "dies", "hangs", "ends")
    return [isolated.Case(how, partial(ends, how), 0.5) for how in ways]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("workers", [1, 3])
def test_a_case_that_crashes_or_hangs_costs_itself_only(workers, monkeypatch, capfd):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import isolated

    rows, failures = {}, {}
    isolated.run_cases(
        cases(isolated),
        workers=workers,
        seconds=60,
        on_row=rows.__setitem__,
        failed=failures.__setitem__,
    )
    assert rows == {how: {"said": how} for how in ("raises", "dies", "hangs", "ends")}
    assert failures == {
        "raises": "ValueError: not this way",
        "dies": "its process ended with code 9",
        "hangs": "stopped: it took longer than it may",
    }
    assert "not this way" in capfd.readouterr().err


def test_what_the_time_does_not_allow_is_left_out(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import isolated

    failures = {}
    isolated.run_cases(
        cases(isolated), workers=2, seconds=0, on_row=print, failed=failures.__setitem__
    )
    assert set(failures.values()) == {"left out: the time was over"}
    assert list(failures) == ["raises", "dies", "hangs", "ends"]
