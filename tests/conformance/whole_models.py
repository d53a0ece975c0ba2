"""The whole models of the conformance suite, cut small, and what some of them cannot have."""

import pytest
import torch
from torch import Tensor, nn

from tauflow.models import WHOLE_MODELS, AbstractWholeModel

B, T, D, N, IMAGE = 3, 6, 2, 4, (1, 7, 6)
_ENCODER = {"encoder_size": 5, "units": 4}
SMALL = {
    "convolutional": {"layers": ((2, 3, 2),), "features": 5},
    "transformer": {"heads": 2},
    "ip-net": {"reference_points": 5, "horizon": 4.0},
    "seft": {"latent_size": 6, "phi_size": 5, "psi_size": 5, "heads": 2, "key_size": 3},
    "mtan": {
        **{"units": 3, "embedding_size": 6, "heads": 2},
        **{"reference_points": 5, "horizon": 4.0, "g_layers": 1},
    },
    "mtan-full": {
        **{"encoder_size": 4, "decoder_size": 3, "embedding_size": 6, "heads": 2},
        **{"reference_points": 5, "horizon": 4.0},
    },
    "t-patchgnn": {"patches": 2, "horizon": 4.0, "time_size": 3, "node_size": 2},
    "grafiti": {"heads": 2, "horizon": 4.0},
    "latent-ode-rnn": {**_ENCODER, "layers": 0},
    "latent-ode-ode": {**_ENCODER, "layers": 0, "gru_units": 3, "encoder_steps": 8},
    "rnn-vae": _ENCODER,
}
VARIANTS = {
    "convolutional-ltc": ("convolutional", {"cell": "ltc", "substeps": 2}),
    "convolutional-last": ("convolutional", {"cell": "gru-ode", "return_sequences": False}),
    "transformer-last": ("transformer", {"return_sequences": False, "layers": 1}),
    "latent-ode-rnn-class": ("latent-ode-rnn", {"classes": 3}),
    "latent-ode-ode-tagger": ("latent-ode-ode", {"classes": 3, "per_step": True}),
    "mtan-full-class": ("mtan-full", {"classes": 3}),
    "mtan-full-tagger": ("mtan-full", {"classes": 3, "per_step": True}),
    "rnn-vae-class": ("rnn-vae", {"classes": 1, "linear_head": True}),
}
NAMES = [*WHOLE_MODELS, *VARIANTS]
_STATELESS = "it looks at a whole sequence at once and carries no state of fixed size"

EXCEPTIONS = {
    "carrying": {name: _STATELESS for name in NAMES if not name.startswith("convolutional")},
}
"""By property the models that cannot have it, and why; separate tests see that it is so."""


def kind(name: str) -> type[AbstractWholeModel]:
    return WHOLE_MODELS[VARIANTS.get(name, (name, {}))[0]].model


def model(name: str, seed: int = 0) -> AbstractWholeModel:
    if name.startswith("latent-ode"):
        pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")
    base, fixed = VARIANTS.get(name, (name, {}))
    torch.manual_seed(seed)
    size = IMAGE if kind(name).takes_images else D
    built = WHOLE_MODELS[base].build(size, N, **{**SMALL.get(base, {}), **fixed}).double()
    with torch.no_grad():
        for parameter in built.parameters():  # zeros, as of SeFT's queries, would hide a lot
            parameter += 0.1 * torch.randn_like(parameter)
    return built.eval()


def sequences(name: str, batch: int = B, steps: int = T) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    features = IMAGE if kind(name).takes_images else (D,)
    x = torch.randn(batch, steps, *features, generator=random, dtype=torch.float64)
    dt = torch.rand(batch, steps, generator=random, dtype=torch.float64) + 0.1
    return x, dt


def answers_once(name: str) -> bool:
    """Whether a variant gives one output per sequence."""
    options = VARIANTS.get(name, (name, {}))[1]
    head = "classes" in options and not options.get("per_step")
    return not kind(name).has_per_step_output or head or not options.get("return_sequences", True)


def steps_of(network: nn.Module) -> bool:
    """Whether it gives an output for every step."""
    return bool(getattr(network, "return_sequences", True))
