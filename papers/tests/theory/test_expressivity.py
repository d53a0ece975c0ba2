import math

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

import tauflow
from tauflow.cells import MODELS
from tauflow.data.registry import load_task
from tauflow.errors import ArgumentError, ShapeError
from tauflow_papers.theory import fit_noise, noise_sweep, plot_noise_fits, plot_noise_sweep


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def noise(steps=12, dimensions=3):
    task = load_task("ornstein-uhlenbeck", steps=steps, dimensions=dimensions, seed=3)
    return task.train.y[0]


@pytest.mark.slow
def test_a_wide_network_follows_a_short_path_and_a_narrow_one_does_not():
    path = noise()
    wide = fit_noise("gnode", path, hidden_size=24, units=48, epochs=200, lr=1e-2)
    narrow = fit_noise("elman-euler", path, hidden_size=1, epochs=200, lr=1e-2)
    variance = path.var(dim=0, correction=0).mean().item()
    assert wide.error < 0.05 * variance
    assert 0.3 * variance < narrow.error < 1.5 * variance
    assert wide.parameters > narrow.parameters


def test_the_error_is_the_lowest_and_the_prediction_has_it():
    path = noise()
    fit = fit_noise("mgru", path, hidden_size=8, epochs=30, lr=3e-2)
    assert len(fit.errors) == 30
    assert fit.error == min(fit.errors) == fit.errors[fit.epoch - 1]
    assert (fit.prediction - path).square().mean().item() == pytest.approx(fit.error, rel=1e-4)
    rnn = tauflow.build("mgru", 3, 8, initial_state="affine")
    readout = 3 * 8 + 3
    assert fit.parameters == sum(p.numel() for p in rnn.parameters()) + readout


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    path = noise(5, 2)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b, c = (fit_noise("mgru", path, hidden_size=4, epochs=3, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert a.errors == b.errors
    assert a.errors != c.errors


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_catalog_can_be_fitted(name):
    assert len(fit_noise(name, noise(4, 2), hidden_size=4, epochs=1).errors) == 1


@pytest.mark.parametrize("name", ["gnode", "node", "mgru", "lem", "gru-euler", "lstm-euler"])
def test_networks_of_the_paper_start_as_there_unless_told_otherwise(name):
    """An affine start is a map of the first input to the state, beside what the cell has anyway."""
    path = noise(4, 2)
    paper = fit_noise(name, path, hidden_size=4, epochs=1)
    zeros = fit_noise(name, path, hidden_size=4, epochs=1, initial_state="zeros")
    width = tauflow.build(name, 2, 4).state_size
    assert paper.parameters - zeros.parameters == width * (2 + 1)
    glorot, kaiming = (
        fit_noise(name, path, hidden_size=4, epochs=1, init=init)
        for init in ("glorot_normal", "kaiming")
    )
    assert paper.errors == glorot.errors != kaiming.errors


def test_training_that_blows_up_is_reported():
    fit = fit_noise("node", noise(5, 2), hidden_size=4, epochs=5, lr=1e30)
    assert not fit.finite
    assert math.isnan(fit.error)
    assert fit.prediction.isnan().all()


def test_a_sweep_takes_the_best_recipe_for_every_value():
    path = noise(6, 2)
    rows = noise_sweep(
        {"RNN": {"network": "elman-euler", "hidden_size": 6}},
        path,
        vary="tau",
        values=(1.0, 30.0),
        seeds=3,
        lr=(1e-5, 1e-2),
        weight_decay=(1e-3,),
        epochs=25,
    )
    assert [row.value for row in rows] == [1.0, 30.0]
    for row in rows:
        assert row.lr == 1e-2  # the other one does next to nothing in 25 epochs
        options = {"hidden_size": 6, "tau": row.value, "epochs": 25}
        fits = [fit_noise("elman-euler", path, lr=1e-2, seed=s, **options) for s in range(3)]
        assert list(map(float, row.errors)) == pytest.approx([fit.error for fit in fits])
        assert row.mean == pytest.approx(np.mean(row.errors))
        assert row.deviation == pytest.approx(np.std(row.errors, ddof=1))
        assert row.finite
    assert rows[0].mean < rows[1].mean  # a slow network cannot follow fast noise
    ax = plot_noise_sweep(rows, "time constant", baseline=0.5)
    (bars,) = ax.containers
    drawn = np.asarray(bars.lines[0].get_ydata(), dtype=float)
    np.testing.assert_allclose(drawn, [row.mean for row in rows])
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["mean of the path", "RNN"]
    looks = {"GRU": ("red", "s"), "RNN": ("green", "P")}
    (other,) = plot_noise_sweep(rows, "time constant", styles=looks).containers
    assert (other.lines[0].get_color(), other.lines[0].get_marker()) == ("green", "P")


def test_a_sweep_over_names_keeps_them():
    path = noise(5, 2)
    options = {"network": "gnode", "hidden_size": 3, "units": 4}
    brief = {"seeds": 1, "lr": (1e-2,), "weight_decay": (1e-3,), "epochs": 2}
    rows = noise_sweep(
        {"gnODE": options}, path, vary="activation", values=("tanh", "relu"), **brief
    )
    assert [row.value for row in rows] == ["tanh", "relu"]
    for row in rows:
        fit = fit_noise(
            **options, path=path, activation=row.value, lr=1e-2, weight_decay=1e-3, epochs=2
        )
        assert row.errors == (fit.error,)
    ax = plot_noise_sweep(rows, "activation")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["tanh", "relu"]
    (bars,) = ax.containers
    assert list(bars.lines[0].get_xdata()) == list(ax.get_xticks()) == [0, 1]
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log")


def test_numbers_of_a_sweep_become_floats_and_flags_stay():
    path = noise(4, 2)
    brief = {"seeds": 1, "lr": (1e-2,), "weight_decay": (1e-3,), "epochs": 1}
    rows = noise_sweep({"a": {"network": "mgru"}}, path, vary="hidden_size", values=(2, 3), **brief)
    assert [(row.value, type(row.value)) for row in rows] == [(2.0, float), (3.0, float)]
    options = {"network": "gru", "hidden_size": 2}
    rows = noise_sweep({"a": options}, path, vary="append_dt", values=(False, True), **brief)
    assert [row.value for row in rows] == [False, True]
    assert all(isinstance(row.value, bool) for row in rows)


def test_a_networks_own_options_go_before_those_of_all():
    path, options = noise(4, 2), {"epochs": 3, "interval": 0.5}
    brief = {"seeds": 1, "lr": (1e-2,), "weight_decay": (1e-3,)}
    (row,) = noise_sweep(
        {"a": {"network": "mgru", **options}},
        path,
        vary="hidden_size",
        values=(2,),
        epochs=1,
        **brief,
    )
    fit = fit_noise("mgru", path, hidden_size=2, lr=1e-2, weight_decay=1e-3, **options)
    assert row.errors == (fit.error,)


def test_picture_of_fits():
    path = noise(6, 2)
    fits = {"good": fit_noise("mgru", path, hidden_size=4, epochs=2)}
    fits["bad"] = fit_noise("node", path, hidden_size=4, epochs=5, lr=1e30)
    figure = plot_noise_fits(fits, path, dimension=1)
    good, bad = figure.axes
    np.testing.assert_allclose(good.lines[0].get_ydata(), path[:, 1])
    np.testing.assert_allclose(good.lines[1].get_ydata(), fits["good"].prediction[:, 1])
    assert len(bad.lines) == 1
    assert "did not stay finite" in bad.get_title(loc="left")


def test_bad_calls_are_refused():
    with pytest.raises(ShapeError, match=r"expected \(T, D\)"):
        fit_noise("mgru", torch.zeros(1, 4, 2), hidden_size=3)
    options = {"network": "mgru", "hidden_size": 3}
    with pytest.raises(ArgumentError, match="leave out 'hidden_size'"):
        noise_sweep({"a": options}, noise(), vary="hidden_size", values=(1,))
    for name in ("lr", "weight_decay", "seed"):
        with pytest.raises(ArgumentError, match=f"sets '{name}' itself, for 'a'"):
            noise_sweep({"a": options}, noise(), vary=name, values=(1,))
        with pytest.raises(ArgumentError, match=f"sets '{name}' itself, for 'a'"):
            noise_sweep({"a": {**options, name: 1}}, noise(), vary="tau", values=(1,))
    with pytest.raises(ArgumentError, match="one entry or more"):
        noise_sweep({}, noise(), vary="tau", values=(1,))
