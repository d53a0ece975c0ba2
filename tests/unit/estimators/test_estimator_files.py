"""A fitted estimator is a file that holds no code."""

import json

import numpy as np
import pytest
from irregular_samples import SMALL, sequences
from sklearn.exceptions import NotFittedError

import tauflow
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.errors import ArgumentError, DataNotFoundError, ModelFileError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor

KINDS = {
    SequenceClassifier: {
        "class_weight": {"up": 2.0, "down": 1.0},
        "model": "cfc",
        "options": {"backbone_units": 4},
    },
    SequenceRegressor: {"model": "gru-d", "dtype": "float64", "recipe": {"betas": (0.8, 0.9)}},
    SequenceForecaster: {
        "horizon": 2,
        "targets": [1],
        "recipe": tauflow.Recipe(epochs=2, select="last"),
        "callbacks": [print],
        "random_state": np.random.RandomState(0),
    },
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_as_before(kind, tmp_path, capsys):
    X, t, y, number = sequences(missing=0.2)
    estimator = kind(**{**SMALL, **KINDS[kind]})
    estimator.fit(X, number if kind is SequenceRegressor else y, t=t)
    estimator.save(tmp_path / "it.safetensors")
    loaded = kind.load(str(tmp_path / "it.safetensors"))
    np.testing.assert_array_equal(loaded.predict(X, t=t), estimator.predict(X, t=t))
    expected = {k: v for k, v in estimator.get_params().items() if k not in ("callbacks", "recipe")}
    parameters = loaded.get_params()
    if kind is SequenceForecaster:
        assert parameters.pop("random_state") is None
        del expected["random_state"]
    assert {k: parameters[k] for k in expected} == expected
    assert loaded.recipe == estimator.recipe
    assert not hasattr(loaded, "result_")
    if kind is SequenceClassifier:
        assert loaded.classes_.tolist() == ["down", "up"]


def saved(tmp_path, **changes):
    X, _, y, _ = sequences(6)
    path = tmp_path / "it.safetensors"
    SequenceClassifier(**{**SMALL, "epochs": 1}).fit(X, y).save(path)
    tensors, metadata = read_tensor_file(path, "estimator", error=ModelFileError, advice="")
    write_tensor_file(path, "estimator", tensors, {**metadata, **changes})
    return path


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"class": "SequenceRegressor"}, "is a SequenceRegressor, expected a SequenceClassifier"),
        ({"version": 2}, "of version 2, and this tauflow reads up to 1"),
        ({"parameters": {"hidden": 3}}, "is damaged"),
        ({"learned": {"predict": 3}}, "is damaged.*predict is not learned"),
        ({"learned": {"classes_": {"array": ["<Q9", [1]]}}}, "is damaged"),
        ({"learned": {"classes_": {"code": "x"}}}, "is damaged"),
        ({"model": {"class": "os.system"}}, "cannot be built"),
        (json.loads('{"learned": {"preparation_": {"Preparation": {"mapping": []}}}}'), "damaged"),
    ],
)
def test_files_of_something_else_are_refused(changes, match, tmp_path):
    with pytest.raises(ModelFileError, match=match):
        SequenceClassifier.load(saved(tmp_path, **changes))


def test_what_no_file_can_hold_is_refused(tmp_path):
    X, _, y, _ = sequences(6)
    with pytest.raises(NotFittedError):
        SequenceClassifier().save(tmp_path / "it")
    with pytest.raises(DataNotFoundError, match="does not exist"):
        SequenceClassifier.load(tmp_path / "nothing")
    odd = SequenceClassifier(**{**SMALL, "epochs": 1}, class_weight=None).fit(X, y)
    odd.set_params(options={"wiring": print})
    with pytest.raises(ArgumentError, match=r"options holds .*print.*no file of an estimator can"):
        odd.save(tmp_path / "it")
