"""Where compiled kernels are kept, and whose entries are read."""

import gc
import importlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from tauflow.kernels.cpu import cache as kernel_cache
from tauflow.kernels.cpu.jit import inline, kernel

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")


@pytest.fixture(autouse=True)
def named(tmp_path, monkeypatch):
    """Name a folder for the cache, and give the user a home."""
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        kernel_cache.appdirs, "user_cache_dir", lambda name, _: str(tmp_path / "home" / name)
    )
    for known in (kernel_cache.get_cache_folder, kernel_cache._warn_once):
        known.cache_clear()
    yield tmp_path
    for known in (kernel_cache.get_cache_folder, kernel_cache._warn_once):
        known.cache_clear()


def doubled():
    def double(values):
        return values * 2

    compiled = kernel(double)
    assert (compiled(np.ones(2, np.float32)) == 2).all()
    return compiled


SEQUENCE = "model(x, dt=dt)"
STREAM = "model.stream().step(x[0, 0], 1.0)"
BOTH = """
stream = model.stream()
steps = torch.stack([stream.step(x[0, at], float(dt[0, at])) for at in range(9)])
model.backend = "reference"
expected = model(x, dt=dt)[0]
torch.testing.assert_close(steps, expected[0], rtol=0, atol=1e-5)
torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
"""


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["lem", "cfc"])
def test_kernels_of_several_processes_do_not_take_each_others_functions(named, name):
    for lines in (
        SEQUENCE,
        STREAM,
        f"{STREAM}\nfound = {SEQUENCE}[0]{BOTH}",
        f"found = {SEQUENCE}[0]{BOTH}",
    ):
        program = f"""
import torch, tauflow
torch.set_grad_enabled(False)
x, dt = torch.randn(1, 9, 3), torch.rand(1, 9)
model = tauflow.build({name!r}, 3, 6).eval()
{lines}
"""
        # In the names of functions stand their flags, in the order of a set.
        environment = {"NUMBA_CACHE_DIR": str(named / "shared"), "PYTHONHASHSEED": "0"}
        subprocess.run([sys.executable, "-c", program], env=os.environ | environment, check=True)


def test_functions_that_kernels_call_have_names_of_their_own():
    dispatcher = pytest.importorskip("numba.core.dispatcher").Dispatcher
    folder = Path(kernel_cache.__file__).parents[1]
    for path in folder.rglob("numba_*.py"):
        importlib.import_module(".".join(("tauflow.kernels", path.parent.name, path.stem)))
    functions = [value.py_func for value in gc.get_objects() if issubclass(type(value), dispatcher)]
    names = Counter(
        (function.__module__, function.__qualname__)
        for function in functions
        if function.__module__.startswith("tauflow.kernels.")
    )
    assert len(names) > 100
    assert max(names.values()) == 1


def test_functions_that_could_be_taken_for_each_other_are_refused():
    def made(name):
        @inline(name=name)
        def identity(value):
            return value

        return identity

    made("first")
    made("second")
    for name in (None, "second"):
        with pytest.raises(ValueError, match=r"could be taken for another one .* name="):
            made(name)
    with pytest.raises(ValueError, match="<lambda>"):
        inline(lambda value: value)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_second_process_finds_the_kernel(named):
    first, second = doubled(), doubled()
    assert not first.stats.cache_hits
    assert second.stats.cache_hits
    folder = kernel_cache.get_cache_folder()
    assert folder.is_relative_to(named / "named")
    assert first.stats.cache_path == str(folder)
    assert first._cache.has_entries(first.targetctx)
    first._cache.flush()
    assert not first._cache.has_entries(first.targetctx)


@needs_owners
def test_folder_and_entries_are_private(named):
    before = os.umask(0)
    try:
        doubled()
    finally:
        os.umask(before)
    folder = kernel_cache.get_cache_folder()
    assert mode(folder) == 0o700
    assert [mode(path) for path in folder.iterdir()] == [0o600]


def test_without_a_folder_every_process_compiles(named, monkeypatch, caplog):
    (named / "file").write_text("")
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(named / "file"))
    assert doubled().stats.cache_path is None
    assert not doubled().stats.cache_hits
    (record,) = caplog.records
    assert "kernels are compiled in every process" in record.getMessage()
    assert str(named / "file") in record.getMessage()


def test_a_full_disk_costs_time_only(monkeypatch, caplog):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    kernel_cache.get_cache_folder()
    monkeypatch.setattr(kernel_cache.tempfile, "NamedTemporaryFile", full)
    doubled()
    doubled()
    (record,) = caplog.records
    assert "compiled kernels cannot be kept in" in record.getMessage()
    assert "No space left" in record.getMessage()


def test_what_a_kernel_is_made_of_is_in_its_name(named, monkeypatch):
    names = set()
    for sources, checked in [("a", None), ("b", None), ("b", 1)]:
        monkeypatch.setattr(kernel_cache.config, "BOUNDSCHECK", checked)
        compiled = doubled()
        family = kernel_cache.KernelCache(compiled.py_func, sources)._entry_prefix(
            compiled.targetctx
        )
        names.add(family)
    assert len(names) == 3


def test_all_environments_share_the_users_cache(named, monkeypatch):
    assert kernel_cache.get_cache_folder() == named / "named" / "tauflow-kernels"
    kernel_cache.get_cache_folder.cache_clear()
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", "")
    assert kernel_cache.get_cache_folder() == named / "home" / "tauflow" / "kernels"


@inline
def triple(values):
    for at in range(values.size):
        values[at] *= 3


def test_functions_that_kernels_call_have_no_machine_code_of_their_own():
    @kernel
    def triple_twice(values):
        triple(values)
        triple(values)

    values = np.ones(40, np.float32)
    triple_twice(values)
    assert (values == 9).all()
    (compiled,) = triple.overloads.values()
    assert not compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
