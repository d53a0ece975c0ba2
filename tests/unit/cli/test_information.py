"""Commands that only tell: about the program, this machine, and models."""

import inspect
import re
from itertools import pairwise

import pytest
import torch

from tauflow.cells import ElmanCell
from tauflow.cells.registry import MODELS, ModelEntry
from tauflow.cli import doctor as module
from tauflow.kernels.cpu import binding
from tauflow.models.registry import get_model_entry

ITEM = r"\s|[A-Z][\w ]+: "


def test_without_a_word_it_says_what_there_is_to_do(call):
    output = call().output
    assert len(re.findall(r"^  tauflow ", output, re.MULTILINE)) == 4
    assert "'tauflow --help' lists all commands" in output


def test_the_doctor_names_versions_kernels_and_what_is_missing(call, monkeypatch):
    monkeypatch.setenv("TAUFLOW_BACKEND", "reference")
    monkeypatch.setattr(module, "_OPTIONAL_PACKAGES", {"none": ("no-such-package",)})
    output = call("doctor").output
    assert torch.__version__ in output
    assert "no-such-package (not installed)" in output
    assert re.search(r"numba +. LTCCell, .* nothing", output)
    assert re.search(r"numba +. PhasedLSTMCell .* its step cannot be traced", output)
    hindrance = "nothing" if torch.cuda.is_available() else "no CUDA device"
    assert re.search(rf"triton +. LTCCell, .* {hindrance}", output)
    assert re.search(r"TAUFLOW_BACKEND +. reference", output)
    assert "All is well." in output


@pytest.mark.parametrize(
    ("here", "team", "expected"),
    [
        (("Linux", "x86_64"), (1, 2, 3), r"vectors of \d+ floats; the threads of torch's OpenMP"),
        (("Darwin", "arm64"), None, "threads of Python, as torch brings no libgomp; untried on Da"),
    ],
)
def test_the_doctor_says_how_loops_run_and_where_nobody_has_tried(
    monkeypatch, here, team, expected
):
    pytest.importorskip("numba")
    monkeypatch.setattr(module.platform, "system", lambda: here[0])
    monkeypatch.setattr(module.platform, "machine", lambda: here[1])
    monkeypatch.setattr(binding, "_openmp_teams", [team])
    loops = module._describe_loops()
    assert re.search(expected, loops)
    assert ("untried" in loops) == (here[0] != "Linux")


def test_info_says_whether_a_model_is_causal(call):
    assert "Causal: " in call("info", "transformer").output
    assert "Non-causal: " in call("info", "latent-ode-ode").output


def test_info_says_that_a_model_is_in_no_paper(call, monkeypatch):
    class Mine(ElmanCell):
        paper = ""

    monkeypatch.setattr(MODELS, "_entries", dict(MODELS._entries))
    MODELS.add("mine", ModelEntry("mine", "Mine", Mine))
    assert "Mine (mine): in no paper" in call("info", "mine").output


def test_models_are_found_by_what_they_speak_of(call):
    output = call("models", "--find", "Missing  VALUES").output
    assert "gru-d" in output
    assert "ode-lstm" not in output
    assert "No model speaks of 'zebra'" in call("models", "--find", "zebra").output


@pytest.mark.sampled(6)
@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("model", ["gru-d", "ltc", "cfc", "latent-ode-ode", "transformer"])
def test_descriptions_are_folded_between_words(call, model, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = call("info", model).output.splitlines()
    assert max(map(len, lines)) <= columns
    entry = get_model_entry(model)
    kind = entry.cell if isinstance(entry, ModelEntry) else entry.model
    text = re.sub(r":[\w:]+:`~?\.?([^`]*)`", r"\1", inspect.getdoc(kind)).replace("``", "")
    printed_words = " ".join(lines).split()
    for paragraph in re.split(r"\n\s*\n", text):
        if "\\" not in paragraph and ".. math" not in paragraph:
            words = paragraph.split()
            assert any(
                printed_words[n : n + len(words)] == words for n in range(len(printed_words))
            ), paragraph
    # Lines are filled: the first word of each would not have fitted on the one before.
    for before, line in pairwise(lines[: lines.index("Args:")]):
        if before and line and not (before + line).startswith(" ") and not re.match(ITEM, line):
            assert len(f"{before} {line.split()[0]}") > columns


def test_help_texts_fill_the_lines_of_a_narrow_terminal(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in call("inspect", "--help").output.splitlines()]
    place = next(n for n, line in enumerate(lines) if line.startswith("Options that are given"))
    assert len(lines[place + 1].split()) > 8  # of what the docstring has in two lines
