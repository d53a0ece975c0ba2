import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_training_task import tiny_model, tiny_splits

import tauflow
from tauflow._internal.locks import LOCK_FILE
from tauflow.errors import CheckpointError
from tauflow.training import Recipe, checkpoint, read_checkpoint, train

RECIPE = Recipe(lr=1.0, epochs=3, batch_size=8)  # so large that the best epoch is not the last


def fit(directory, *, model=None, resume=True, **changes):
    arguments = {
        **tiny_splits(),
        "loss": "mse",
        "metric": "mse",
        "recipe": RECIPE,
        "seed": 0,
        **changes,
    }
    return train(model or tiny_model(), run_dir=directory, resume=resume, **arguments)


def without_seconds(history):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history]


def logged(directory):
    lines = (directory / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return without_seconds(json.loads(line) for line in lines)


def assert_equal_tensors(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def assert_same_run(a, b):
    """Compare all that two run directories hold, exactly, except for the time taken."""
    checkpoint_of_a, other = (read_checkpoint(path / "last.safetensors") for path in (a, b))
    assert_equal_tensors(checkpoint_of_a.model, other.model)
    assert_equal_tensors(checkpoint_of_a.rng, other.rng)
    assert checkpoint_of_a.optimizer.keys() == other.optimizer.keys()
    for index in checkpoint_of_a.optimizer:
        assert_equal_tensors(checkpoint_of_a.optimizer[index], other.optimizer[index])
    assert (
        without_seconds(checkpoint_of_a.history)
        == without_seconds(other.history)
        == logged(a)
        == logged(b)
    )
    assert (checkpoint_of_a.epoch, checkpoint_of_a.step, checkpoint_of_a.best_epoch) == (
        other.epoch,
        other.step,
        other.best_epoch,
    )
    best = [checkpoint.read_tensors(path / "best.safetensors", "weights file") for path in (a, b)]
    assert_equal_tensors(best[0][0], best[1][0])
    assert best[0][1] == best[1][1]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")
def test_a_run_killed_at_random_moments_ends_as_one_left_in_peace(tmp_path):
    program = Path(__file__).with_name("kill_and_resume.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), "12", "1"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 3, "too few kills to tell anything"
    assert_same_run(tmp_path / "peace", tmp_path / "killed")
    returned = [torch.load(tmp_path / name / "returned.pt") for name in ("peace", "killed")]
    assert_equal_tensors(*returned)


class Killed(BaseException):
    pass


@pytest.mark.sampled(4)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("files", range(1, 7))
def test_a_run_that_dies_between_any_two_files_goes_on(tmp_path, monkeypatch, files, when):
    # Uninterrupted, the run replaces 1 file at the start, and 1 or 2 per epoch.
    replace, left = os.replace, iter(range(files - 1, -1, -1))

    def die(source, target):
        last = next(left) == 0
        if last and when == "before":
            raise Killed
        replace(source, target)
        if last:
            raise Killed

    fit(tmp_path / "peace")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(Killed):
            fit(tmp_path / "killed")
    model, expected = tiny_model(), tiny_model()
    result = fit(tmp_path / "killed", model=model)
    assert_same_run(tmp_path / "peace", tmp_path / "killed")
    assert without_seconds(result.history) == logged(tmp_path / "peace")
    fit(tmp_path / "peace", model=expected)
    assert_equal_tensors(model.state_dict(), expected.state_dict())


def test_a_seed_of_numpy_is_that_of_its_value(tmp_path):
    history = fit(tmp_path, seed=np.int64(1), resume=False).history
    assert without_seconds(fit(tmp_path, seed=1).history) == without_seconds(history)


def test_a_torn_line_in_the_log_is_mended(tmp_path):
    first = fit(tmp_path)
    with (tmp_path / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"epoch": 4, "ste')
    fit(tmp_path)
    assert logged(tmp_path) == without_seconds(first.history)


def test_a_log_without_a_checkpoint_is_begun_anew(tmp_path):
    first = fit(tmp_path)
    (tmp_path / "last.safetensors").unlink()
    fit(tmp_path)
    assert logged(tmp_path) == without_seconds(first.history)


def test_resuming_a_finished_run_returns_its_result_without_training(tmp_path):
    before, after = tiny_model(), tiny_model()
    first = fit(tmp_path, model=before, resume=False)
    after.rnn.register_forward_hook(lambda *_: pytest.fail("the model was called"))
    assert fit(tmp_path, model=after) == first
    assert first.best_epoch < 3
    assert_equal_tensors(before.state_dict(), after.state_dict())


def test_the_last_weights_are_resumed_too(tmp_path):
    recipe = Recipe(lr=1.0, epochs=3, batch_size=8, select="last")
    before, after = tiny_model(), tiny_model()
    fit(tmp_path, model=before, recipe=recipe)
    assert fit(tmp_path, model=after, recipe=recipe).best_epoch == 3
    assert_equal_tensors(before.state_dict(), after.state_dict())
    assert not (tmp_path / "best.safetensors").exists()


def frozen_model():
    model = tiny_model(per_step=True, outputs=1)
    next(model.parameters()).requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"recipe": Recipe(lr=0.2, epochs=3, batch_size=8)},
            r"recipe\.lr was 1\.0, is 0\.2\. Call",
        ),
        ({"recipe": Recipe(lr=1.0, epochs=2, batch_size=8)}, r"recipe\.epochs was 3, is 2"),
        ({"seed": 1}, "seed was 0, is 1"),
        ({"metric": "mae"}, "metric was 'mse', is 'mae'"),
        ({"model": tiny_model(per_step=True, outputs=1).double()}, r"fingerprint\.model was"),
        ({"model": frozen_model()}, r"fingerprint\.model was"),
        ({"test": None}, r"fingerprint\.test was '.*', is None"),
        ({"train": tiny_splits()["valid"]}, r"fingerprint\.train was"),
    ],
)
def test_resuming_another_run_says_what_differs(tmp_path, changes, message):
    fit(tmp_path)
    with pytest.raises(CheckpointError, match=f"holds another run: {message}"):
        fit(tmp_path, **changes)


def flow_model(**options):
    torch.manual_seed(0)
    return tauflow.SequenceModel(tauflow.GNODE(2, 3, units=4, **options), 1)


def test_a_run_may_go_on_with_other_loops(tmp_path):
    first = fit(tmp_path, model=flow_model())
    assert fit(tmp_path, model=flow_model(backend="reference", checkpoint_every=4)) == first


def test_a_run_from_when_options_were_kept_goes_on(tmp_path):
    first = fit(tmp_path, model=flow_model())
    described = json.loads((tmp_path / "run.json").read_bytes())
    described["model"] = {"rnn.cells.0.tau": 1.0}
    (tmp_path / "run.json").write_text(json.dumps(described), encoding="utf-8")
    assert fit(tmp_path, model=flow_model()) == first


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"select": "last"},
        {"schedule": "exponential", "decay": 0.5},
        # The fourth epoch is the best, and left unscored by the run that ends with it.
        {"lr": 0.1, "score_last_epoch": False},
    ],
)
def test_more_epochs_end_with_the_numbers_of_a_run_that_had_them_at_once(tmp_path, options):
    def recipe(epochs):
        return Recipe(**{"lr": 1.0, "batch_size": 8, **options, "epochs": epochs})

    extended, at_once = tiny_model(), tiny_model()
    fit(tmp_path / "extended", model=tiny_model(), recipe=recipe(4))
    longer = fit(tmp_path / "extended", model=extended, recipe=recipe(6))
    reference = fit(tmp_path / "at-once", model=at_once, recipe=recipe(6))
    assert without_seconds(longer.history) == without_seconds(reference.history)
    assert (reference.best_epoch == 4) == (options == {"lr": 0.1, "score_last_epoch": False})
    assert (longer.best_epoch, longer.test) == (reference.best_epoch, reference.test)
    assert_equal_tensors(extended.state_dict(), at_once.state_dict())
    again = tiny_model()  # what is on disk is the longer run, whole
    assert fit(tmp_path / "extended", model=again, recipe=recipe(6)) == longer
    assert_equal_tensors(again.state_dict(), at_once.state_dict())


def test_a_run_may_be_resumed_with_evaluation_batches_of_another_size(tmp_path):
    fit(tmp_path / "resumed")
    (tmp_path / "resumed" / "last.safetensors").unlink()  # stopped in its first epoch
    recipe = Recipe(lr=1.0, epochs=3, batch_size=8, eval_batch_size=3)
    fit(tmp_path / "resumed", recipe=recipe)
    fit(tmp_path / "at-once", recipe=recipe)
    assert_same_run(tmp_path / "resumed", tmp_path / "at-once")
    files = [tmp_path / name / "run.json" for name in ("resumed", "at-once")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_run_from_before_an_option_existed_had_its_default(tmp_path):
    first = fit(tmp_path)
    described = json.loads((tmp_path / "run.json").read_bytes())
    del described["recipe"]["on_divergence"]
    (tmp_path / "run.json").write_text(json.dumps(described), encoding="utf-8")
    assert fit(tmp_path) == first
    changed = Recipe(lr=1.0, epochs=3, batch_size=8, on_divergence="stop")
    with pytest.raises(CheckpointError, match="on_divergence was 'raise', is 'stop'"):
        fit(tmp_path, recipe=changed)


def test_damaged_files_are_refused_with_advice(tmp_path):
    fit(tmp_path)
    for name in ("run.json", "last.safetensors", "best.safetensors"):
        file = tmp_path / name
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
        with pytest.raises(CheckpointError, match=r"damaged.* Restore it from a copy, or delete"):
            fit(tmp_path)
        file.write_bytes(data)


def test_best_weights_of_another_epoch_are_refused(tmp_path):
    fit(tmp_path)
    weights, metadata = checkpoint.read_tensors(tmp_path / "best.safetensors", "weights file")
    checkpoint.write_tensors(
        tmp_path / "best.safetensors", "weights file", weights, {**metadata, "epoch": 99}
    )
    with pytest.raises(CheckpointError, match="holds the weights of epoch 99, but the best epoch"):
        fit(tmp_path)


def test_the_files_are_the_promised_ones(tmp_path):
    fit(tmp_path / "deep" / "run", resume=False)
    names = {file.name for file in (tmp_path / "deep" / "run").iterdir()}
    assert names == {"run.json", "log.jsonl", "last.safetensors", "best.safetensors", LOCK_FILE}
    keys = {"epoch", "step", "lr", "train_loss", "valid", "test", "seconds"}
    for line in (tmp_path / "deep" / "run" / "log.jsonl").read_text().splitlines():
        assert json.loads(line).keys() == keys


def test_a_checkpoint_of_tensors_of_other_shapes_is_refused(tmp_path):
    fit(tmp_path)
    path = tmp_path / "last.safetensors"
    more = Recipe(lr=1.0, epochs=4, batch_size=8)
    stored = read_checkpoint(path)
    for part in ("weight", "generator"):
        damaged = read_checkpoint(path)
        if part == "weight":
            name = next(iter(damaged.model))
            damaged.model[name] = torch.ones(9)
        else:
            damaged.rng["cpu"] = torch.zeros(3, dtype=torch.uint8)
        checkpoint.write_checkpoint(path, damaged)
        with pytest.raises(CheckpointError, match=r"(?s)does not fit this model: .*train again"):
            fit(tmp_path, recipe=more)
    checkpoint.write_checkpoint(path, stored)
    assert fit(tmp_path, recipe=more).epochs == 4
