"""``tauflow doctor``: what there is on this machine, and what is missing."""

import importlib.metadata
import os
import platform
import time

import torch

# What the extras bring, by the name under which it is installed.
_OPTIONAL_PACKAGES = {
    "tables": ("pandas", "narwhals"),
    "sklearn": ("scikit-learn",),
    "ode": ("torchode",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "cluster": ("distributed",),
    "tune": ("optuna",),
    "parquet": ("pyarrow",),
    "sb3": ("sb3-contrib", "gymnasium"),
    "scipy": ("scipy",),
    "gpu": ("triton",),
}


def doctor() -> None:
    """Say what is installed, which kernels can run here and why others cannot, and try one."""
    from tauflow.kernels.cpu.cache import get_cache_folder
    from tauflow.runs.results import describe_machine, get_versions

    from .output import print_line, print_table

    environment = {**get_versions(), "numba": _get_version("numba"), **describe_machine()}
    if hasattr(os, "getloadavg"):
        environment["load"] = f"{os.getloadavg()[0]:.0f} in the last minute"
    environment["vector width"] = torch.backends.cpu.get_cpu_capability()
    environment["CUDA"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "no device"
    environment["data"] = os.environ.get("TAUFLOW_DATA") or "in the user's cache"
    environment["compiled loops"] = _describe_loops()
    environment["compiled kernels"] = get_cache_folder() or "no folder to keep them can be written"
    if os.environ.get("TAUFLOW_BACKEND"):
        environment["TAUFLOW_BACKEND"] = os.environ["TAUFLOW_BACKEND"]
    print_table(
        ("what", "here"), [(key, str(value)) for key, value in environment.items()], no_wrap=(0,)
    )
    extras = [
        (extra, ", ".join(f"{name} {_get_version(name)}" for name in names))
        for extra, names in _OPTIONAL_PACKAGES.items()
    ]
    print_table(("extra", "brings"), extras, no_wrap=(0,))
    print_table(("backend", "cells", "in the way"), _list_kernels(), no_wrap=(0,))
    print_line(_run_self_test())


def _describe_loops() -> str:
    """Return the vectors and threads of compiled loops, and whether anybody has run them here."""
    from tauflow._internal.sanitize import format_count
    from tauflow.kernels.cpu.binding import describe_threads
    from tauflow.kernels.cpu.tiles import find_own_vector_unit

    here = f"{platform.system()} {platform.machine()}"
    untried = "" if here == "Linux x86_64" else f"; untried on {here}"
    lanes = find_own_vector_unit().lanes
    return f"vectors of {format_count(lanes, 'float')}; {describe_threads()}{untried}"


def _get_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _list_kernels() -> list[tuple[str, str, str]]:
    """Return the cells of every backend by what hinders it, for plain calls on its own device."""
    from tauflow.cells import MODELS
    from tauflow.kernels import KernelCall, get_kernels
    from tauflow.kernels.engine.requirements import TRITON_INTERPRETED

    cells_by_reason: dict[tuple[str, str], dict[str, None]] = {}
    on_gpu = torch.cuda.is_available()
    cells = dict.fromkeys(entry.cell for entry in MODELS.values())
    for row in (row for cell in cells for row in get_kernels(cell(2, 4))):
        device = "cuda" if row.device == "cuda" and on_gpu and not TRITON_INTERPRETED else "cpu"
        cell = row.cell(2, 4).to(device)
        x, dt = torch.zeros(1, 2, 2, device=device), torch.ones(1, 2, 1, device=device)
        call = KernelCall(cell, x, x.new_zeros(1, cell.state_size), dt)
        reason = "no CUDA device" if row.device == "cuda" and not on_gpu else None
        key = row.backend, reason or row.unsupported_reason(call) or "nothing"
        cells_by_reason.setdefault(key, {})[row.cell.__name__] = None
    return [
        (backend, ", ".join(cells), reason) for (backend, reason), cells in cells_by_reason.items()
    ]


def _run_self_test() -> str:
    """Train a small network for a second or so, compiling nothing, and say whether it learned."""
    import tauflow

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        x = torch.randn(64, 6, 2)
        y = x[:, -1, :1] + 0.5 * x[:, -2, 1:]
        body = tauflow.CfC(2, 8, backbone_units=16, return_sequences=False, backend="reference")
        model = tauflow.SequenceModel(body, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        losses, began = [], time.perf_counter()
        for _ in range(100):
            optimizer.zero_grad()
            loss = (model(x)[0] - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    seconds, first, last = time.perf_counter() - began, losses[0], losses[-1]
    verdict = "All is well." if last < 0.3 * first else "It did not learn; please report that."
    return f"A CfC learned for {seconds:.1f} s: error {first:.3f}, then {last:.3f}. {verdict}"
