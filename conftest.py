import os
import re
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

# Tests that run while jaxtyping checks annotations, as the Makefile lists them.
TYPED = re.search(
    r"^TYPED := (.*)$", (Path(__file__).parent / "Makefile").read_text("utf-8"), re.M
)[1].split()

# Tests that put every cell through the same: of many sets of parameters a tenth is enough for
# everyday use, another one for each test, so that every cell meets a part of them. Of unit tests
# those of more sets than that are over the catalog of cells.
TESTS = Path(__file__).parent / "tests"
MANY = {TESTS / folder: 8 for folder in ("conformance", "parity", "robustness")} | {
    TESTS / "unit": 40
}
ONE_IN = 10

# Triton asks once, when it is imported, whether to run its kernels on the CPU.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # For every kind of device that is not there torch's own keeps a formatted trace of the stack:
    # milliseconds under pytest, tens of thousands of times, and memory that is never given back.
    torch.manual_seed = torch.default_generator.manual_seed
else:  # or products warn wherever a test asks for deterministic algorithms
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


TABLE = """
name = "tiny"
title = "A tiny pendulum"
source = "Doe 2020, Table 0"
loss = "mse"
metric = "mse"
seeds = 2
recipe = { epochs = 2, batch_size = 6 }

[[part]]
name = ""
dataset = "pendulum"
options = { sizes = [12, 6, 6], steps = 5 }

[[row]]
name = "gru"
title = "GRU"
model = { cell = "gru", hidden_size = 3 }
published = { mean = 0.5, std = 0.1, n = 5 }

[[row]]
name = "future"
title = "Model of the future"
planned = "not-yet"
published = { mean = 0.1 }
"""
_TRIED = "tried: "


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="all tries of tests/robustness, all sets of parameters and tests marked `thorough`; "
        "the last two run without it where -k or the name of a test picks them",
    )
    parser.addoption(
        "--quick", action="store_true", help="a sixteenth of the parameters of every test"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for other times; mark the tests that run with annotated calls checked."""
    sets = Counter(map(_function, items))
    picked = config.getoption("keyword") or any("::" in argument for argument in config.args)
    if config.getoption("--quick"):
        _keep(config, items, lambda item: 16, without=("slow", "thorough"))
    elif not (config.getoption("--full") or picked):
        _keep(
            config,
            items,
            lambda item: _sampling(item, sets[_function(item)]),
            without=("thorough",),
        )
    typed = [Path(__file__).parent / file for file in TYPED]
    if missing := [str(file) for file in typed if not file.exists()]:
        raise pytest.UsageError(f"no file {', '.join(missing)}; correct the Makefile")
    for item in items:
        if _is_inside(item.path, *typed) and item.get_closest_marker("untyped") is None:
            item.add_marker("typed")


@cache
def _is_inside(path: Path, *folders: Path) -> bool:
    return any(map(path.is_relative_to, folders))


def _function(item: pytest.Item) -> str:
    """Return the name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def _sampling(item: pytest.Item, sets: int) -> int:
    """Return n, of a test of whose sets of parameters one in n is enough for everyday use."""
    if marker := item.get_closest_marker("sampled"):
        return marker.args[0]
    return (
        ONE_IN if any(sets > many and _is_inside(item.path, f) for f, many in MANY.items()) else 1
    )


def _keep(
    config: pytest.Config,
    items: list[pytest.Item],
    one_in: Callable[[pytest.Item], int],
    without: tuple[str, ...],
) -> None:
    """Deselect tests by their marks, and of every other one all but a few sets of parameters.

    Those kept are the first one and others by a digest of their names: the same ones every time.
    """
    selected, left, seen = [], [], set()
    for item in items:
        function = _function(item)
        few = function not in seen or zlib.crc32(item.nodeid.encode()) % one_in(item) == 0
        seen.add(function)
        keep = few and not any(map(item.get_closest_marker, without))
        (selected if keep else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = selected


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Let every test draw the same weights, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _boosting(request, monkeypatch) -> None:
    """Leave boosting out of forecasters but in its own tests: it takes a second of each fit."""
    if not {"estimators", "evaluation", "cli", "predict"} & set(request.path.parts):
        return
    if not request.config.getoption("--full") and request.path.name != "test_blending.py":
        monkeypatch.setattr("tauflow.estimators.forecast_boosting._MIN_ROWS", 10**9)


@pytest.fixture(autouse=True, scope="session")
def _parsed_data(tmp_path_factory):
    """Keep parsed data out of the user's cache; one folder, so that each set is parsed once."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # which the processes of one run share
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAUFLOW_CACHE", str(folder / "parsed"))
        yield


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def invoke(*words, code=0):
        from typer.testing import CliRunner

        from tauflow.cli.main import app

        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(TABLE, encoding="utf-8")
    return file


@pytest.fixture
def data_cache(monkeypatch, tmp_path):
    from tauflow.data import store

    monkeypatch.delenv(store.DATA_VARIABLE, raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache" / "tauflow" / "data"


@pytest.fixture
def tries(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[..., int]:
    """Return ``tries(what, few=..., full=...)``: the number of tries to make of ``what``.

    ``few`` in ``make test``, ``full`` under ``--full``. A run prints the sum for each ``what``.
    """

    def count(what: str, *, few: int, full: int) -> int:
        number = full if request.config.getoption("--full") else few
        record_property(_TRIED + what, number)
        return number

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was tried by the tests that passed, and how often."""
    sums: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name.startswith(_TRIED):
                sums[name.removeprefix(_TRIED)] += value
    if sums:
        terminalreporter.section("tried and survived")
        for name, number in sorted(sums.items()):
            terminalreporter.write_line(f"{number:>10,}  {name}")
