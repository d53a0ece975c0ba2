import numpy as np
import pytest
import torch
from tiny_training_task import Affine
from torch import nn

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError
from tauflow.training import Recipe, attach_constraints, clip_gradients, make_optimizer, train
from tauflow.training.optimization import l2_penalty, learning_rate


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
    assert learning_rate(Recipe(lr=0.3), epoch=9, step=1000, sequences=10) == 0.3


def test_an_epoch_schedule_falls_once_per_epoch():
    recipe = Recipe(lr=0.5, schedule="exponential", decay=0.8, batch_size=4)
    rates = [learning_rate(recipe, epoch=s // 3, step=s, sequences=10) for s in range(7)]
    assert rates == pytest.approx([0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 0.32], rel=1e-15)


def test_a_step_schedule_falls_continuously_by_full_batches():
    recipe = Recipe(
        lr=0.5, schedule="exponential", decay=0.81, schedule_interval="step", batch_size=4
    )
    # 10 sequences make 2 full batches of 4: a factor 0.9 = sqrt(0.81) per step.
    rates = [learning_rate(recipe, epoch=s // 3, step=s, sequences=10) for s in range(5)]
    assert rates == pytest.approx([0.5 * 0.9**s for s in range(5)], rel=1e-12)


def test_a_step_schedule_with_less_than_one_batch_counts_one():
    recipe = Recipe(schedule="exponential", decay=0.5, schedule_interval="step", batch_size=99)
    assert learning_rate(recipe, epoch=2, step=2, sequences=10) == pytest.approx(0.25e-3)


def test_a_falling_rate_stops_at_its_floor():
    recipe = Recipe(lr=0.5, schedule="exponential", decay=0.5, min_lr=0.1)
    rates = [learning_rate(recipe, epoch=e, step=e, sequences=10) for e in range(5)]
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
    assert make_optimizer(Recipe(optimizer=name), [weight]).defaults == theirs.defaults


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
