import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

# Tests of the rooms whose annotations jaxtyping checks, as the Makefile lists them.
TYPED_ROOMS = re.search(
    r"^TYPED_ROOMS := (.*)$", (Path(__file__).parents[1] / "Makefile").read_text("utf-8"), re.M
)[1].split()

# Triton asks once, when it is imported, whether to run its kernels on the CPU.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # For every kind of device that is not there torch's own keeps a formatted trace of the stack:
    # milliseconds under pytest, tens of thousands of times, and memory that is never given back.
    torch.manual_seed = torch.default_generator.manual_seed
else:  # or products warn wherever a test asks for deterministic algorithms
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="all tries of tests/robustness, and all parameters of tests marked `sampled`",
    )
    parser.addoption(
        "--quick", action="store_true", help="a sixteenth of the parameters of every test"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that run with every annotated call checked."""
    if config.getoption("--quick"):
        _keep(config, items, lambda item: 16, slow=False)
    elif not config.getoption("--full"):
        _keep(config, items, _sampling)
    rooms = [Path(__file__).parents[1] / room for room in TYPED_ROOMS]
    if missing := [str(room) for room in rooms if not room.is_dir()]:
        raise pytest.UsageError(f"no folder {', '.join(missing)}; correct the Makefile")
    for item in items:
        inside = any(item.path.is_relative_to(room) for room in rooms)
        if inside and item.get_closest_marker("untyped") is None:
            item.add_marker("typed")


def _sampling(item: pytest.Item) -> int:
    """Return n, of a test of whose sets of parameters one in n is enough for everyday use."""
    marker = item.get_closest_marker("sampled")
    return marker.args[0] if marker else 1


def _keep(
    config: pytest.Config,
    items: list[pytest.Item],
    one_in: Callable[[pytest.Item], int],
    *,
    slow: bool = True,
) -> None:
    """Deselect of every test all but a few sets of parameters.

    Those kept are the first one and others by a digest of their names: the same ones every time.
    """
    kept, left, met = [], [], set()
    for item in items:
        function = item.nodeid.partition("[")[0]
        few = function not in met or zlib.crc32(item.nodeid.encode()) % one_in(item) == 0
        met.add(function)
        keep = few and (slow or item.get_closest_marker("slow") is None)
        (kept if keep else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Let every test draw the same weights, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _parsed_data(tmp_path_factory):
    """Keep parsed data out of the user's cache; one folder, so that each set is parsed once."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # which the processes of one run share
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAUFLOW_CACHE", str(folder / "parsed"))
        yield
