"""What studies of trained networks feed them, against what their docstrings say."""

import math

import pytest
import torch
from torch import nn

from tauflow.batch import SequenceBatch
from tauflow.cells import AbstractCell
from tauflow.models import SequenceModel
from tauflow.sequence import build
from tauflow_papers.claims.studies import cheetah, generalisation, gradients


@pytest.mark.thorough
def test_oscillations_are_sines_of_the_times() -> None:
    data = generalisation._make_oscillations(3, (0.2, 0.4), seed=5)
    assert data.dt is not None
    assert data.x.shape == data.y.shape == (3, 40, 1)
    assert float(data.dt.min()) >= 0.2
    assert float(data.dt.max()) <= 0.4
    torch.testing.assert_close(data.x[:, 1:], data.y[:, :-1])
    # y(t) of a sine of any phase solves y'' = -w^2 y: three samples give w, others must agree.
    for t, v in zip(data.dt.double().cumsum(1), data.y.double()[..., 0], strict=True):
        errors = []
        for period in torch.linspace(4.0, 10.0, 6001, dtype=torch.float64):
            angle = 2 * math.pi * t / period
            waves = torch.stack([angle.sin(), angle.cos()], 1)
            left = waves @ torch.linalg.lstsq(waves, v.unsqueeze(1)).solution[:, 0] - v
            errors.append(float(left.abs().max()))
        assert min(errors) < 2e-3
        assert 0.45 < float(v.abs().max()) < 1.55


def test_adversarial_inputs_raise_the_loss_more_than_noise_does() -> None:
    torch.manual_seed(0)
    model = SequenceModel(build("elman", 4, 8), 3)
    data = SequenceBatch(torch.randn(6, 10, 4), torch.randint(3, (6, 10)))

    def loss(x: torch.Tensor) -> float:
        scores = model(x)[0].flatten(0, 1)
        return nn.functional.cross_entropy(scores, data.y.flatten()).item()

    worse = generalisation._make_worse(model, data)
    noise = generalisation._make_noise(model, data)
    assert set(worse.unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert loss(data.x + 0.05 * worse) > loss(data.x + 0.05 * noise.sign()) + 1e-3
    assert loss(data.x - 0.05 * worse) < loss(data.x)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_masks_hold_entries_at_zero(share: float) -> None:
    torch.manual_seed(0)
    entries = (torch.rand(40, 40) >= share).float()
    mask = generalisation._Mask(entries)
    matrix = torch.randn(40, 40, requires_grad=True)
    (gradient,) = torch.autograd.grad(mask(matrix).square().sum(), matrix)
    assert float((mask(matrix) == 0).float().mean()) == pytest.approx(share, abs=0.05)
    assert bool((gradient[entries == 0] == 0).all())


class _Sum(nn.Module):
    """Predicts the sum of all inputs so far."""

    def forward(self, x: torch.Tensor, h: torch.Tensor | float = 0.0):
        total = h + x.cumsum(1)
        return total, total[:, -1:]


def test_predictions_are_fed_back_with_the_state() -> None:
    x = torch.tensor([[[1.0], [2.0]], [[0.0], [-1.0]]])
    # 1 + 2 = 3; then 3 + 3 = 6, 6 + 6 = 12
    expected = torch.tensor([[[3.0], [6.0], [12.0]], [[-1.0], [-2.0], [-4.0]]])
    assert torch.equal(cheetah._feed_back(_Sum(), x, 3), expected)


def test_the_score_is_the_mean_square_error() -> None:
    data = SequenceBatch(torch.ones(2, 2, 1), torch.tensor([[[1.0], [0.0]], [[3.0], [2.0]]]))
    assert cheetah._score(_Sum(), data) == (0 + 4 + 4 + 0) / 4


def test_the_share_of_a_bilinear_flow_is_one_with_products_alone() -> None:
    class Bilinear(AbstractCell):
        def step(self, x: torch.Tensor, h: torch.Tensor, dt: torch.Tensor) -> torch.Tensor:
            swap = h.flip(-1)
            return h + dt * (x[:, :1] * swap - 0.5 * h + x[:, 1:] + 0.3)

    torch.manual_seed(0)
    shares = cheetah._explain_flow(Bilinear(2, 1 + 1), torch.randn(8, 60, 2))
    assert shares["bilinear"] == pytest.approx(1.0, abs=1e-12)
    assert shares["linear"] < 0.9


def test_errors_in_the_memory_shrink_by_the_forget_gate_at_small_weights(monkeypatch) -> None:
    monkeypatch.setattr(gradients, "_STEPS", 6)
    monkeypatch.setattr(gradients, "_NEURONS", 3)
    for bias, factor in gradients._measure_memory(1e-6).items():
        assert factor == pytest.approx(1 / (1 + math.exp(-float(bias))), abs=1e-4)
