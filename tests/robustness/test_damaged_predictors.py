"""Files of predictors whose facts or bytes were damaged: refused, or answers, or a refusal."""

import random

import pytest
import torch
from mutate import mutate_bytes, mutate_tree
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


def disagreeing(tensors, metadata, rng):
    """Return tensors of several dtypes, or facts of the data that the model was not made for."""
    if rng.random() < 0.5:
        name = rng.choice(sorted(tensors))
        return {
            **tensors,
            name: tensors[name].to(rng.choice((torch.float64, torch.half))),
        }, metadata
    changes = {"per_step": rng.random() < 0.5, "horizon": rng.randrange(4)}
    changes |= rng.choice(
        ({}, {"target_size": rng.randrange(1, 5)}, {"input_size": rng.randrange(9)})
    )
    return tensors, {**metadata, "card": {**metadata["card"], **changes}}


@pytest.mark.parametrize("name", SAID)
def test_a_model_of_several_dtypes_is_refused_when_loaded(name, files, tmp_path):
    tensors, metadata = next((t, f) for n, t, f in files if n == name)
    path = tmp_path / "p.safetensors"
    tensors = {**tensors, "head.weight": tensors["head.weight"].double()}
    path.write_bytes(encode_tensor_file(KIND, tensors, metadata))
    with pytest.raises(ModelFileError, match=r"is damaged.*of torch.float32 and torch.float64"):
        tauflow.load_predictor(path)


@pytest.mark.parametrize("name", SAID)
def test_a_model_that_does_not_fit_its_data_is_refused_when_it_predicts(name, files, tmp_path):
    tensors, metadata = next((t, f) for n, t, f in files if n == name)
    path = tmp_path / "p.safetensors"
    card = {**metadata["card"], "per_step": not metadata["card"]["per_step"], "horizon": 0}
    path.write_bytes(encode_tensor_file(KIND, tensors, {**metadata, "card": card}))
    with pytest.raises(TauflowError, match=r"gives predictions of shape|several rows|a target at"):
        tauflow.load_predictor(path).predict(TABLE, lead_time=1.0 if name == "next" else None)


@pytest.mark.filterwarnings("ignore:other values of inputs that were constant:UserWarning")
@pytest.mark.parametrize("part", PARTS)
def test_absurd_metadata_and_bytes(part, files, tries, tmp_path):
    refused = 0
    path = tmp_path / "damaged.safetensors"
    for seed in seeds(part, tries("files of predictors", few=60, full=4000)):
        rng = random.Random(seed)
        name, tensors, metadata = rng.choice(files)
        if rng.random() < 0.2:
            data = encode_tensor_file(KIND, *disagreeing(tensors, metadata, rng))
        elif rng.random() < 0.8:
            data = encode_tensor_file(KIND, tensors, mutate_tree(metadata, rng))
        else:
            data = mutate_bytes(encode_tensor_file(KIND, tensors, metadata), rng)
        path.write_bytes(data)
        what = f"predictor of {name}, seed {seed}"
        result = survives(lambda: tauflow.load_predictor(path), what, seconds=5)
        if isinstance(result, TauflowError):
            assert isinstance(result, ModelFileError), what
            assert path.name in str(result), what
            refused += 1
            continue
        ahead = 1.0 if name == "next" else None
        survives(lambda p=result, ahead=ahead: p.predict(TABLE, lead_time=ahead), what, seconds=5)
    assert refused > 10
