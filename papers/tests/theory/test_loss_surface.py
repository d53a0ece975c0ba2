import pytest
import torch
from torch import nn

import tauflow
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow_papers.theory import loss_surface


def quadratic(target):
    return lambda model: sum((p - target).square().sum() for p in model.parameters())


def test_a_quadratic_loss_has_the_surface_of_its_directions():
    """L = |a u + b v|^2, so that the grid gives |u|^2, |v|^2 and u v back."""
    model = nn.Linear(3, 2, bias=False).double()
    home = model.weight.detach().clone()
    surface = loss_surface(model, lambda m: (m.weight - home).square().sum(), span=2.0, points=5)
    a, b = torch.meshgrid(surface.alpha, surface.beta, indexing="ij")
    uu, vv = surface.loss[4, 2] / 4, surface.loss[2, 4] / 4
    uv = (surface.loss[4, 4] / 4 - uu - vv) / 2
    torch.testing.assert_close(surface.loss, a**2 * uu + b**2 * vv + 2 * a * b * uv)
    assert surface.centre == 0.0
    assert float(surface.loss[2, 2]) == pytest.approx(0.0, abs=1e-20)
    # Directions are as long as the parameter, row by row.
    assert float(uu) == pytest.approx(float(home.square().sum()))
    assert abs(float(uv)) > 0
    assert torch.equal(model.weight, home)


def test_directions_scale_row_by_row_with_the_weights():
    model = nn.Linear(4, 2).double()
    with torch.no_grad():
        model.weight[0].mul_(1000)
        model.bias.zero_()
    rows = {}

    def spy(moved):
        rows[len(rows)] = (moved.weight - model.weight).detach().clone()
        assert torch.equal(moved.bias, model.bias)  # a parameter of size 0 does not move
        return moved.weight.sum()

    loss_surface(model, spy, span=1.0, points=3)
    moved = rows[1 + 7]  # alpha = 1, beta = 0
    torch.testing.assert_close(moved.norm(dim=1), model.weight.detach().norm(dim=1))


def test_seeds_and_scales():
    model = nn.Linear(3, 3)
    loss = quadratic(0.3)
    first, again = (loss_surface(model, loss, points=3, seed=1) for _ in range(2))
    other = loss_surface(model, loss, points=3, seed=2)
    assert torch.equal(first.loss, again.loss)
    assert not torch.equal(first.loss, other.loss)
    plain = loss_surface(model, loss, points=3, seed=1, scale="none")
    assert not torch.equal(first.loss, plain.loss)
    assert first.relief == pytest.approx(float(first.loss.numpy().std()))
    with pytest.raises(UnknownNameError, match="scale='filters' is unknown"):
        loss_surface(model, loss, scale="filters")
    with pytest.raises(ArgumentError, match="span must be"):
        loss_surface(model, loss, span=0.0)


def test_parameters_stay_in_their_range():
    torch.manual_seed(0)
    rnn = tauflow.LTC(2, 3, constraint="clip")
    lowest = []

    def loss(moved):
        lowest.append(min(float(p.min()) for p in (moved.cell.w, moved.cell.g_l, moved.cell.C)))
        return moved(torch.ones(1, 4, 2))[0].square().mean()

    surface = loss_surface(rnn, loss, points=3)
    assert surface.loss.isfinite().all()
    assert min(lowest) >= 0


def test_one_point_would_not_be_the_model():
    with pytest.raises(ArgumentError, match="points"):
        loss_surface(nn.Linear(2, 1), quadratic(0.0), points=1)
