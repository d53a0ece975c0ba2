"""Model files whose description, tensors or bytes were damaged: refused, or read in little room."""

import random
from functools import cache
from itertools import chain

import pytest
import torch
from mutate import mutate_bytes, mutate_tree
from survive import seeds, survives

import tauflow
from tauflow._internal.tensor_file import encode_tensor_file
from tauflow.errors import ModelFileError, TauflowError
from tauflow.export import get_config
from tauflow.export.files import KIND, collect_tensors
from tauflow.models import WHOLE_MODELS

PARTS = range(4)
IMAGE = (1, 9, 8)
_WIRED = ("ltc", "wired-cfc")
_WIRINGS = (
    tauflow.AutoNCP(7, 2),
    tauflow.FullyConnected(4, 2),
    tauflow.RandomSparse(4, 2, sparsity=0.5),
    tauflow.ExplicitWiring([[1, 0], [-1, 1]], [[1, 1], [0, 1], [1, -1]]),
)
_SMALL = {
    "convolutional": {"layers": ((2, 3, 2),), "features": 5, "cell": "ltc"},
    "transformer": {"layers": 1, "heads": 2},
    "ip-net": {"reference_points": 5},
    "seft": {"latent_size": 6, "psi_size": 5, "phi_size": 4, "heads": 2, "key_size": 3},
    "mtan": {"reference_points": 5, "embedding_size": 4, "heads": 2, "units": 3},
    "mtan-full": {
        **{"encoder_size": 4, "decoder_size": 3, "embedding_size": 6, "heads": 2},
        **{"reference_points": 5, "horizon": 4.0, "classes": 2},
    },
    "t-patchgnn": {"patches": 2, "horizon": 4.0, "time_size": 3, "node_size": 2},
    "brits": {},
    "grafiti": {"heads": 2, "horizon": 4.0},
    "latent-ode-rnn": {"encoder_size": 5, "units": 4, "classes": 2},
    "latent-ode-ode": {"encoder_size": 5, "units": 4, "gru_units": 3},
    "rnn-vae": {"encoder_size": 5, "units": 4, "classes": 2},
}


@cache
def models():
    """Return (name, tensors, description) of a small model of every kind."""
    torch.manual_seed(0)
    built = []
    for name in tauflow.cells.MODELS:
        for size in _WIRINGS if name in _WIRED else (4,):
            layers = 1 if name in _WIRED else 1 + len(built) % 2
            rnn = tauflow.build(name, 3, size, num_layers=layers)
            built.append((name, tauflow.SequenceModel(rnn, 2)))
    for name, entry in WHOLE_MODELS.items():
        size = IMAGE if entry.model.takes_images else 3
        built.append((name, entry.build(size, 4, **_SMALL[name])))
    return [(name, collect_tensors(model), get_config(model)) for name, model in built]


def survives_loading(data, folder, what):
    """Return the model or the error of loading a file with some bytes."""
    path = folder / "damaged.safetensors"
    path.write_bytes(data)
    result = survives(lambda: tauflow.load(path), what, seconds=5)
    if isinstance(result, TauflowError):
        assert isinstance(result, ModelFileError), what
        assert path.name in str(result), what
        return result
    held = sum(t.nbytes for t in chain(result.parameters(), result.buffers()))
    assert held <= 8 * len(data), what
    return result


@pytest.mark.parametrize("part", PARTS)
def test_absurd_descriptions(part, tries, tmp_path):
    refused = 0
    for seed in seeds(part, tries("model files, descriptions", few=60, full=6000)):
        rng = random.Random(seed)
        name, tensors, description = rng.choice(models())
        data = encode_tensor_file(KIND, tensors, mutate_tree(description, rng))
        result = survives_loading(data, tmp_path, f"model {name}, description, seed {seed}")
        refused += isinstance(result, TauflowError)
    assert refused > 10


@pytest.mark.parametrize("part", PARTS)
def test_absurd_tensors(part, tries, tmp_path):
    for seed in seeds(part, tries("model files, tensors", few=20, full=1500)):
        rng = random.Random(seed)
        name, tensors, description = rng.choice(models())
        changed = dict(tensors)
        for key in rng.sample(sorted(changed), min(len(changed), rng.randint(1, 2))):
            changed |= {rng.choice((key, key + ".x", "x")): _changed(changed.pop(key), rng)}
        data = encode_tensor_file(KIND, changed, description)
        survives_loading(data, tmp_path, f"model {name}, tensors, seed {seed}")


def _changed(tensor, rng):
    match rng.randrange(6):
        case 0:
            return tensor.to(rng.choice((torch.int8, torch.bool, torch.complex64, torch.half)))
        case 1:
            return tensor.reshape(-1)[: rng.randrange(3)]
        case 2:
            return tensor.unsqueeze(0)
        case 3:
            return torch.full_like(tensor, rng.choice((float("nan"), float("inf"), 1e30)))
        case 4:
            return tensor.mT if tensor.ndim > 1 else tensor.repeat(2)
        case _:
            return tensor


@pytest.mark.parametrize("part", PARTS)
def test_damaged_bytes(part, tries, tmp_path):
    contents = [
        encode_tensor_file(KIND, tensors, description) for _, tensors, description in models()
    ]
    for seed in seeds(part, tries("model files, bytes", few=40, full=4000)):
        rng = random.Random(seed)
        place = rng.randrange(len(contents))
        data = mutate_bytes(contents[place], rng)
        result = survives_loading(data, tmp_path, f"model {models()[place][0]}, bytes, seed {seed}")
        if isinstance(result, torch.nn.Module):  # of bytes that mean nothing, as spaces
            _, tensors, description = models()[place]
            assert get_config(result) == description, f"seed {seed}"
            assert all(torch.equal(tensors[k], v) for k, v in collect_tensors(result).items())
