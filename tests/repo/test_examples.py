"""The examples run, with a tiny setting, and draw."""

import ast
import re

import matplotlib
import pytest
import torch
from matplotlib import image
from matplotlib import pyplot as plt
from sources import ROOT

import tauflow

EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
TINY = {  # constants at the top of each script, and the numbers that are put in their place
    "cartpole_policy": {"UPDATES": 2, "STEPS": 8},
    "drug_levels": {"EPOCHS": 1, "PATIENTS": 40},
    "event_data": {"EPOCHS": 1, "WAVES": 440},
    "fatty_liver": {"EPOCHS": 1, "PEOPLE": 500},
    "flip_flop_memory": {"EPOCHS": 1, "STARTS": 10, "RESOLUTION": 5},
    "from_ncps": {"EPOCHS": 5},
    "gesture_phases": {"EPOCHS": 1, "HIDDEN": 4},
    "glucose_forecast": {"EPOCHS": 1, "ROWS": 3000},
    "liver_survival": {"EPOCHS": 1, "PATIENTS": 90},
    "medical_records": {"EPOCHS": 1, "PATIENTS": 32},
    "microcontroller": {"EPOCHS": 1, "SEQUENCES": 32},
    "minimal_ltc": {"EPOCHS": 2, "SEQUENCES": 8},
    "ncp_steering": {"EPOCHS": 1, "DRIVES": 8},
    "own_cell": {"EPOCHS": 1, "SEQUENCES": 32},
    "pendulum_control": {"EPOCHS": 1, "DRIVES": 40},
    "perceptual_decision": {"EPOCHS": 1, "TRIALS": 32, "NEURONS": 8, "REPEATS": 4},
    "power_forecast": {"EPOCHS": 1, "HOURS": 1500},
}
NEEDS = {"power_forecast": "pandas"}
OF_ESTIMATORS = ("drug_levels", "fatty_liver", "glucose_forecast", "liver_survival")
NEEDS |= dict.fromkeys(OF_ESTIMATORS, "sklearn")


def tiny(name):
    """Return an example's code with its constants, ``A, B = 1, 2`` on one line, replaced."""
    text = EXAMPLES[name].read_text(encoding="utf-8")
    line = re.search(r"^([A-Z]+(?:, [A-Z]+)*) = (\d.*)$", text, re.MULTILINE)
    constants = dict(zip(line[1].split(", "), line[2].split(", "), strict=False))
    assert TINY[name].keys() <= constants.keys()
    lines = "; ".join(f"{key} = {value}" for key, value in {**constants, **TINY[name]}.items())
    return text.replace(line[0], lines)


@pytest.mark.sampled(97)
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


def test_the_pages_count_the_examples():
    assert EXAMPLES.keys() == TINY.keys()
    assert len(EXAMPLES) == 17
    for page in ("examples/README.rst", "docs/index.md"):
        assert "seventeen scripts" in (ROOT / page).read_text(encoding="utf-8").lower()
    index = (ROOT / "examples" / "README.rst").read_text(encoding="utf-8")
    assert [name for name in EXAMPLES if f"<{name}>" not in index] == []


def example_class(name, class_name):
    """Return a class that an example defines, without running the rest of the script."""
    tree = ast.parse(EXAMPLES[name].read_text(encoding="utf-8"))
    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    tree.body = [node for node in tree.body if isinstance(node, definitions)]
    namespace = {}
    exec(compile(tree, EXAMPLES[name], "exec"), namespace)
    return namespace[class_name]


@pytest.mark.parametrize(
    ("backend", "dtype", "tolerance"),
    [("reference", torch.float64, 1e-10), ("auto", torch.float32, 1e-4)],
)
def test_minimal_ltc_equals_the_ltc_of_the_library(backend, dtype, tolerance):
    torch.manual_seed(0)
    minimal = example_class("minimal_ltc", "MinimalLTC")(3, 5).to(dtype)
    rnn = tauflow.LTC(3, 5, backend=backend).to(dtype)
    with torch.no_grad():
        for parameter in minimal.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    assert {name for name, _ in rnn.cell.named_parameters()} == minimal.state_dict().keys()
    rnn.cell.load_state_dict(minimal.state_dict(), strict=False)
    x = torch.randn(4, 9, 3, dtype=dtype)
    dt = torch.rand(4, 9, 1, dtype=dtype) + 0.1
    results = []
    for module, parameters in ((minimal, minimal), (rnn, rnn.cell)):
        y, h = module(x, dt=dt)
        loss = (
            y * torch.linspace(-1, 1, y.numel(), dtype=dtype).view_as(y)
        ).sum() + h.square().sum()
        named = dict(parameters.named_parameters())
        gradients = torch.autograd.grad(loss, list(named.values()))
        results.append({"y": y, "h": h, **dict(zip(named, gradients, strict=True))})
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_short_and_can_be_shown(name):
    """As sphinx-gallery takes it: a docstring with a title, and blocks."""
    text = EXAMPLES[name].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    title, rule = re.match(r'"""\n(.+)\n(=+)\n\n', text).groups()
    assert len(title) == len(rule)
    assert text.count("\n# %%\n# ") >= 3
