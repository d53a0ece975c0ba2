"""Dropout inside the CfC backbone: when it acts, where, and at what scale."""

import pytest
import torch

from tauflow.cells import CfCCell
from tauflow.compat import ncps
from tauflow.errors import ArgumentError


def features(cell: CfCCell, draws: int = 4000) -> torch.Tensor:
    return cell.backbone(torch.ones(draws, cell.input_size + cell.hidden_size))


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_units_are_dropped_and_the_rest_scaled_up(p):
    cell = CfCCell(3, 4, backbone_units=16, backbone_dropout=p)
    undropped = features(cell.eval(), 1)
    dropped = features(cell.train())
    share = (dropped == 0).float().mean().item()
    assert share == pytest.approx(p, abs=0.01)
    survivors = (dropped / undropped)[dropped != 0]
    torch.testing.assert_close(survivors, torch.full_like(survivors, 1 / (1 - p)))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_evaluation_drops_nothing(layers):
    cell = CfCCell(3, 4, backbone_layers=layers, backbone_dropout=0.5).eval()
    plain = CfCCell(3, 4, backbone_layers=layers)
    plain.load_state_dict(cell.state_dict())
    assert torch.equal(features(cell), features(plain))


def test_sparing_the_first_layer():
    with pytest.raises(ArgumentError, match="would do nothing with backbone_layers=1 and dropout"):
        CfCCell(3, 4, backbone_dropout=0.5, dropout_first=False)
    alone = ncps.CfC(3, 4, backbone_dropout=0.5)  # as in ncps, which drops nothing here
    assert features(alone.rnn.cell.train()).std(0).max() == 0
    two = CfCCell(3, 4, backbone_layers=2, backbone_dropout=0.5, dropout_first=False)
    expected = features(two.eval(), 1)
    got = features(two.train(), 50)
    is_left = got != 0
    assert 0.4 < is_left.float().mean() < 0.6
    # with the first layer whole, a surviving unit has its exact value, doubled
    torch.testing.assert_close(got[is_left], (2 * expected).expand_as(got)[is_left])


def test_dropping_the_first_layer_reaches_the_second():
    cell = CfCCell(3, 4, backbone_layers=2, backbone_dropout=0.5)
    expected, got = features(cell.eval(), 1), features(cell.train(), 50)
    is_left = got != 0
    assert not torch.allclose(got[is_left], (2 * expected).expand_as(got)[is_left])


def test_each_step_of_a_cell_draws_anew():
    cell = CfCCell(3, 4, backbone_dropout=0.5)
    x, h, dt = torch.ones(2, 3), torch.zeros(2, 4), torch.ones(2, 1)
    assert not torch.equal(cell.step(x, h, dt), cell.step(x, h, dt))
    cell.eval()
    assert torch.equal(cell.step(x, h, dt), cell.step(x, h, dt))
