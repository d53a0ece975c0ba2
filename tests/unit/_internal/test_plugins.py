"""Modules that add to the catalogs when they are imported, found by name in any process."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from threading import Thread

import pytest

import tauflow
from tauflow._internal import plugins
from tauflow._internal.checks import check_one_of
from tauflow._internal.registry import Registry
from tauflow.errors import ArgumentError, UnknownNameError


@pytest.fixture
def colours(tmp_path, monkeypatch):
    """Return a registry that modules in tmp_path can add to, with no plugin loaded so far."""
    registry = Registry("colour", {"red": 1})
    monkeypatch.setitem(sys.modules, "catalog_of_colours", types.ModuleType("catalog_of_colours"))
    sys.modules["catalog_of_colours"].COLOURS = registry
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv(plugins.PLUGINS_VARIABLE, raising=False)
    before = set(sys.modules)
    for state in ("_started", "_finished"):
        monkeypatch.setattr(plugins, state, set())
    monkeypatch.setattr(plugins, "_failures", {})
    plugins._plugins_from_entry_points.cache_clear()
    yield registry
    plugins._plugins_from_entry_points.cache_clear()
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(folder, name, code):
    start = "from catalog_of_colours import COLOURS\n"
    (folder / f"{name}.py").write_text(start + textwrap.dedent(code), encoding="utf-8")


def test_a_plugin_is_imported_when_a_name_is_missing(tmp_path, monkeypatch, colours):
    write(tmp_path, "plug_pink", "COLOURS.add('pink', 2)")
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "plug_pink")
    assert colours["red"] == 1
    assert check_one_of(colours, colour="red") == "red"
    assert "plug_pink" not in sys.modules
    assert colours["pink"] == 2
    with pytest.raises(UnknownNameError, match=r"unknown colour 'green'.*Known: pink, red\.$"):
        colours["green"]


@pytest.mark.parametrize("look", [list, len, dict, lambda known: "pink" in known])
def test_a_plugin_is_imported_when_names_are_listed(look, tmp_path, monkeypatch, colours):
    write(tmp_path, "plug_listed", "COLOURS.add('pink', 2)")
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, " plug_listed ,")
    assert look(colours) in (["red", "pink"], 2, {"red": 1, "pink": 2}, True)


def test_a_registry_may_do_without_plugins(tmp_path, monkeypatch, colours):
    write(tmp_path, "plug_never", "COLOURS.add('pink', 2)")
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "plug_never")
    closed = Registry("solver", {"euler": 1}, plugins=False)
    assert "fused" not in closed
    assert list(closed) == ["euler"]
    assert "plug_never" not in sys.modules


def test_an_installed_package_names_its_plugin(tmp_path, colours):
    write(tmp_path, "plug_installed", "COLOURS.add('pink', 2)")
    info = tmp_path / "pinks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pinks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tauflow.plugins]\npinks = plug_installed\n")
    assert colours["pink"] == 2


def test_a_plugin_that_fails_is_told_by_its_name_and_keeps_no_other_away(
    tmp_path, monkeypatch, colours
):
    write(tmp_path, "plug_broken", "COLOURS.add('red', 2)")
    write(tmp_path, "plug_leaves", "raise SystemExit('left')")
    write(tmp_path, "plug_whole", "COLOURS.add('pink', 2)")
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "plug_absent,plug_broken,plug_leaves,plug_whole")
    with pytest.warns(UserWarning, match="could not be loaded") as caught:
        assert colours["pink"] == 2
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 3
    assert "'plug_absent' of TAUFLOW_PLUGINS" in messages[0]
    assert "PYTHONPATH" in messages[0]
    assert "'plug_broken'" in messages[1]
    assert "colour 'red' is registered already" in messages[1]
    with pytest.raises(UnknownNameError, match=r"'green'.*'plug_absent'.*'plug_broken'.*left"):
        colours["green"]


def test_an_interrupted_plugin_is_loaded_by_the_next_call(tmp_path, monkeypatch, colours):
    flag = tmp_path / "again"
    write(
        tmp_path,
        "plug_stopped",
        f"""
        from pathlib import Path
        if not Path({str(flag)!r}).exists():
            raise KeyboardInterrupt
        COLOURS.add("pink", 2)
        """,
    )
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "plug_stopped")
    with pytest.raises(KeyboardInterrupt):
        colours["pink"]
    flag.touch()
    assert colours["pink"] == 2


def test_a_name_that_a_plugin_gives_while_it_is_added_is_not_replaced(
    tmp_path, monkeypatch, colours
):
    """A script adds a name that a plugin adds too, and is asked whether another catalog has it."""
    write(tmp_path, "plug_first", "COLOURS.add('pink', 2)")
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "plug_first")
    shades = Registry("shade", {})
    colours.add_check(lambda name, entry: name in shades)
    with pytest.raises(ArgumentError, match="'pink' is registered already"):
        colours.add("pink", 3)
    assert colours["pink"] == 2


def test_a_plugin_may_need_what_another_one_adds(tmp_path, monkeypatch, colours):
    write(tmp_path, "plug_needs", "COLOURS.add('purple', COLOURS['blue'] + COLOURS['red'])")
    write(tmp_path, "plug_gives", "COLOURS.add('blue', 4)")
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "plug_needs,plug_gives")
    assert colours["purple"] == 5


def test_other_threads_wait_until_a_plugin_is_there(tmp_path, monkeypatch, colours):
    write(tmp_path, "plug_slow", "import time; time.sleep(0.3); COLOURS.add('pink', 2)")
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "plug_slow")
    colours_of_threads = []
    threads = [
        Thread(target=lambda: colours_of_threads.append(colours.get("pink"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert colours_of_threads == [2, 2, 2, 2]


def test_a_worker_says_how_it_comes_to_know_a_name(monkeypatch, colours):
    with pytest.raises(UnknownNameError, match=r"Known: red\.$"):
        colours["green"]
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    with pytest.raises(UnknownNameError, match=r"worker process.*in TAUFLOW_PLUGINS\.$"):
        colours["green"]


@pytest.mark.thorough
@pytest.mark.slow
def test_no_import_of_tauflow_loads_plugins(tmp_path):
    """A plugin imports tauflow itself, and would find a part of it half made."""
    (tmp_path / "plug_seen.py").write_text("import tauflow.cells\n")
    code = """
        import pkgutil, importlib, sys, tauflow
        for module in pkgutil.walk_packages(tauflow.__path__, "tauflow."):
            try:
                if not module.name.endswith("__main__"):
                    importlib.import_module(module.name)
            except ImportError:  # an extra is not installed
                pass
            assert "plug_seen" not in sys.modules, module.name
        len(tauflow.cells.MODELS)
        print("plug_seen" in sys.modules)
    """
    places = [str(tmp_path), str(Path(tauflow.__file__).parents[1])]
    environment = {"PYTHONPATH": os.pathsep.join(places), plugins.PLUGINS_VARIABLE: "plug_seen"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert ended.stdout.split()[-1:] == ["True"], ended.stderr
