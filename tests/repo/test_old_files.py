"""Files of an earlier version, in ``tests/frozen``, are read and give the numbers that they gave.

``python -m benchmarks freeze --write-old DIR`` wrote them. They are left as they are: a test that
fails says that files of users cannot be read any more.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from safetensors.torch import load_file
from sources import ROOT

import tauflow
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor

sys.path.insert(0, str(ROOT))
from benchmarks.freeze import old

FROZEN = ROOT / "tests" / "frozen"
EXPECTED = load_file(FROZEN / "expected.safetensors")
MODELS = sorted(path.stem for path in (FROZEN / "models").iterdir())


def close(actual, name):
    expected = EXPECTED[name]
    torch.testing.assert_close(torch.as_tensor(actual), expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Copy all files to an empty folder, and work there."""
    shutil.copytree(FROZEN, tmp_path / "frozen")
    monkeypatch.chdir(tmp_path / "frozen")
    return tmp_path / "frozen"


def test_all_kinds_of_models_are_here():
    assert {name.removesuffix(".y") for name in EXPECTED if name.endswith(".y")} == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    if name.startswith("latent-ode"):
        pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")
    model = tauflow.load(FROZEN / "models" / f"{name}.safetensors").eval()
    x, dt = EXPECTED[f"{name}.x"], EXPECTED[f"{name}.dt"]
    if name == "cell":
        y = model.step(x[:, 0], model.initial_state(x[:, 0]), dt[:, :1])
    else:
        y, _ = model(x, dt=dt)
    torch.testing.assert_close(y, EXPECTED[f"{name}.y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "name", "method"),
    [
        (SequenceClassifier, "classifier", "predict_proba"),
        (SequenceRegressor, "regressor", "predict"),
        (SequenceForecaster, "forecaster", "predict"),
    ],
)
def test_estimator(kind, name, method):
    estimator = kind.load(FROZEN / "estimators" / f"{name}.safetensors")
    X, t = EXPECTED["estimators.X"].numpy(), EXPECTED["estimators.t"].numpy()
    close(np.asarray(getattr(estimator, method)(X, t=t)), f"estimators.{name}")


def test_checkpoint_resumes_to_the_same_weights(files, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "unit" / "training"))
    arguments = old.training()
    result = tauflow.train(**arguments, run_dir=Path("checkpoint"), resume=True)
    assert len(result.history) == 3
    logged = Path("checkpoint", "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert logged[:1] == (FROZEN / "checkpoint" / "log.jsonl").read_text("utf-8").splitlines()
    for name, tensor in arguments["model"].state_dict().items():
        close(tensor, f"checkpoint.{name}")


def test_run_predicts_as_before(files):
    (run,) = Path("trained").rglob("predictor.safetensors")
    old.command("predict", str(run.parent), "--csv", "visits.csv", "--proba", "--out", "new.csv")
    frames = [pandas.read_csv(name) for name in ("new.csv", "predicted.csv")]
    pandas.testing.assert_frame_equal(*frames, rtol=1e-5, atol=1e-6)


def test_finished_run_is_found_again_and_reported(files):
    (record,) = Path("trained").rglob("record.json")
    before = sorted(Path("trained").rglob("run.json"))
    old.command("run", *old.RUN.split(), "--epochs", "2", "--resume")
    assert sorted(Path("trained").rglob("run.json")) == before
    assert (record.parent / "report.html").is_file()
    assert "gru" in old.command("show", str(record.parent))
    log = record.parent / "log.jsonl"
    assert log.read_bytes() == (FROZEN / log).read_bytes()  # no epoch was trained again


def test_run_continues_with_more_epochs(files):
    (log,) = Path("trained").rglob("log.jsonl")
    before = log.read_text(encoding="utf-8").splitlines()
    old.command("run", *old.RUN.split(), "--epochs", "3", "--resume")
    longer = [path for path in Path("trained").rglob("log.jsonl") if path != log]
    (after,) = [path.read_text(encoding="utf-8").splitlines() for path in longer]
    assert after[:2] == before
    assert len(after) == 3


def test_study_continues(files):
    (study,) = Path("studies").rglob("study.log")
    before = study.read_bytes()
    output = old.command("tune", *old.STUDY.split(), "--trials", "3")
    assert "trial 3, complete" in output
    assert "trial 1, complete" not in output
    assert study.read_bytes().startswith(before)


def test_results_of_a_table_are_found_again(files):
    old.command("reproduce", "table/tiny.toml", "--results", "table")
    content = Path("table", "tiny.jsonl").read_bytes()
    assert content == (FROZEN / "table" / "tiny.jsonl").read_bytes()  # nothing was run again
    assert not list(Path().rglob("reproduced"))
