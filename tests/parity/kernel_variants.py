"""The options under which every fused kernel is tested, and calls to test it with."""

import torch

import tauflow.zoo  # noqa: F401 - whose kernels are among all
from tauflow.cells import (
    CfCCell,
    CTGRUCell,
    CTRNNCell,
    ElmanCell,
    GNODECell,
    GRUCell,
    GRUDCell,
    GRUODECell,
    LinOSSCell,
    LRCCell,
    LRUCell,
    LSTMCell,
    LTCCell,
    MixedMemoryCell,
    NeuronalLTCCell,
    ODELSTMCell,
    PhasedLSTMCell,
    S5Cell,
    UnmaskedGRUDCell,
    WiredCfCCell,
)
from tauflow.kernels import KERNELS, KernelCall, KernelSpec
from tauflow.kernels.trace.operator import run_traced
from tauflow.wirings import AbstractWiring, AutoNCP, RandomSparse

GATED = [{}, {"append_dt": True}]
VARIANTS: dict[type, list[dict[str, object]]] = {
    LSTMCell: GATED,
    GRUCell: GATED,
    ElmanCell: GATED,
    GRUDCell: [{}, {"x_mean": [0.1, -0.2, 0.3]}],
    UnmaskedGRUDCell: [{}],
    CTGRUCell: [
        {},
        {"decay": "since-previous", "scales": 3},
        {"decay": "released-ltc", "scales": 2},
    ],
    LTCCell: [
        {},
        {"sparsity": 0.8},
        {"sparsity": 0.3},
        {"constraint": "softplus-raw", "substeps": 1},
        {"constraint": "clip", "init": "cfc", "substeps": 5},
        {"init": "ltc-2021", "constraint": "clip", "time_scale": 6.0, "epsilon": 0.0},
        {"dt_offset": 0.5, "input_mapping": "none", "output_mapping": "linear"},
        {"solver": "euler", "time_scale": 0.3},
        {"solver": "heun", "substeps": 4, "sparsity": 0.8, "time_scale": 0.3},
        {"solver": "midpoint", "substeps": 3, "constraint": "clip", "time_scale": 0.3},
        {"solver": "rk4", "substeps": 2, "epsilon": 0.5, "time_scale": 0.3},
        {"solver": "exponential"},
        {"solver": "exponential", "substeps": 2, "sparsity": 0.8, "time_scale": 3.0},
        {"sparsity": 0.8, "substeps": 3, "input_mapping": "linear", "output_mapping": "none"},
    ],
    LRCCell: [
        {},
        {"elastance": "symmetric"},
        {"solver": "hybrid", "substeps": 3},
        {"elastance": "symmetric", "solver": "hybrid"},
        {"elastance": "none", "substeps": 4},
    ],
    NeuronalLTCCell: [
        {},
        {"activation": "sigmoid", "substeps": 1},
        {"activation": "relu", "substeps": 4},
        {"activation": "hardtanh", "scale": True},
    ],
    CTRNNCell: [
        {},
        {"damping": 0.0, "solver": "euler", "substeps": 4},
        {"solver": "heun", "activation": "sigmoid", "scale": False},
        {"solver": "midpoint", "activation": "relu", "substeps": 1},
        {"step_size": 0.1, "substeps": 6, "scale": False, "init": "tf1"},
        {"clip": 0.2, "damping": 0.0, "substeps": 3},
        {"clip": 0.1, "solver": "heun", "substeps": 2},
        {"train_tau": True},
    ],
    ODELSTMCell: [
        {},
        {"solver": "heun", "substeps": 2, "forget_bias": 1.0},
        {"form": "torch"},
        {"form": "torch", "solver": "euler", "substeps": 1},
    ],
    PhasedLSTMCell: [{}, {"ratio": 0.6, "leak": 0.2, "forget_bias": 0.0}],
    CfCCell: [
        {"backbone_units": 9},
        {"mode": "no_gate", "backbone_units": 4},
        {"mode": "pure", "backbone_units": 16},
        {"backbone_layers": 0},
        {"backbone_layers": 0, "mode": "pure"},
        {"backbone_layers": 2, "backbone_units": 7, "backbone_activation": "silu"},
        {"backbone_layers": 3, "backbone_units": 5, "backbone_activation": "gelu"},
        {"backbone_units": 9, "backbone_activation": "relu", "activation": "identity"},
        {"backbone_units": 9, "backbone_activation": "tanh", "activation": "lecun_tanh"},
        {"backbone_units": 9, "backbone_activation": "sigmoid", "activation": "sigmoid"},
        {"backbone_units": 9, "backbone_activation": "hardtanh", "time_sign": 1},
        {"backbone_units": 9, "backbone_activation": "identity", "time_bias": False},
        {"backbone_units": 9, "mode": "no_gate", "time_bias": False},
    ],
    MixedMemoryCell: [
        {"backbone_units": 9},
        {"backbone_units": 9, "form": "state", "forget_bias": -0.5},
        {"backbone_layers": 0, "mode": "pure"},
        {"backbone_layers": 2, "backbone_units": 6, "form": "state", "mode": "no_gate"},
        {"backbone_layers": 2, "backbone_units": 6, "backbone_activation": "silu"},
    ],
    LRUCell: [{}, {"r_min": 0.5, "r_max": 0.9}],
    S5Cell: [{}, {"step_max": 1.0}],
    LinOSSCell: [{}],
    WiredCfCCell: [{}, {"mode": "no_gate"}, {"mode": "pure"}, {"time_bias": False}],
}


def serves(spec: KernelSpec, options: dict[str, object]) -> bool:
    """Whether a kernel has an option at all."""
    return spec.backend == "numba" or "clip" not in options


ON_ANY_DEVICE = [spec for spec in KERNELS if spec.device is None]
"""The kernels that run where the tests run; those for GPUs have separate tests."""

RECORDED = [spec for spec in KERNELS if spec.function is run_traced]
"""The traced steps, one for every cell; ``test_traced_sequences.py`` is about all of them."""

_SOME = (CTRNNCell, GNODECell, GRUDCell, GRUODECell, NeuronalLTCCell, ODELSTMCell, UnmaskedGRUDCell)
ROWS = [
    (spec, options)
    for spec in (*ON_ANY_DEVICE, *(s for s in RECORDED if s.cell in _SOME))
    for options in VARIANTS.get(spec.cell, [{}])
    if serves(spec, options)
]
"""Every such kernel with each of its variants, and some traced steps."""


def name_of(row: tuple[KernelSpec, dict[str, object]]) -> str:
    """Return the test id of a kernel with options."""
    spec, options = row
    words = [f"{name}={value}" for name, value in options.items()]
    return "-".join([spec.cell.__name__, spec.backend, *words])


def takes_masks(spec: KernelSpec) -> bool:
    """Whether a kernel serves masked calls."""
    return VARIANTS.get(spec.cell) is not GATED


def takes_double(spec: KernelSpec) -> bool:
    """Whether a kernel serves float64."""
    return spec.backend == "torch"


def _wired(hidden: int, options: dict[str, object]) -> int | AbstractWiring:
    """Return the neurons, or a wiring of them if the options name its sparsity or its motors."""
    motors = options.pop("motors", None)
    if motors is not None:
        return AutoNCP(hidden, motors)
    sparsity = options.pop("sparsity", None)
    return hidden if sparsity is None or hidden == 1 else RandomSparse(hidden, sparsity=sparsity)


def example(
    spec: KernelSpec,
    batch: int,
    steps: int,
    hidden: int,
    dtype: torch.dtype = torch.float32,
    *,
    masked: bool = False,
    **options: object,
) -> KernelCall:
    """Return a call of the kernel's cell; the numbers do not depend on ``dtype``."""
    torch.manual_seed(0)
    cell = spec.cell(3, _wired(hidden, options), **options)
    with torch.no_grad():
        for parameter in cell.parameters():  # zeros and ones would hide a mistake
            parameter.add_(0.05 * torch.randn_like(parameter).abs())
    x = torch.randn(batch, steps, 3)
    h = 0.5 * torch.randn(batch, cell.state_size)
    dt = torch.rand(batch, steps, 1)
    mask = torch.rand(batch, steps) < 0.7 if masked else None
    if mask is not None:  # as the sequence modules do
        x, dt = (value.masked_fill(~mask.unsqueeze(-1), 0.0) for value in (x, dt))
    inputs = (value.to(dtype).requires_grad_() for value in (x, h, dt))
    return KernelCall(cell.to(dtype), *inputs, mask)
