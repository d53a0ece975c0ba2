"""Every figure is made at its small size, and its numbers say what it is about."""

import itertools
import json

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from small_figures import NAMES, RESULTS, small

from tauflow.data.registry import is_available
from tauflow.errors import DataNotFoundError
from tauflow.plotting.palette import report_style
from tauflow_papers.figures import FIGURES, FigureJob


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def figure(name):
    data = FIGURES[name].data
    if data is not None and not is_available(data):
        pytest.skip(f"{data} is not on this machine")
    return small(name)


@pytest.mark.sampled(20)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_files_are_written(name):
    made = figure(name)
    suffixes = [path.suffix for path in made.made.files]
    assert suffixes[0] == ".svg"
    assert suffixes[-1] == ".json"
    assert {".npz", ".csv"} & set(suffixes)
    assert sorted(path.name for path in made.folder.iterdir()) == sorted(
        path.name for path in made.made.files
    )
    assert made.record["files"] == [path.name for path in made.made.files[:-1]]
    assert made.record["size"] == "small"
    assert made.record["settings"]
    assert made.findings
    assert (made.folder / f"{name}.svg").stat().st_size < 400_000
    for array in made.arrays.values():
        assert array.size
        assert np.isfinite(array).all()


def numbers(rows, column):
    return np.array([float(row[column]) for row in rows])


def read_runs(table):
    lines = (RESULTS / f"{table}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.thorough
def test_lengths_and_depths():
    lengths = figure("ltc-figure-1").findings["lengths"]
    assert lengths["ltc"] > lengths["neural-ode"] > lengths["ct-rnn"] > 0
    for name in ("ltc-figure-4", "ltc-figure-5"):
        rows = figure(name).rows
        assert len({row["panel"] for row in rows}) >= 4
        assert (numbers(rows, "trajectory length") > 0).all()
        wide = [r for r in rows if r["model"] == "ltc" and "width" in r["panel"]]
        by_width = {
            value: np.median(numbers([r for r in wide if r["value"] == value], "trajectory length"))
            for value in ("5", "10")
        }
        assert by_width["10"] > by_width["5"]
    explained = figure("ltc-figure-5").arrays["variance explained"]
    assert (np.diff(explained) <= 0).all()
    assert 0.5 < explained.sum() <= 1 + 1e-6


@pytest.mark.thorough
def test_a_neural_ode_takes_fourteen_steps_whatever_its_width():
    rows = figure("ltc-table-2-depth").rows
    depth = {(row["activation"], row["model"]): row for row in rows}
    assert len(depth) == 12
    smooth = depth["sigmoid", "Neural ODE"]
    # 14 steps of ode45, which its largest step and the rule for the first one set, by 4 points
    assert float(smooth["median, as the released code"]) == pytest.approx(0.56)
    assert float(smooth["median, as the text"]) == pytest.approx(14 / 99, abs=0.02)
    for row in rows:
        released, text = (float(row[f"mean, as the {way}"]) for way in ("released code", "text"))
        assert released > text


def test_bounds_hold_and_theorems_are_held_against_lengths():
    made = figure("ltc-theorems-1-2")
    a = made.arrays
    assert (a["tau"] >= a["tau_low"] * (1 - 1e-5)).all()
    assert (a["tau"] <= a["tau_high"] * (1 + 1e-5)).all()
    assert (a["states"] <= np.maximum(a["state_high"], 0) + 1e-5).all()
    assert (a["states"] >= np.minimum(a["state_low"], 0) - 1e-5).all()
    assert made.findings["proven for any input"]
    above = figure("ltc-theorems-4-5").findings["share of networks above the bound"]
    for way in above.values():
        assert way["neural-ode"] == 1
    assert above["Theorems 4 and 5, AAAI"]["ltc"] == 0


def test_the_way_back_leaves_the_way_there():
    a = figure("ltc-figure-2").arrays
    np.testing.assert_allclose(a["forward"][:, -1], a["backward"][:, -1])
    assert a["backward_error"][0] > 10 * a["forward_error"][-1] > 0
    np.testing.assert_allclose(a["local_error"][0], a["forward_error"][1], rtol=1e-4)


@pytest.mark.thorough
def test_backpropagation_holds_memory_and_the_adjoint_method_does_not():
    rows = figure("ltc-table-1").rows
    saved = {
        method: numbers([r for r in rows if r["method"] == method], "saved bytes")
        for method in ("bptt-fixed", "adjoint")
    }
    assert saved["bptt-fixed"][1] == pytest.approx(2 * saved["bptt-fixed"][0], rel=0.1)
    assert saved["adjoint"][0] == saved["adjoint"][1] < saved["bptt-fixed"][0] / 10
    exact = [row for row in rows if row["method"] != "adjoint"]
    assert (numbers(exact, "own error") < 1e-9).all()


def test_approximations_have_errors_in_units_of_the_system():
    rows = figure("ltc-theorem-3").rows
    assert len({row["system"] for row in rows}) == 3
    assert (numbers(rows, "largest error") > numbers(rows, "rms error")).all()


def test_closed_forms():
    errors = figure("cfc-figure-3").findings[
        "mean squared error of the motor neuron (paper: 0.006)"
    ]
    published = min(errors["Algorithm 1"], errors["released code"])
    assert errors["exponential"] < 1e-5 < errors["corrected"] < published
    a = figure("cfc-figure-3").arrays
    assert (a["bound lower"] - 1e-6 <= a["bound error"]).all()
    assert (a["bound error"] <= a["bound upper"] + 1e-6).all()
    mse = np.mean((a["exponential"] - a["solver"]).astype(float) ** 2)
    assert mse == pytest.approx(errors["exponential"], rel=0.05)


def test_two_neurons_in_closed_form_follow_their_solver():
    drawn_figure = figure("cfc-figure-2")
    for errors in drawn_figure.findings.values():
        assert errors["exponential"] < 1e-5
        assert errors["exponential"] < errors["corrected"] < errors["Algorithm 1"]


def test_events_are_the_bits_that_differ_and_the_last():
    (counts,) = figure("ode-lstm-figure-s1").findings.values()
    bits = "0111110001000000"
    changes = 1 + sum(a != b for a, b in itertools.pairwise(bits))
    assert counts == {"dense": 16, "events": changes + (bits[-1] == bits[-2])}


def test_a_trained_network_does_without_its_solver():
    rows = {row["network"]: row for row in figure("cfc-closed-form-half-cheetah").rows}
    solver = float(rows["solver, 6 steps"]["test MSE"])
    itself = rows["exponential, 6 pieces, by itself"]
    assert float(itself["test MSE"]) == pytest.approx(solver, rel=1e-2)
    assert float(itself["MSE of potentials"]) < 1e-3
    assert float(rows["Algorithm 1 as printed"]["MSE of potentials"]) > 1


@pytest.mark.thorough
def test_saliency_masks_reach_from_zero_to_one():
    arrays = figure("cfc-figure-5").arrays
    for condition in ("summer", "winter", "noise"):
        mask = arrays[f"cfc {condition}, of 255"]
        assert (mask.min(), mask.max()) == (0, 255)


@pytest.mark.thorough
def test_errors_vanish_or_explode_or_stay():
    left = next(iter(figure("ode-lstm-figure-1").findings.values()))
    assert left["CT-RNN"] < 0.5
    assert left["ODE-RNN"] > left["ODE-LSTM"] > 0.5 > left["LSTM"]
    surfaces = figure("ode-lstm-figure-3")
    for name, relief in surfaces.findings["standard deviation of the loss"].items():
        loss = surfaces.arrays[f"{name} loss"]
        assert relief == pytest.approx(loss.std(), rel=1e-4)
        assert loss[2, 2] == pytest.approx(np.log(2), abs=0.15)  # an untrained network guesses


@pytest.mark.thorough
def test_gated_networks():
    edges = figure("gnode-figure-4").arrays
    # without biases the edge is at 1 whatever the depth; deeper networks are stable for longer
    assert edges["sigma_w, L = 2"][0] == pytest.approx(1, abs=1e-3)
    assert (edges["sigma_w, L = 3"][1:] > edges["sigma_w, L = 2"][1:]).all()
    slow = figure("gnode-figure-5").findings["share of eigenvalues within 0.1 of zero"]
    for network in ("mGRU", "gnODE", "LEM"):
        assert slow[f"{network}, gating"] > slow[f"{network}, no gating"]
    stored = figure("gnode-capacity").arrays
    assert stored["N = 20 fraction"][0] > 0.9 > 0.3 > stored["N = 20 fraction"][-1]
    assert not stored["N = 20 undecided"].any()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [3, 12, 13, 14])
def test_fits_of_noise(number):
    made = figure(f"gnode-figure-{number}")
    errors = numbers(made.rows, "lowest training error")
    assert (errors > 0).all()
    assert len({row["panel"] for row in made.rows}) >= 2
    least = float(made.findings["lowest error"].split()[0])
    assert least == pytest.approx(errors.min(), rel=1e-2)


def test_fits_are_beside_their_path():
    made = figure("gnode-figure-11")
    fits = {name: value for name, value in made.arrays.items() if name != "path"}
    assert len(fits) == 8
    for title, prediction in fits.items():
        error = np.mean((prediction - made.arrays["path"]) ** 2)
        assert error == pytest.approx(made.findings["errors of the fits"][title], rel=1e-3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [3, 13])
def test_stored_fits_are_those_of_the_table(number):
    """Read again from the lines of the file, the lowest error of each network's settings."""
    made = figure(f"gnode-figure-{number}")
    runs = read_runs("gnode-figure-3")
    cells = {"RNN": "elman-euler", "GRU": "gru-euler"}
    lines = [row for row in made.rows if row["panel"].removeprefix("D  ") == "N = 316"]
    assert {row["network"] for row in lines} == {"RNN", "mGRU", "GRU", "nODE", "gnODE"}
    assert len(lines) == 25
    for row in lines:
        name = row["network"]
        errors = [
            run["valid"]
            for run in runs
            if (model := run["config"]["model"])["cell"] == cells.get(name, name.lower())
            and model["hidden_size"] == 316
            and model["options"].get("tau", 1.0) == float(row["value"])
            and model["options"].get("units") in (None, 1000)
            and run["epochs"] == 2000
        ]
        assert float(row["lowest training error"]) == pytest.approx(min(errors), rel=1e-5)


@pytest.mark.thorough
def test_circles_are_the_settings_that_were_run():
    made = figure("gnode-figure-8")
    runs = read_runs("gnode-figure-2")
    for name in ("rnn", "mgru", "gru"):
        scores = sorted(r["valid"] for r in runs if (r["row"], r["seed"]) == (f"{name}/square", 0))
        shown = numbers(
            [row for row in made.rows if row["network"].lower() == name], "validation MSE"
        )
        assert len(scores) == 27
        np.testing.assert_allclose(shown, scores, rtol=1e-5)


def test_without_stored_runs_a_figure_of_them_says_what_to_run(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"tauflow reproduce gnode-figure-2.*--results"):
        FIGURES["gnode-figure-8"].compute(FigureJob("small", results_dir=tmp_path))


@pytest.mark.thorough
def test_a_colour_means_one_network_in_all_panels():
    with report_style():
        drawn = FIGURES["gnode-figure-3"].compute(FigureJob("small", results_dir=RESULTS)).plot()
        drawn.draw_without_rendering()
    panels = drawn.subfigs[1].axes
    looks = {}
    for ax in panels:
        for bars in ax.containers:
            line = bars.lines[0]
            looks.setdefault((line.get_color(), line.get_marker()), set()).add(bars.get_label())
    assert all(len(names) == 1 for names in looks.values())
    assert {"gnODE", "N = 10", "N = 316", "RNN"} <= set().union(*looks.values())
    titles = [ax.get_title(loc="left") for ax in panels if ax.get_title(loc="left")]
    assert [title[0] for title in titles] == list("BCDEF")


@pytest.mark.thorough
def test_a_legend_lies_within_its_figure():
    """Five networks and the mean of the path, above four panels."""
    with report_style():
        drawn = FIGURES["gnode-figure-13"].compute(FigureJob("small", results_dir=RESULTS)).plot()
        drawn.draw_without_rendering()
    (legend,) = drawn.legends
    assert len(legend.get_texts()) == 6
    box = legend.get_window_extent()
    assert drawn.bbox.x0 <= box.x0 < box.x1 <= drawn.bbox.x1
