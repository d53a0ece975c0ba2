"""The examples run, with a tiny setting in place of their own, and draw."""

import re

import matplotlib
import pytest
from matplotlib import image
from matplotlib import pyplot as plt
from sources import ROOT

EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
TINY = {  # constants at the top of each script, and the numbers that are put in their place
    "event_data": {"EPOCHS": 1, "WAVES": 440},
    "flip_flop_memory": {"EPOCHS": 1, "STARTS": 10, "RESOLUTION": 5},
    "from_ncps": {"EPOCHS": 5},
    "gesture_phases": {"EPOCHS": 1, "HIDDEN": 4},
    "medical_records": {"EPOCHS": 1, "PATIENTS": 32},
    "microcontroller": {"EPOCHS": 1, "SEQUENCES": 32},
    "ncp_steering": {"EPOCHS": 1, "DRIVES": 8},
    "own_cell": {"EPOCHS": 1, "SEQUENCES": 32},
    "pendulum_control": {"EPOCHS": 1, "DRIVES": 40},
    "power_forecast": {"EPOCHS": 1, "HOURS": 1500},
}
NEEDS = {"microcontroller": "emx_onnx_cgen", "power_forecast": "pandas"}


def tiny(name):
    """Return an example's code with its constants, ``A, B = 1, 2`` on one line, replaced."""
    text = EXAMPLES[name].read_text(encoding="utf-8")
    line = re.search(r"^([A-Z]+(?:, [A-Z]+)*) = (\d.*)$", text, re.MULTILINE)
    constants = dict(zip(line[1].split(", "), line[2].split(", "), strict=False))
    assert TINY[name].keys() <= constants.keys()
    lines = "; ".join(f"{key} = {value}" for key, value in {**constants, **TINY[name]}.items())
    return text.replace(line[0], lines)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_and_draws(name, tmp_path, monkeypatch, capsys):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    picture = tmp_path / "drawn.png"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAUFLOW_DATA", str(tmp_path))  # what is made up, wherever real data are
    monkeypatch.setattr("sys.argv", [name, str(picture)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with matplotlib.rc_context():
        plt.switch_backend("agg")
        exec(compile(tiny(name), EXAMPLES[name], "exec"), {"__name__": "__main__"})
    plt.close("all")
    assert image.imread(picture).std() > 0.05
    assert re.search(r"\d", capsys.readouterr().out)


def test_there_are_ten():
    assert EXAMPLES.keys() == TINY.keys()
    assert len(EXAMPLES) == 10


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_short_and_can_be_shown(name):
    """As sphinx-gallery takes it: a docstring with a title of its own, and blocks."""
    text = EXAMPLES[name].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    title, rule = re.match(r'"""\n(.+)\n(=+)\n\n', text).groups()
    assert len(title) == len(rule)
    assert text.count("\n# %%\n# ") >= 3
