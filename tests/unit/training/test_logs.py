"""The course of a training goes to the writers of other libraries, imported only then."""

import csv
import sys
from types import SimpleNamespace

import pytest
from tiny_training_task import tiny_model, tiny_splits

from tauflow.errors import MissingExtraError, UnknownNameError
from tauflow.training import Recipe, log_to, train


def fit(folder, kind, epochs=2, **more):
    log = log_to(kind, folder, name="tiny", config={"seed": 0, "recipe": {"lr": 0.1}})
    recipe = Recipe(lr=0.1, epochs=epochs, batch_size=11)
    return train(tiny_model(), **tiny_splits(), recipe=recipe, callbacks=[log], **more)


def test_a_csv_file_has_every_epoch_once_though_the_run_goes_on(tmp_path):
    fit(tmp_path, "csv", run_dir=tmp_path)
    result = fit(tmp_path, "csv", epochs=4, run_dir=tmp_path, resume=True)
    lines = (tmp_path / "history.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    assert [float(row["valid"]) for row in rows] == [row["valid"] for row in result.history]


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    result = fit(tmp_path, "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    for name in ("train_loss", "valid", "test", "lr"):
        scalars = events.Scalars(name)
        assert [one.step for one in scalars] == [1, 2]
        expected = [row[name] for row in result.history]
        assert [one.value for one in scalars] == pytest.approx(expected, rel=1e-6)


class Stand:
    """Writes down how it is called, in place of a library that is not installed."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*values, **options):
            self.calls.append((name, values, options))
            return self

        return call


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("mlflow", ["start_run", "log_params", "log_metrics", "log_metrics", "end_run"]),
        ("wandb", ["init", "log", "log", "finish"]),
    ],
)
def test_trackers_are_told_in_their_own_words(kind, names, tmp_path, monkeypatch):
    stand = Stand()
    module = SimpleNamespace(**{name: getattr(stand, name) for name in names}, __name__=kind)
    monkeypatch.setitem(sys.modules, kind, module)
    result = fit(tmp_path, kind)
    assert [name for name, _, _ in stand.calls] == names
    numbers, step = stand.calls[-2][1], stand.calls[-2][2]["step"]
    assert numbers[0]["valid"] == result.history[-1]["valid"]
    assert step == 2


def test_a_tracker_that_is_not_there_and_one_that_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"mlflow is not installed. Install it with: pip"):
        fit(tmp_path, "mlflow")
    with pytest.raises(UnknownNameError, match=r"log='wanb' is unknown. Did you mean 'wandb'"):
        fit(tmp_path, "wanb")
