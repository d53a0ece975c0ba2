"""The models of the conformance suite: every catalogued one, and variants with other options."""

import torch

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.sequence import SequenceModule

B, T, D = 3, 6, 2
VARIANTS = {
    "ltc-rk4": ("ltc", {"solver": "rk4"}),
    "ltc-clip": ("ltc", {"constraint": "clip", "init": "cfc", "output_mapping": "none"}),
    "ltc-ncp": ("ltc", {"wiring": lambda n: tauflow.AutoNCP(n + 4, 2)}),
    "lrc-symmetric-hybrid": (
        "lrc",
        {"elastance": "symmetric", "solver": "hybrid", "substeps": 2},
    ),
    "ltc-neuronal-sigmoid": (
        "ltc-neuronal",
        {"activation": "sigmoid", "solver": "heun", "scale": True},
    ),
    "cfc-deep": ("cfc", {"backbone_layers": 2, "backbone_units": 6}),
    "cfc-bare": ("cfc", {"backbone_layers": 0, "time_bias": False, "time_sign": 1}),
    "wired-cfc-ncp": ("wired-cfc", {"wiring": lambda n: tauflow.AutoNCP(n + 4, 2)}),
    "wired-cfc-sparse": ("wired-cfc", {"wiring": lambda n: tauflow.RandomSparse(n, 2)}),
    "mmrnn-state": ("cfc-mmrnn", {"form": "state"}),
    "mmrnn-ltc": ("cfc-mmrnn", {"core": "ltc"}),
    "mmrnn-ncp": (
        "cfc-mmrnn",
        {"core": "wired-cfc", "wiring": lambda n: tauflow.AutoNCP(n + 4, 2)},
    ),
    "augmented-gru": ("gru", {"append_dt": True}),
    "gnode-deep": (
        "gnode",
        {"layers": 3, "gate_layers": 2, "units": 6, "gate_units": 5, "solver": "heun"},
    ),
    "gnode-affine": ("gnode", {"initial_state": "affine", "tau": 0.5, "train_tau": True}),
    "gru-euler-learned": ("gru-euler", {"initial_state": "learned", "solver": "rk4"}),
    "lem-affine": ("lem", {"initial_state": "affine", "substeps": 2}),
    "ct-rnn-heun-sigmoid": (
        "ct-rnn",
        {"solver": "heun", "activation": "sigmoid", "train_tau": True},
    ),
    "ode-lstm-rk4": ("ode-lstm", {"solver": "rk4", "forget_bias": 1.0}),
    "gru-ode-minimal": ("gru-ode", {"form": "minimal", "solver": "midpoint"}),
    "ct-gru-since-previous": ("ct-gru", {"decay": "since-previous", "scales": 3}),
    "neural-ode-clip": ("neural-ode", {"clip": 0.3}),
    "gru-d-means": ("gru-d", {"x_mean": [0.3, -1.2]}),
    "gru-d-rubanova-means": ("gru-d-rubanova", {"x_mean": [0.3, -1.2]}),
    "ode-rnn-rubanova-rk4": ("ode-rnn-rubanova", {"solver": "rk4", "ode_layers": 0}),
    "lipschitz-midpoint": ("lipschitz-rnn", {"solver": "midpoint", "append_dt": True}),
    "lmu-plain": (
        "lmu",
        {
            "order": 6,
            "theta": 30.0,
            "discretisation": "euler",
            "hidden_to_memory": False,
            "memory_to_memory": False,
            "input_to_hidden": False,
            "append_dt": True,
        },
    ),
    "lmu-hippo": ("lmu", {"order": 3, "init": "hippo", "theta": 5.0}),
    "hippo-legs-wide": ("hippo-legs", {"order": 7, "append_dt": True}),
    "hippo-legs-timestamped": ("hippo-legs", {"timestamped": True}),
    "hippo-lagt-coarse": ("hippo-lagt", {"order": 3, "step_size": 0.7}),
    "exprnn-henaff": ("exprnn", {"init": "henaff", "append_dt": True}),
    "neural-cde-rk4": ("neural-cde", {"solver": "rk4", "layers": 2, "units": 5}),
    "gru-ode-bayes-heun": ("gru-ode-bayes", {"solver": "heun", "read_units": 3}),
    "cru-small": ("cru", {"bases": 2, "units": 6}),
    "lru-plain": ("lru", {"glu": False, "r_min": 0.5}),
    "cornn-told-the-gap": ("cornn", {"append_dt": True, "implicit_damping": True}),
}
NAMES = [*MODELS, *VARIANTS]


def model(name: str, hidden_size: int = 4, seed: int = 0, **options: object) -> SequenceModule:
    catalog_name, fixed = VARIANTS.get(name, (name, {}))
    merged = {**fixed, **options}
    size = merged.pop("wiring")(hidden_size) if "wiring" in merged else hidden_size
    torch.manual_seed(seed)
    return tauflow.build(catalog_name, D, size, **merged).double()
