import numpy as np
import pytest
import torch
from tiny_training_task import Affine
from torch import nn

import tauflow
from tauflow.batch import SequenceBatch
from tauflow.cells import CfCCell, GNODECell, LTCCell, MixedMemoryCell, WiredCfCCell
from tauflow.errors import ArgumentError
from tauflow.models import SequenceModel
from tauflow.training import (
    Recipe,
    attach_constraints,
    clip_gradients,
    make_optimizer,
    packed_parts,
    train,
)
from tauflow.training.lr_schedule import compute_learning_rate
from tauflow.training.optim import l2_penalty
from tauflow.wirings import AutoNCP


def parameter(values, gradient=None):
    result = nn.Parameter(torch.tensor(values, dtype=torch.float64))
    if gradient is not None:
        result.grad = torch.tensor(gradient, dtype=torch.float64)
    return result


def updates(recipe, gradients):
    """Return the values of one scalar parameter that starts at 1, after each gradient."""
    weight = parameter([1.0])
    optimizer = make_optimizer(recipe, [weight])
    values = []
    for gradient in gradients:
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        values.append(weight.item())
    return values


def test_a_constant_schedule_is_constant():
    assert compute_learning_rate(Recipe(lr=0.3), epoch=9, step=1000, sequences=10) == 0.3


def test_an_epoch_schedule_falls_once_per_epoch():
    recipe = Recipe(lr=0.5, schedule="exponential", decay=0.8, batch_size=4)
    rates = [compute_learning_rate(recipe, epoch=s // 3, step=s, sequences=10) for s in range(7)]
    assert rates == pytest.approx([0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 0.32], rel=1e-15)


def test_a_step_schedule_falls_continuously_by_full_batches():
    recipe = Recipe(
        lr=0.5, schedule="exponential", decay=0.81, schedule_interval="step", batch_size=4
    )
    # 10 sequences make 2 full batches of 4: a factor 0.9 = sqrt(0.81) per step.
    rates = [compute_learning_rate(recipe, epoch=s // 3, step=s, sequences=10) for s in range(5)]
    assert rates == pytest.approx([0.5 * 0.9**s for s in range(5)], rel=1e-12)


def test_a_step_schedule_with_less_than_one_batch_counts_one():
    recipe = Recipe(schedule="exponential", decay=0.5, schedule_interval="step", batch_size=99)
    assert compute_learning_rate(recipe, epoch=2, step=2, sequences=10) == pytest.approx(0.25e-3)


def test_a_falling_rate_stops_at_its_floor():
    recipe = Recipe(lr=0.5, schedule="exponential", decay=0.5, min_lr=0.1)
    rates = [compute_learning_rate(recipe, epoch=e, step=e, sequences=10) for e in range(5)]
    assert rates == [0.5, 0.25, 0.125, 0.1, 0.1]


def test_adamax_follows_its_formula():
    lr, gradients = 0.1, [0.3, -2.0, 1e-3, 0.5]
    weight, moment, largest, expected = 1.0, 0.0, 0.0, []
    for step, gradient in enumerate(gradients, start=1):
        moment = 0.9 * moment + 0.1 * gradient
        largest = max(0.999 * largest, abs(gradient) + 1e-8)
        weight -= lr / (1 - 0.9**step) * moment / largest
        expected.append(weight)
    np.testing.assert_allclose(updates(Recipe(optimizer="adamax", lr=lr), gradients), expected)


def test_clipping_by_norm_scales_all_gradients_together():
    first, second = parameter([0.0, 0.0], [3.0, 0.0]), parameter([0.0], [4.0])
    clip_gradients([first, second, parameter([0.0])], Recipe(clip="norm", clip_norm=2.5))
    np.testing.assert_allclose(first.grad, [1.5, 0.0], rtol=1e-6)
    np.testing.assert_allclose(second.grad, [2.0], rtol=1e-6)


def test_clipping_per_tensor_scales_each_gradient_by_itself():
    large, small = parameter([0.0, 0.0], [3.0, 4.0]), parameter([0.0], [0.7])
    clip_gradients([large, small, parameter([0.0])], Recipe(clip="per_tensor", clip_norm=1.0))
    np.testing.assert_allclose(large.grad, [0.6, 0.8], rtol=1e-15)
    np.testing.assert_allclose(small.grad, [0.7], rtol=0)


def unpacked_cfc(cell, x, h, dt):
    """Run a step of the CfC of the TensorFlow code with each layer's tensors apart; return them."""
    N, heads = cell.hidden_size, cell.heads
    layers = [(layer.weight, layer.bias) for layer in cell.backbone.dense()]
    layers += zip(heads.weight.split(N), heads.bias.split(N), strict=True)
    leaves = [tuple(t.detach().clone().requires_grad_() for t in layer) for layer in layers]
    z = torch.cat([x, h], dim=-1)
    *backbone, g, h_, t_a, t_b = leaves
    for weight, bias in backbone:
        z = 1.7159 * torch.tanh(0.666 * (z @ weight.T + bias))
    g, h_, t_a, t_b = (z @ weight.T + bias for weight, bias in (g, h_, t_a, t_b))
    p = torch.sigmoid(-t_a * dt + t_b)
    return torch.tanh(g) * (1 - p) + torch.tanh(h_) * p, leaves


def clipped_by_keras(gradient, clip_norm):
    norm = np.sqrt((gradient.numpy() ** 2).sum())
    return gradient.numpy() * (clip_norm / norm if norm > clip_norm else 1.0)


@pytest.mark.parametrize("clip_norm", [1e-3, 0.3])
def test_heads_of_cfc_are_clipped_as_the_layers_that_they_are_in_keras(clip_norm):
    torch.manual_seed(0)
    cell = CfCCell(3, 5, backbone_units=7, backbone_layers=2).double()
    x, h, dt = (torch.randn(4, n, dtype=torch.float64) for n in (3, 5, 1))
    pull = torch.linspace(-3, 9, 20, dtype=torch.float64).view(4, 5)
    (cell.step(x, h, dt) * pull).sum().backward()
    y, leaves = unpacked_cfc(cell, x, h, dt)
    (y * pull).sum().backward()
    expected = [[clipped_by_keras(t.grad, clip_norm) for t in layer] for layer in leaves]
    recipe = Recipe(clip="per_tensor", clip_norm=clip_norm)
    clip_gradients(list(cell.parameters()), recipe, packed_parts(cell))
    layers = [(layer.weight, layer.bias) for layer in cell.backbone.dense()]
    for (weight, bias), (of_weight, of_bias) in zip(layers, expected[:2], strict=True):
        np.testing.assert_allclose(weight.grad, of_weight, rtol=1e-9)
        np.testing.assert_allclose(bias.grad, of_bias, rtol=1e-9)
    for at, parameter in enumerate((cell.heads.weight, cell.heads.bias)):
        joined = np.concatenate([layer[at] for layer in expected[2:]])
        np.testing.assert_allclose(parameter.grad, joined, rtol=1e-9)
        if clip_norm < 0.01:  # each head keeps as much, so that together they keep twice as much
            assert torch.linalg.vector_norm(parameter.grad) == pytest.approx(2 * clip_norm)


def test_training_clips_what_is_packed_part_by_part():
    """The first step of Adam with a large eps is lr g / (|g| + eps), which tells g."""
    lr, eps, clip_norm = 0.1, 10.0, 0.01
    model = SequenceModel(tauflow.CfC(1, 3), 1)
    before = model.rnn.cell.heads.weight.detach().clone()
    x = torch.randn(6, 4, 1)
    recipe = Recipe(lr=lr, eps=eps, clip="per_tensor", clip_norm=clip_norm, epochs=1,
                    batch_size=6, select="last")  # fmt: skip
    data = SequenceBatch(x=x, y=1e3 * torch.randn(6, 4, 1), dt=torch.ones(6, 4))
    train(model, train=data, valid=None, test=None, loss="mse", metric="mse", recipe=recipe, seed=0)
    moved = (before - model.rnn.cell.heads.weight.detach()) / lr
    gradient = moved * eps / (1 - moved.abs())
    for part in gradient.split(3):
        assert torch.linalg.vector_norm(part).item() == pytest.approx(clip_norm, rel=1e-3)


@pytest.mark.parametrize(
    "cell",
    [
        CfCCell(2, 3),
        CfCCell(2, 3, time_bias=False),
        CfCCell(2, 3, mode="pure"),
        MixedMemoryCell(2, 3),
        WiredCfCCell(2, AutoNCP(8, 2)),
        GNODECell(2, 3, units=5),
        GNODECell(2, 3, layers=1, final_activation="tanh"),
        LTCCell(2, 3),
        nn.Linear(2, 3),
    ],
    ids=lambda cell: type(cell).__name__,
)
def test_parts_make_up_the_parameters_that_pack_them(cell):
    parts = packed_parts(cell)
    for parameter, rows in parts.items():
        assert sum(rows) == len(parameter)
        assert any(parameter is part for part in cell.parameters())
    packs = isinstance(cell, CfCCell | MixedMemoryCell | WiredCfCCell | GNODECell)
    assert bool(parts) == packs


def test_zero_gradients_survive_clipping_per_tensor():
    zero = parameter([1.0], [0.0])
    clip_gradients([zero], Recipe(clip="per_tensor", clip_norm=1.0))
    assert zero.grad.item() == 0.0


def test_rmsprop_follows_the_formula_of_keras():
    lr, rho, eps, gradients = 0.1, 0.9, 1e-7, [0.3, -2.0, 1e-3, 0.0, 5.0]
    weight, average, expected = 1.0, 0.0, []
    for gradient in gradients:
        average = rho * average + (1 - rho) * gradient**2
        weight -= lr * gradient / (np.sqrt(average) + eps)
        expected.append(weight)
    recipe = Recipe(optimizer="rmsprop", lr=lr, rho=rho, eps=eps)
    np.testing.assert_allclose(updates(recipe, gradients), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_follows_its_formula(name):
    lr, betas, eps, decay, gradients = 0.1, (0.8, 0.9), 1e-3, 0.05, [0.3, -2.0, 1e-3]
    weight, m, v, expected = 1.0, 0.0, 0.0, []
    for step, gradient in enumerate(gradients, start=1):
        if name == "adam":
            gradient = gradient + decay * weight
        else:
            weight -= lr * decay * weight
        m = betas[0] * m + (1 - betas[0]) * gradient
        v = betas[1] * v + (1 - betas[1]) * gradient**2
        unbiased = m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)
        weight -= lr * unbiased[0] / (np.sqrt(unbiased[1]) + eps)
        expected.append(weight)
    recipe = Recipe(optimizer=name, lr=lr, betas=betas, eps=eps, weight_decay=decay)
    np.testing.assert_allclose(updates(recipe, gradients), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop"])
def test_options_left_out_are_the_optimizers_own(name):
    weight = parameter([1.0])
    classes = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}
    theirs = classes[name]([weight], lr=1e-3, weight_decay=0.0)
    all_at_once = {**theirs.defaults, "foreach": True}  # the same numbers, sooner
    assert make_optimizer(Recipe(optimizer=name), [weight]).defaults == all_at_once


class Penalised(Affine):
    def l2_parameters(self):
        yield self.w


def test_the_penalty_is_the_sum_of_squares_and_counts_shared_tensors_once():
    first, second = Penalised(), Penalised()
    second.w = first.w
    model = nn.ModuleList([first, second, nn.Linear(2, 2)])
    with torch.no_grad():
        first.w.fill_(3.0)
    penalty = l2_penalty(model)
    penalty.backward()
    assert penalty.item() == 9.0
    assert first.w.grad.item() == 6.0
    assert first.b.grad is None


def test_training_adds_the_gradient_of_the_penalty_and_does_not_log_it():
    # With rho = 0 RMSprop takes the step lr g / (|g| + eps): the gradient can be read off.
    lr, eps, l2 = 0.1, 10.0, 0.25
    recipe = Recipe(
        optimizer="rmsprop", rho=0.0, eps=eps, lr=lr, l2=l2, epochs=1, select="last", batch_size=2
    )
    model = Penalised()
    data = SequenceBatch(torch.tensor([[[2.0]], [[4.0]]]), torch.tensor([[[0.0]], [[0.0]]]))
    result = train(
        model, train=data, valid=None, test=None, loss="mse", metric="mse", recipe=recipe, seed=0
    )
    # mean of (0.5 x)^2 is 2.5; d/dw = mean of 2 * 0.5 x * x = 10, d/db = mean of 2 * 0.5 x = 3.
    gradients = {"w": 10.0 + 2 * l2 * 0.5, "b": 3.0}
    assert result.history[0]["train_loss"] == pytest.approx(2.5)
    for name, start in (("w", 0.5), ("b", 0.0)):
        expected = start - lr * gradients[name] / (gradients[name] + eps)
        assert getattr(model, name).item() == pytest.approx(expected, rel=1e-6)


def test_a_penalty_on_nothing_is_refused():
    with pytest.raises(ArgumentError, match=r"no module of the model lists .* use weight_decay"):
        l2_penalty(nn.Linear(2, 2))


class Bounded(Affine):
    def project_(self):
        assert not torch.is_grad_enabled()
        self.w.clamp_(0.4, 0.6)


def test_constraints_hold_after_every_step_of_a_users_own_loop_until_removed():
    model = nn.Sequential(Bounded(), Bounded())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = attach_constraints(model, optimizer)
    for module in model:
        module.w.grad = torch.tensor([-5.0])
    optimizer.step()
    assert [module.w.item() for module in model] == pytest.approx([0.6, 0.6])
    handle.remove()
    optimizer.step()
    assert model[0].w.item() == pytest.approx(5.6)


def test_training_keeps_constraints():
    model = Bounded()
    data = SequenceBatch(torch.ones(4, 3, 1), torch.full((4, 3, 1), 100.0))
    recipe = Recipe(lr=0.5, epochs=2, batch_size=2, select="last")
    train(model, train=data, valid=None, test=None, loss="mse", metric="mse", recipe=recipe, seed=0)
    assert model.w.item() == pytest.approx(0.6)
    assert model.b.item() > 0.5
