import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from tauflow.analysis import output_projection, principal_components
from tauflow.cells import LTCCell
from tauflow.errors import ArgumentError, DtypeError, ShapeError

F64 = torch.float64


def some_states():
    mixing = torch.randn(6, 6, dtype=F64) * torch.tensor([3.0, 2.0, 1.0, 0.3, 0.1, 0.0], dtype=F64)
    return torch.randn(20, 30, 6, dtype=F64) @ mixing.T + torch.randn(6, dtype=F64)


def test_principal_components_are_those_of_scikit_learn():
    states = some_states()
    ours, theirs = principal_components(states), PCA().fit(states.reshape(-1, 6).numpy())
    np.testing.assert_allclose(ours.mean, theirs.mean_)
    np.testing.assert_allclose(ours.variances, theirs.explained_variance_, atol=1e-12)
    np.testing.assert_allclose(ours.explained, theirs.explained_variance_ratio_, atol=1e-12)
    signs = np.sign((ours.axes.numpy() * theirs.components_).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(ours.axes[:5], (signs * theirs.components_)[:5], atol=1e-8)
    shares = np.cumsum(theirs.explained_variance_ratio_)
    for share in (0.0, 0.5, 0.9, 0.999):
        assert ours.count(share) == int((shares <= share).sum()) + 1
    view = ours.projection(2)
    expected = (signs.T * theirs.transform(states.reshape(-1, 6).numpy()))[:, :2]
    np.testing.assert_allclose(view.project(states).reshape(-1, 2), expected, atol=1e-8)
    assert view.names[0] == f"PC 1 ({theirs.explained_variance_ratio_[0]:.0%})"


@pytest.mark.parametrize("value", [1.0, 0.1, 1e6 + 0.1])
def test_states_that_rest_have_no_variance_to_explain(value):
    components = principal_components(torch.full((7, 3), value, dtype=F64))
    assert components.mean.tolist() == [value] * 3
    assert components.explained.tolist() == [0.0, 0.0, 0.0]
    assert components.count() == 3


def test_lifting_and_projecting_undo_each_other():
    view = principal_components(some_states()).projection(3)
    y = torch.randn(4, 5, 3, dtype=F64)
    torch.testing.assert_close(view.project(view.lift(y)), y)
    h = torch.randn(7, 6, dtype=F64)
    step = torch.randn(7, 6, dtype=F64)
    torch.testing.assert_close(
        view.project_velocity(step), view.project(h + step) - view.project(h)
    )
    # of all states with these coordinates the lifted one is the nearest to the mean
    away = view.lift(view.project(h)) - view.origin
    assert (away.norm(dim=1) <= (h - view.origin).norm(dim=1) + 1e-12).all()


def test_outputs_as_coordinates():
    cell, head = LTCCell(2, 4), torch.nn.Linear(4, 3)
    origin = torch.randn(4)
    view = output_projection(lambda h: head(cell.readout(h)), 4, channels=(2, 0), origin=origin)
    h = torch.randn(5, 4)
    expected = head(cell.readout(h))[:, [2, 0]].detach()
    torch.testing.assert_close(view.project(h), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(view.lift(view.project(origin)), origin, rtol=1e-4, atol=1e-5)
    assert view.names == ("output 3", "output 1")
    fine = torch.nn.Linear(2, 2, dtype=F64)
    torch.testing.assert_close(output_projection(fine, 2, dtype=F64).weight, fine.weight.detach())


def test_bad_calls_are_refused():
    with pytest.raises(ArgumentError, match="not affine"):
        output_projection(lambda h: torch.tanh(h), 2)
    weak = torch.nn.Linear(3, 2)
    with torch.no_grad():
        weak.weight.copy_(torch.tensor([[0.02, 0.01, 0.03], [0.01, 0.02, 0.02]]))
        weak.bias.fill_(0.01)
    for bend in (torch.tanh, torch.relu):  # straight where states are small, and positive
        with pytest.raises(ArgumentError, match="not affine"):
            output_projection(lambda h, f=bend: f(weak(h)), 3)
    with pytest.raises(ArgumentError, match="has 2 outputs"):
        output_projection(lambda h: h, 2, channels=(0, 2))
    with pytest.raises(ArgumentError, match="not finite"):
        output_projection(lambda h: h / 0, 2)
    with pytest.raises(ArgumentError, match="at least two finite states"):
        principal_components(torch.full((4, 2), float("nan")))
    with pytest.raises(ShapeError, match="Give several states"):
        principal_components(torch.zeros(3))
    with pytest.raises(DtypeError, match="floating"):
        principal_components(torch.zeros(3, 2, dtype=torch.long))
    with pytest.raises(ArgumentError, match="there are 2 axes"):
        principal_components(torch.randn(5, 2)).projection(3)
