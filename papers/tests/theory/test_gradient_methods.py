"""Costs and accuracy of gradients, on a linear flow with known derivatives and on a network."""

import math

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from scipy.linalg import expm
from torch import nn

import tauflow
from tauflow.analysis import gradient_flow
from tauflow.errors import ArgumentError
from tauflow_papers.theory import (
    compare_gradient_methods,
    loss_surface,
    plot_gradient_flow,
    plot_gradient_methods,
    plot_loss_surfaces,
)
from tauflow_papers.theory.gradient_methods import _measure_method, _SolverProblem


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def network(seed=0, size=4):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, size)).double()


def states(size=4):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, size, generator=generator, dtype=torch.float64)


def costs(**options):
    all_costs = compare_gradient_methods(network(), states(), options.pop("span", 2.0), **options)
    return {cost.method: cost for cost in all_costs}


def test_the_reference_is_the_matrix_exponential():
    linear = nn.Linear(3, 3, bias=False).double()
    h, weights = states(3), torch.randn(3, 3, dtype=torch.float64)
    solve = _SolverProblem(linear, h, 1.5, 1e-10, 1e-10, 10)
    for method in ("bptt-adaptive", "adjoint"):
        run = _measure_method(method, solve, weights, 1)
        flow = expm(1.5 * linear.weight.detach().numpy())
        np.testing.assert_allclose(run.end.numpy(), h.numpy() @ flow.T, atol=1e-8)
        np.testing.assert_allclose(run.gradients[0].numpy(), weights.numpy() @ flow, atol=1e-7)


def test_backpropagation_is_exact_for_its_own_solve_and_the_adjoint_method_is_not():
    errors = costs(rtol=1e-3, atol=1e-4)
    assert errors["bptt-fixed"].own_error == 0
    assert errors["bptt-adaptive"].own_error == 0
    assert errors["adjoint"].own_error > 1e-6
    assert errors["adjoint"].forward_error == errors["bptt-adaptive"].forward_error > 1e-9


def test_tighter_tolerances_and_more_steps_mend_both_ways():
    loose, tight = costs(rtol=1e-2, atol=1e-3), costs(rtol=1e-7, atol=1e-8)
    for method in ("bptt-adaptive", "adjoint"):
        assert tight[method].forward_error < 0.01 * loose[method].forward_error
        assert tight[method].backward_error < 0.01 * loose[method].backward_error
        assert tight[method].evaluations > loose[method].evaluations
    few, many = costs(substeps=4)["bptt-fixed"], costs(substeps=8)["bptt-fixed"]
    assert few.backward_error / many.backward_error == pytest.approx(16, rel=0.5)
    assert (few.evaluations, many.evaluations) == (16, 32)


def test_memory_grows_with_the_steps_of_backpropagation_only():
    short, long = costs(span=1.0, substeps=10), costs(span=8.0, substeps=80)
    ratio = long["bptt-fixed"].saved_bytes / short["bptt-fixed"].saved_bytes
    assert ratio == pytest.approx(8, rel=0.1)
    assert long["bptt-adaptive"].saved_bytes > 1.5 * short["bptt-adaptive"].saved_bytes
    assert long["adjoint"].saved_bytes == short["adjoint"].saved_bytes
    assert long["adjoint"].saved_bytes < 0.05 * long["bptt-adaptive"].saved_bytes
    assert all(cost.forward_seconds > 0 for cost in long.values())


def test_pictures_show_the_numbers(tmp_path):
    x = torch.randn(2, 8, 2)
    flows = {name: gradient_flow(getattr(tauflow, name)(2, 4), x) for name in ("CTRNN", "ODELSTM")}
    ax = plot_gradient_flow(flows)
    for line, flow in zip(ax.lines, flows.values(), strict=False):
        expected = np.exp(np.log(flow.error_norm.numpy()).mean(axis=0))[::-1]
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-5)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["CTRNN", "ODELSTM"]
    parts = plot_gradient_flow(flows, by_part=True).get_legend().get_texts()
    assert [text.get_text() for text in parts] == ["CTRNN", "ODELSTM, h", "ODELSTM, c"]
    ax.figure.savefig(tmp_path / "flow.png")

    model = nn.Linear(2, 2)
    surfaces = {
        str(scale): loss_surface(model, lambda m, s=scale: s * m.weight.square().sum(), points=5)
        for scale in (1, 3)
    }
    figure = plot_loss_surfaces(surfaces)
    assert figure.axes[0].collections[0].get_clim() == figure.axes[1].collections[0].get_clim()
    plot_loss_surfaces({"flat": loss_surface(model, lambda m: torch.zeros(()), points=3)})
    figure.savefig(tmp_path / "surface.png")

    groups = [tuple(costs(span=span).values()) for span in (0.5, 1.0)]
    figure = plot_gradient_methods(groups)
    drawn = figure.axes[2].lines[2].get_ydata()
    np.testing.assert_allclose(drawn, [group[2].backward_error for group in groups])
    figure.savefig(tmp_path / "methods.png")


def test_a_surface_without_finite_losses_is_no_picture_by_itself():
    model = nn.Linear(2, 1)
    lost = loss_surface(model, lambda m: torch.tensor(math.nan), points=3)
    with pytest.raises(ArgumentError, match="no loss is finite"):
        plot_loss_surfaces({"lost": lost})
    rising = loss_surface(model, lambda m: m.weight.sum(), points=3)
    figure = plot_loss_surfaces({"lost": lost, "rising": rising})
    filled = figure.axes[1].collections[0]
    levels = filled.levels
    assert levels[0] == pytest.approx(float(rising.loss.min()))
    assert levels[-1] == pytest.approx(float(rising.loss.max()))


def test_empty_pictures_are_refused():
    for draw, name in (
        (plot_gradient_flow, "flows"),
        (plot_loss_surfaces, "surfaces"),
        (plot_gradient_methods, "comparisons"),
    ):
        with pytest.raises(ArgumentError, match=f"{name} is empty"):
            draw({})
