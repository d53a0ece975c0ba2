"""Files of predictors whose bytes were damaged are refused."""

import random

import pytest
import torch
from mutate import mutate_bytes
from survive import seeds, survives

import tauflow
from tauflow._internal.tensor_file import encode_tensor_file, read_tensor_file
from tauflow.data import from_table
from tauflow.errors import ModelFileError, TauflowError
from tauflow.predict.files import KIND

PARTS = range(2)
TABLE = {
    "id": [f"p{row // 4}" for row in range(48)],
    "time": [0.0, 1.0, 2.5, 4.0] * 12,
    "a": [0.1 * (row % 7) for row in range(48)],
    "ward": ["north", "south", None] * 16,
    "y": ["yes" if row // 4 % 2 else "no" for row in range(48)],
}
SAID = {
    "classes": {"target": "y"},
    "values": {"target": "a", "features": ["ward"], "per_step": True},
    "next": {"features": ["a", "ward"]},
    "horizon": {"features": ["a"], "window": 2, "horizon": 1},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return name, tensors and facts of a predictor of every task."""
    folder, contents = tmp_path_factory.mktemp("files"), []
    for name, options in SAID.items():
        data = from_table(TABLE, id="id", time="time", missing="inputs", **options)
        torch.manual_seed(0)
        card = data.card
        body = tauflow.Elman(card.input_size, 3, return_sequences=card.per_step)
        model = tauflow.SequenceModel(body, card.target_size)
        tauflow.Predictor.from_data(model, data).save(folder / name)
        read = read_tensor_file(folder / name, KIND, error=ModelFileError, advice="")
        contents.append((name, *read))
    return contents


@pytest.mark.parametrize("name", SAID)
def test_a_model_that_does_not_fit_its_data_is_refused_when_it_predicts(name, files, tmp_path):
    tensors, metadata = next((t, f) for n, t, f in files if n == name)
    path = tmp_path / "p.safetensors"
    card = {**metadata["card"], "per_step": not metadata["card"]["per_step"], "horizon": 0}
    path.write_bytes(encode_tensor_file(KIND, tensors, {**metadata, "card": card}))
    with pytest.raises(TauflowError, match=r"gives predictions of shape|several rows|a target at"):
        tauflow.load_predictor(path).predict(TABLE, lead_time=1.0 if name == "next" else None)


@pytest.mark.parametrize("part", PARTS)
def test_damaged_bytes(part, files, tries, tmp_path):
    path = tmp_path / "damaged.safetensors"
    for seed in seeds(part, tries("files of predictors", few=60, full=4000)):
        rng = random.Random(seed)
        name, tensors, metadata = rng.choice(files)
        intact = encode_tensor_file(KIND, tensors, metadata)
        path.write_bytes(mutate_bytes(intact, rng))
        what = f"predictor of {name}, seed {seed}"
        result = survives(lambda: tauflow.load_predictor(path), what, seconds=5)
        if path.read_bytes() != intact:
            assert isinstance(result, ModelFileError), what
            assert path.name in str(result), what
