"""Training and evaluation take numbers below 1.2e-38 as zero, and leave the mode as it was."""

import pytest
import torch
from tiny_training_task import Affine, TinyModel, tiny_splits

from tauflow.training import Recipe, evaluate, train
from tauflow.training.denormals import flush_denormals


def flushing():
    return bool((torch.tensor([1e-40]) * 1.0 == 0).item())


@pytest.fixture(autouse=True)
def usual_mode():
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor has no such mode")
    assert not flushing()
    yield
    torch.set_flush_denormal(False)


class Watched(TinyModel):
    """Notes in which mode it is called, forwards and backwards."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, *, dt=None, mask=None):
        self.seen.append(flushing())
        y, h = super().forward(x, dt=dt, mask=mask)
        if y.requires_grad:
            y.register_hook(lambda _: self.seen.append(flushing()))
        return y, h


def test_steps_and_evaluations_flush_and_callbacks_do_not():
    model, flushed = Watched(), []
    train(
        model,
        **tiny_splits(),
        recipe=Recipe(epochs=2, batch_size=8),
        callbacks=[lambda row: flushed.append(flushing())],
    )
    # In each of 2 epochs 3 steps, there and back, and two evaluations.
    assert model.seen == [True] * 2 * (3 * 2 + 2)
    assert flushed == [False, False]
    assert not flushing()
    evaluate(model, tiny_splits()["test"], metric="mse")
    assert model.seen[-1]
    assert not flushing()


def test_a_mode_asked_for_before_stays():
    torch.set_flush_denormal(True)
    with flush_denormals():
        assert flushing()
    assert flushing()


def test_the_mode_comes_back_after_an_error():
    class Broken(Affine):
        def forward(self, x, *, dt=None, mask=None):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(Broken(), **tiny_splits(), recipe=Recipe(epochs=1))
    assert not flushing()


def test_a_weight_that_only_a_penalty_moves_ends_at_zero():
    class Shrinking(TinyModel):
        def l2_parameters(self):
            return [self.unused]

        def __init__(self):
            super().__init__()
            self.unused = torch.nn.Parameter(torch.tensor([1e-36]))

    model = Shrinking()
    train(
        model,
        **tiny_splits(),
        # Each step halves it, so that after 12 steps it would be 2e-40.
        recipe=Recipe(optimizer="sgd", lr=0.25, l2=1.0, epochs=4, batch_size=8, select="last"),
    )
    assert model.unused.item() == 0.0
