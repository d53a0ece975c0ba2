"""Callbacks hear of a training in the promised order, and may end it; so may patience."""

import pytest
import torch
from tiny_training_task import Affine, tiny_model, tiny_splits

from tauflow.batch import SequenceBatch
from tauflow.errors import DtypeError
from tauflow.training import Callback, Recipe, train

RECIPE = Recipe(lr=0.02, epochs=3, batch_size=8)


def fit(model=None, *, recipe=RECIPE, **changes):
    options = {**tiny_splits(), "recipe": recipe, **changes}
    return train(model or tiny_model(), **options)


class Listener(Callback):
    """Writes down what it hears; may stop, or raise, at a certain word."""

    def __init__(self, stop_at=None, raise_at=None):
        self.heard, self.stop_at, self.raise_at = [], stop_at, raise_at

    def _hear(self, word, training):
        self.heard.append(word)
        if word == self.stop_at:
            training.stop()
        if word == self.raise_at:
            raise KeyboardInterrupt

    def on_start(self, training):
        self._hear(f"start {training.epoch}", training)

    def on_batch(self, training):
        assert training.batch_loss > 0
        self._hear(f"batch {training.epoch}.{training.step}", training)

    def on_improved(self, training):
        assert training.best_epoch == training.epoch
        self._hear(f"improved {training.epoch}", training)

    def on_epoch(self, training):
        assert training.history[-1]["epoch"] == training.epoch
        self._hear(f"epoch {training.epoch}", training)

    def on_end(self, training):
        self._hear("end", training)


def test_callbacks_are_a_list():
    with pytest.raises(DtypeError, match=r"callbacks must be a list.*Write \[callback\]"):
        fit(callbacks=Listener())


def test_the_life_of_a_callback():
    listener = Listener()
    data = tiny_splits()
    fit(recipe=Recipe(lr=1e-3, epochs=2, batch_size=11), callbacks=[listener], test=data["test"])
    assert listener.heard == [
        "start 0",
        *("batch 1.1", "batch 1.2", "improved 1", "epoch 1"),
        *("batch 2.3", "batch 2.4", "improved 2", "epoch 2"),
        "end",
    ]


@pytest.mark.parametrize("word", ["batch 1.2", "improved 1", "epoch 1", "start 0"])
def test_who_stops_lets_the_epoch_be_the_last_for_good(word, tmp_path):
    result = fit(callbacks=[Listener(stop_at=word)], run_dir=tmp_path)
    assert (result.epochs, len(result.history)) == (1, 1)
    assert fit(run_dir=tmp_path, resume=True) == result


def test_a_run_that_is_killed_before_it_hears_of_a_stop_goes_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(callbacks=[Listener(raise_at="epoch 2"), Listener(stop_at="epoch 2")], run_dir=tmp_path)
    assert fit(run_dir=tmp_path, resume=True).epochs == 3


def test_a_run_that_goes_on_may_be_stopped_before_its_next_epoch(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(callbacks=[Listener(raise_at="epoch 2")], run_dir=tmp_path)
    options = {"run_dir": tmp_path, "resume": True}
    assert fit(callbacks=[Listener(stop_at="start 2")], **options).epochs == 2
    assert fit(**options).epochs == 2


class Drawing(Callback):
    """Draws random numbers whenever it can."""

    def on_start(self, training):
        torch.manual_seed(training.epoch + 5)

    def on_batch(self, training):
        torch.rand(training.step)

    def on_epoch(self, training):
        torch.randperm(9)
        if training.epoch == 2:
            raise KeyboardInterrupt


def test_random_numbers_of_a_callback_are_not_those_of_the_training(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(callbacks=[Drawing()], run_dir=tmp_path)
    result = fit(callbacks=[Drawing()], run_dir=tmp_path, resume=True)
    assert [row["train_loss"] for row in result.history] == [
        row["train_loss"] for row in fit().history
    ]


def test_a_callback_hears_the_rate_where_a_run_goes_on(tmp_path):
    rates = []

    class Rate(Callback):
        def on_start(self, training):
            rates.append(training.lr)

    options = {"lr": 0.02, "batch_size": 8, "schedule": "exponential", "decay": 0.5}
    for epochs in (2, 3):
        recipe = Recipe(**options, epochs=epochs)
        fit(recipe=recipe, run_dir=tmp_path, resume=True, callbacks=[Rate()])
    assert rates == [0.02, 0.01]


def test_the_end_is_heard_after_an_exception_too(tmp_path):
    listener = Listener(raise_at="epoch 2")
    with pytest.raises(KeyboardInterrupt):
        fit(callbacks=[listener], run_dir=tmp_path)
    assert listener.heard[-2:] == ["epoch 2", "end"]
    again = Listener()
    fit(callbacks=[again], run_dir=tmp_path, resume=True)
    assert again.heard[0] == "start 2"


def test_a_function_is_called_with_every_row():
    rows = []
    result = fit(callbacks=[rows.append])
    assert rows == list(result.history)


class Steps(Affine):
    """Its score goes through given values, one per epoch."""

    def __init__(self, values):
        super().__init__()
        self.values = values
        self.register_buffer("epoch", torch.tensor(-1))

    def forward(self, x, **options):
        if self.training:
            self.epoch += 1
        return self.w * 0 + torch.full_like(x, self.values[int(self.epoch)]), None


ONES = SequenceBatch(torch.zeros(3, 1, 1), torch.zeros(3, 1, 1))
WORSE = [3.0, 2.0, 2.5, 2.0, 1.0, 4.0, 4.0, 4.0, 0.0]


@pytest.mark.parametrize(("patience", "last"), [(1, 3), (2, 4), (3, 8), (4, 9)])
def test_patience_ends_where_it_must(patience, last, tmp_path):
    recipe = Recipe(epochs=9, patience=patience)
    options = {"train": ONES, "valid": ONES, "metric": "mae", "recipe": recipe, "run_dir": tmp_path}
    result = train(Steps(WORSE), **options)
    assert result.epochs == last
    assert result.best_epoch == 1 + WORSE.index(min(WORSE[:last]))
    again = train(Steps(WORSE), **options, resume=True)
    assert again == result


def test_patience_is_kept_by_a_run_that_is_cut_off(tmp_path):
    recipe = Recipe(epochs=9, patience=3)
    options = {"train": ONES, "valid": ONES, "metric": "mae", "recipe": recipe, "run_dir": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        train(Steps(WORSE), **options, callbacks=[Listener(raise_at="epoch 6")])
    assert train(Steps(WORSE), **options, resume=True).epochs == 8


def test_stages_of_a_curriculum_need_no_patience():
    data = SequenceBatch(torch.zeros(3, 4, 1), torch.zeros(3, 4, 1))
    recipe = Recipe(epochs=9, patience=1, curriculum=(1, 2), curriculum_epochs=2)
    result = train(Steps([1.0, *[2.0] * 8]), train=data, valid=data, metric="mae", recipe=recipe)
    assert result.epochs == 5
