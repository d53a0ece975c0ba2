"""Files of estimators whose bytes were damaged: refused, within the memory of their size."""

import random
import warnings

import numpy as np
import pandas as pd
import pytest
from guard import MIB
from mutate import mutate_bytes
from survive import seeds, survives

from tauflow._internal.tensor_file import encode_tensor_file, read_tensor_file
from tauflow.errors import ModelFileError
from tauflow.estimators import (
    SequenceClassifier,
    SequenceForecaster,
    SequenceHawkes,
    SequenceImputer,
    SequenceRegressor,
    SequenceSurvival,
)
from tauflow.estimators.files import KIND

PARTS = range(2)
SMALL = {"hidden_size": 3, "epochs": 1, "random_state": 0}
SMALL |= {"model": "cfc", "options": {"backbone_units": 3}}
N, T = 24, 4
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N, T, 2))
X[0, 0, 0] = np.nan
TIMES = np.abs(_RNG.normal(size=(N, T))).cumsum(1)
Y = _RNG.normal(size=(N, 2))
EVENTS = (np.abs(Y[:, 0]) * 10 + 1, _RNG.integers(0, 2, N))
TABLE = pd.DataFrame(
    {
        "id": np.repeat([f"p{number}" for number in range(N)], T),
        "time": pd.Timestamp("2024-01-01") + pd.to_timedelta(TIMES.ravel(), "h"),
        "a": X[..., 0].ravel(),
        "b": X[..., 1].ravel(),
        "ward": _RNG.choice(["north", "south"], N * T),
    }
)
SAID = {"id": "id", "time": "time"}
LABELS = np.repeat(_RNG.choice(["no", "yes"], N), T)
FITS = {
    "classes": lambda: SequenceClassifier(**SMALL, calibrate="temperature", threshold="f1").fit(
        TABLE, LABELS, **SAID
    ),
    "numbers": lambda: SequenceRegressor(**SMALL, intervals="quantile", ensemble=2).fit(
        X, Y, t=TIMES
    ),
    "steps": lambda: SequenceForecaster(**SMALL, horizon=2, intervals="conformal").fit(X, t=TIMES),
    "times": lambda: SequenceForecaster(
        **SMALL, max_lead_time="2h", intervals="conformal", known=["b"]
    ).fit(TABLE, **SAID),
    "hazard": lambda: SequenceSurvival(**SMALL, intervals=3).fit(X, *EVENTS, t=TIMES),
    "weibull": lambda: SequenceSurvival(**SMALL, head="weibull").fit(X, *EVENTS, t=TIMES),
    "gaps": lambda: SequenceImputer(**SMALL).fit(TABLE, **SAID),
    "events": lambda: SequenceHawkes(hidden_size=3, epochs=1, random_state=0).fit(
        TABLE, **SAID, type="ward"
    ),
}


def use(name, estimator):
    """Ask an estimator all that it answers; return the numbers."""
    match name:
        case "classes":
            return estimator.predict_proba(TABLE), estimator.predict(TABLE, **SAID)
        case "numbers":
            return estimator.predict(X, t=TIMES, interval=0.5, return_std=True)
        case "steps":
            return estimator.predict(X, t=TIMES, interval=0.5)
        case "times":
            return estimator.predict(TABLE, at=["1min", "1h"], interval=0.5)
        case "hazard" | "weibull":
            answers = estimator.predict_survival(X, [1.0, 5.0], t=TIMES)
            return estimator.predict(X, t=TIMES, at=5.0), answers
        case "gaps":
            return (estimator.transform(TABLE[["id", "time", "a", "b", "ward"]])["a"],)
        case "events":
            now = TABLE["time"].max()
            events = estimator.predict_next(TABLE, now=now)
            estimator.score(TABLE, end=now)
            return (estimator.predict_proba(TABLE), events["in"])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return name, class, tensors and facts of an estimator of every kind."""
    folder, contents = tmp_path_factory.mktemp("files"), []
    for name, fit in FITS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator = fit()
        estimator.save(folder / name)
        use(name, type(estimator).load(folder / name))
        read = read_tensor_file(folder / name, KIND, error=ModelFileError, advice="")
        contents.append((name, type(estimator), *read))
    return contents


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("part", PARTS)
def test_damaged_bytes(part, files, tries, tmp_path):
    path = tmp_path / "damaged.safetensors"
    for seed in seeds(part, tries("files of estimators", few=60, full=8000)):
        rng = random.Random(seed)
        name, kind, tensors, metadata = rng.choice(files)
        intact = encode_tensor_file(KIND, tensors, metadata)
        path.write_bytes(mutate_bytes(intact, rng))
        what = f"{name}, seed {seed}"
        load = lambda kind=kind: kind.load(path)  # noqa: E731
        result = survives(load, what, seconds=5, memory=64 * MIB)
        if path.read_bytes() != intact:
            assert isinstance(result, ModelFileError), what
            assert path.name in str(result), what


@pytest.mark.parametrize(
    "array",
    [
        ["|S1500000000", ["no", "yes"]],
        ["|O", [["no"], {"a": 1}]],
        ["f8,f8", [1.0, 2.0]],
        ["(200000000,)f8", [1.0, 2.0]],
        ["V1000000000", [1, 2]],
        ["b1", ["no", "yes"]],
        ["<i8", [1.0, float("inf")]],
        ["<f8", "ab"],
    ],
)
def test_arrays_of_other_dtypes_are_refused(array, files, tmp_path):
    _, kind, tensors, metadata = files[0]
    metadata = {**metadata, "learned": {**metadata["learned"], "classes_": {"array": array}}}
    path = tmp_path / "it.safetensors"
    path.write_bytes(encode_tensor_file(KIND, tensors, metadata))
    result = survives(lambda: kind.load(path), array[0], seconds=2, memory=32 * MIB)
    assert isinstance(result, ModelFileError), array


@pytest.mark.parametrize("array", [["<U400000000", ["no", "yes"]], ["<U3", ["a", "b" * 10**6] * 1]])
def test_an_array_of_texts_is_as_large_as_its_texts(array, files, tmp_path):
    _, kind, tensors, metadata = files[0]
    classes = {"array": array}
    if len(array[1][1]) > 3:  # many short ones beside the long one
        classes = {"array": [array[0], [*map(str, range(1000)), array[1][1]]]}
        metadata = {
            **metadata,
            "parameters": {**metadata["parameters"], "options": {"mapping": [["a", classes]]}},
        }
    else:
        metadata = {**metadata, "learned": {**metadata["learned"], "classes_": classes}}
    path = tmp_path / "it.safetensors"
    path.write_bytes(encode_tensor_file(KIND, tensors, metadata))
    loaded = survives(lambda: kind.load(path), array[0], seconds=5, memory=64 * MIB)
    held = loaded.options["a"] if len(array[1][1]) > 3 else loaded.classes_
    assert held.tolist() == classes["array"][1]
