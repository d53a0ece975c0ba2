"""Evaluation for a while: every part is in its former mode afterwards, whoever else evaluates."""

import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn

import tauflow
from tauflow.data import from_table
from tauflow.estimators import SequenceClassifier
from tauflow.training import evaluate
from tauflow.training.eval_mode import evaluation_mode

pandas = pytest.importorskip("pandas")
THREADS, CALLS = 4, 15


@pytest.fixture(autouse=True)
def _frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def dropping():
    torch.manual_seed(0)
    return tauflow.SequenceModel(tauflow.CfC(1, 8, num_layers=2, dropout=0.9), 2)


def in_threads(work):
    """Call a function in several threads at a time; return all that it returned."""
    outcomes = []

    def many():
        for _ in range(CALLS):
            outcomes.append(work())

    threads = [threading.Thread(target=many) for _ in range(THREADS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(outcomes) == THREADS * CALLS
    return outcomes


def of_predictor():
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"a": rng.normal(size=1500), "id": np.arange(1500) // 5})
    data = from_table(
        table.assign(y=table.id % 2), id="id", target="y", features=["a"], per_step=True
    )
    predictor = tauflow.Predictor.from_data(dropping(), data)
    return predictor.model, lambda: predictor.predict_proba(table).iloc[:, 1:].to_numpy()


def of_estimator():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5, 1)), np.arange(300) % 2
    options = {"backbone_units": 16, "backbone_dropout": 0.9}
    estimator = SequenceClassifier(model="cfc", hidden_size=8, epochs=1, options=options)
    estimator = estimator.fit(X[:40], y[:40])
    return estimator.module_, lambda: estimator.predict_proba(X)


def of_evaluate():
    model = dropping()
    x = torch.randn(300, 5, 1)
    data = tauflow.SequenceBatch(x, (x[..., 0].sum(1) > 0).long()[:, None].expand(300, 5))
    return model, lambda: evaluate(model, data, metric="cross_entropy", batch_size=64)


@pytest.mark.parametrize("make", [of_predictor, of_estimator, of_evaluate])
def test_threads_answer_as_one_does(make):
    model, answer = make()
    model.eval()
    expected = answer()
    for answer_of_thread in in_threads(answer):
        np.testing.assert_allclose(answer_of_thread, expected, atol=1e-4)
    assert not any(part.training for part in model.modules())


def test_nested_evaluations_and_modes_set_within_them():
    model = dropping()
    with evaluation_mode(model):
        with evaluation_mode(model):
            pass
        assert not any(part.training for part in model.modules())
        model.train()
        with evaluation_mode(model):  # each of them puts the module into evaluation mode
            assert not any(part.training for part in model.modules())
    assert all(part.training for part in model.modules())
    model.rnn.eval()
    with pytest.raises(ZeroDivisionError), evaluation_mode(model):
        raise ZeroDivisionError
    assert (model.training, model.rnn.training) == (True, False)


class Stubborn(nn.Linear):
    def eval(self):
        raise ValueError("no")


def test_a_module_that_cannot_be_evaluated_is_as_before():
    module = nn.Sequential(Stubborn(1, 1))
    with pytest.raises(ValueError, match="no"), evaluation_mode(module[0]):
        raise AssertionError
    assert module[0].training
