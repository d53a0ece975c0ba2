"""Files of estimators whose facts or bytes were damaged: refused, or an estimator."""

import random

import numpy as np
import pytest
from mutate import mutate_bytes, mutate_tree
from survive import seeds, survives

from tauflow._internal.tensor_file import encode_tensor_file, read_tensor_file
from tauflow.errors import ModelFileError, TauflowError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor
from tauflow.estimators.files import KIND

KINDS = (SequenceClassifier, SequenceRegressor, SequenceForecaster)
PARTS = range(2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return class, tensors and facts of an estimator of every kind."""
    folder, found = tmp_path_factory.mktemp("files"), []
    X = np.random.default_rng(0).normal(size=(6, 4, 2))
    X[0, 0, 0] = np.nan
    for kind in KINDS:
        path = folder / kind.__name__
        estimator = kind(hidden_size=3, epochs=1, options={"backbone_units": 3}, random_state=0)
        estimator.fit(X, np.arange(6) % 2, t=np.abs(X[..., 1]).cumsum(1)).save(path)
        found.append((kind, *read_tensor_file(path, KIND, error=ModelFileError, advice="")))
    return found


@pytest.mark.parametrize("part", PARTS)
def test_absurd_facts_and_bytes(part, files, tries, tmp_path):
    refused = 0
    path = tmp_path / "damaged.safetensors"
    for seed in seeds(part, tries("files of estimators", few=60, full=4000)):
        rng = random.Random(seed)
        kind, tensors, facts = rng.choice(files)
        if rng.random() < 0.7:
            data = encode_tensor_file(KIND, tensors, mutate_tree(facts, rng))
        else:
            data = mutate_bytes(encode_tensor_file(KIND, tensors, facts), rng)
        path.write_bytes(data)
        what = f"{kind.__name__}, seed {seed}"
        result = survives(lambda kind=kind: kind.load(path), what, seconds=5)
        if isinstance(result, TauflowError):
            assert isinstance(result, ModelFileError), what
            assert path.name in str(result), what
            refused += 1
        else:
            assert isinstance(result, kind), what
    assert refused > 10
