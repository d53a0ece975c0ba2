"""Model files of the models that are more than a cell."""

import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError
from tauflow.models import WHOLE_MODELS

IMAGE = (1, 9, 8)
SMALL = {
    "convolutional": {"layers": ((2, 3, 2),), "features": 5, "cell": "ltc"},
    "transformer": {"layers": 1, "heads": 2},
    "ip-net": {"reference_points": 5, "horizon": 2.0, "channel_deviations": [1.0, 2.0, 0.5]},
    "seft": {"latent_size": 6, "psi_size": 5, "heads": 2},
    "mtan": {"reference_points": 5, "embedding_size": 4, "heads": 2, "units": 3},
    "mtan-full": {
        **{"encoder_size": 4, "decoder_size": 3, "embedding_size": 6, "heads": 2},
        **{"reference_points": 5, "horizon": 4.0, "classes": 2},
    },
    "t-patchgnn": {"patches": 2, "horizon": 4.0, "time_size": 3, "node_size": 2},
    "brits": {},
    "grafiti": {"heads": 2, "horizon": 4.0},
    "latent-ode-rnn": {"encoder_size": 5, "units": 4, "classes": 2, "rtol": 1e-2},
    "latent-ode-ode": {"encoder_size": 5, "units": 4, "gru_units": 3, "kl_wait": 0},
    "rnn-vae": {"encoder_size": 5, "units": 4, "classes": 2, "per_step": True, "samples": 2},
}


def built(name, seed=0):
    if name.startswith("latent-ode"):
        pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")
    torch.manual_seed(seed)
    entry = WHOLE_MODELS[name]
    size = IMAGE if entry.model.takes_images else 3
    return entry.build(size, 4, **SMALL[name])


def inputs(model):
    features = IMAGE if model.takes_images else (3,)
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, *features, generator=random)
    call = {"dt": torch.rand(2, 4, generator=random) + 0.1, "lengths": [4, 2]}
    if model.uses_observed:
        call["observed"] = torch.rand(x.shape, generator=random) > 0.3
    return x, call


def test_every_whole_model_is_tried():
    assert set(SMALL) == set(WHOLE_MODELS)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WHOLE_MODELS)
def test_round_trip_is_exact(name, dtype, tmp_path):
    original = built(name).to(dtype).eval()
    tauflow.save(original, tmp_path / "model.safetensors")
    loaded = tauflow.load(tmp_path / "model.safetensors").eval()
    assert type(loaded) is type(original)
    assert loaded.options.keys() == original.options.keys()
    before, after = original.state_dict(), loaded.state_dict()
    assert list(before) == list(after)
    for key, value in before.items():
        assert value.dtype == after[key].dtype
        assert torch.equal(value, after[key])
    if dtype is torch.float32:
        x, call = inputs(original)
        assert torch.equal(loaded(x, **call)[0], original(x, **call)[0])


@pytest.mark.parametrize("name", ["latent-ode-rnn", "latent-ode-ode", "rnn-vae"])
def test_a_loaded_latent_model_has_the_same_loss_and_goes_on_learning(name, tmp_path):
    original = built(name)
    tauflow.save(original, tmp_path / "model.safetensors")
    loaded = tauflow.load(tmp_path / "model.safetensors")
    assert loaded.training
    x, call = inputs(original)
    y = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0]])
    mask = torch.arange(4) < torch.tensor([[4], [2]])
    batch = tauflow.SequenceBatch(
        x, y if original.per_step else y[:, 0], call["dt"], mask, call["observed"]
    )
    losses = [m.loss(batch, generator=torch.Generator().manual_seed(1)) for m in (original, loaded)]
    assert losses[0].loss == losses[1].loss
    losses[1].loss.backward()
    assert all(parameter.grad is not None for parameter in loaded.parameters())


def test_a_part_changed_after_building_is_refused(tmp_path):
    changed = built("rnn-vae")
    changed.observation_std = 0.5
    with pytest.raises(ArgumentError, match=r"observation_std is 0\.5, was 0\.01"):
        tauflow.save(changed, tmp_path / "model.safetensors")
    changed = built("latent-ode-rnn")
    changed.method = "bosh3"
    with pytest.raises(ArgumentError, match="method is 'bosh3', was 'dopri5'"):
        tauflow.save(changed, tmp_path / "model.safetensors")


def test_the_hub_stores_a_model_with_its_own_mixin(tmp_path):
    """As docs/deploying.md shows."""
    hub = pytest.importorskip("huggingface_hub")

    class Network(torch.nn.Module, hub.PyTorchModelHubMixin, library_name="tauflow"):
        def __init__(self, input_size: int, hidden_size: int = 32) -> None:
            super().__init__()
            self.model = tauflow.SequenceModel(tauflow.CfC(input_size, hidden_size), 1)

        def forward(self, x, **time):
            return self.model(x, **time)

    network = Network(3, hidden_size=4).eval()
    network.save_pretrained(tmp_path)
    loaded = Network.from_pretrained(tmp_path).eval()
    x, dt = torch.randn(2, 5, 3), torch.rand(2, 5)
    assert torch.equal(loaded(x, dt=dt)[0], network(x, dt=dt)[0])
