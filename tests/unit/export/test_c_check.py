"""Which compiler checks C code, and what is said of one that cannot."""

import shutil
import sys

import pytest
import torch

import tauflow
from tauflow.errors import ExportError
from tauflow.export import to_c
from tauflow.export.c_check import find_compiler

CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("variable", [None, "", " "])
def test_without_cc_a_known_compiler_is_taken(variable, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    if variable is not None:
        monkeypatch.setenv("CC", variable)
    assert find_compiler() == [CC]
    monkeypatch.setenv("PATH", "")
    assert find_compiler() is None


@pytest.mark.thorough
def test_cc_may_hold_options_which_the_compiler_gets(tmp_path, monkeypatch):
    log = tmp_path / "told"
    wrapper = script(tmp_path / "my cc", f'echo "$@" > "{log}"\nexec "{CC}" "$@"')
    for variable, options in (
        (f'"{wrapper}" -O2 "-DA=1 + 1"', "-O2 -DA=1 + 1 "),
        (str(wrapper), ""),
    ):
        monkeypatch.setenv("CC", variable)
        parity = to_c(tauflow.CfC(2, 3).eval(), tmp_path / "c").parity
        assert log.read_text().startswith(f"{options}-std=c99 -O1 -o")
        assert parity.steps == 1000
        log.unlink()


def test_a_compiler_may_be_named_from_the_folder_one_is_in(tmp_path, monkeypatch):
    script(tmp_path / "mine", f'exec "{CC}" "$@"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC", "./mine -O2")
    assert to_c(tauflow.CfC(2, 3).eval(), "c").parity.steps == 1000


@pytest.mark.parametrize("variable", ["no-such-cc -O2", "no-such-cc", 'cc "-O2', "''"])
def test_a_compiler_that_is_not_here_is_named(variable, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", variable)
    with pytest.raises(ExportError, match=r"environment variable CC is .*is no program that is h"):
        to_c(tauflow.CfC(2, 3).eval(), tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="scripts of a shell")
def test_code_for_another_machine_is_told(tmp_path, monkeypatch):
    foreign = 'while [ "$1" != -o ]; do shift; done; printf "\\177ELF??" > "$2"; chmod +x "$2"'
    monkeypatch.setenv("CC", str(script(tmp_path / "cross", foreign)))
    with pytest.raises(ExportError, match=r"what .*cross makes does not run here: Exec format err"):
        to_c(tauflow.CfC(2, 3).eval(), tmp_path / "c")


def test_a_model_with_a_kernel_by_name_is_checked_in_double_precision(tmp_path):
    pytest.importorskip("numba")
    torch.manual_seed(0)
    body = tauflow.CfC(2, 3, return_sequences=False, backend="numba")
    written = to_c(tauflow.SequenceModel(body, 1).eval(), tmp_path / "c")
    assert written.parity.max_difference <= 1e-5
    assert body.backend == "numba"
