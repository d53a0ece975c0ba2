"""The course of a training goes to TensorBoard, which is imported only then."""

import sys

import pytest
from tiny_training_task import tiny_model, tiny_splits

from tauflow.errors import MissingExtraError, UnknownNameError
from tauflow.training import Recipe, log_to, train


def fit(folder, kind, epochs=2, **more):
    log = log_to(kind, folder)
    recipe = Recipe(lr=0.1, epochs=epochs, batch_size=11)
    return train(tiny_model(), **tiny_splits(), recipe=recipe, callbacks=[log], **more)


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    result = fit(tmp_path, "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    for name in ("train_loss", "valid", "test", "lr"):
        scalars = events.Scalars(name)
        assert [scalar.step for scalar in scalars] == [1, 2]
        expected = [row[name] for row in result.history]
        assert [scalar.value for scalar in scalars] == pytest.approx(expected, rel=1e-6)


def test_a_tracker_that_is_not_there_and_one_that_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"tensorboard is not installed. Install it with"):
        fit(tmp_path, "tensorboard")
    with pytest.raises(UnknownNameError, match=r"log='tensorbord' is unknown. Did you mean 'tens"):
        fit(tmp_path, "tensorbord")
