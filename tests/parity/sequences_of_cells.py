"""Calls of every cell, and of some with other options, for the tests of traced steps."""

import torch

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.kernels import KernelCall

OTHERS = [
    ("gnode", {"substeps": 3, "solver": "rk4", "gate_layers": 2}),
    ("gru-ode", {"form": "minimal"}),
    ("ct-gru", {"decay": "since-previous"}),
    ("lem", {"substeps": 2}),
    ("lrc", {"elastance": "symmetric", "solver": "hybrid", "substeps": 2}),
    ("lmu", {"memory_to_memory": False}),
    ("cornn", {"implicit_damping": True}),
    ("lipschitz-rnn", {"solver": "midpoint", "append_dt": True}),
    ("ode-rnn-rubanova", {"ode_layers": 2, "solver": "heun", "substeps": 2}),
    ("cfc", {"backbone_layers": 2, "backbone_activation": "silu"}),
    ("cfc", {"mode": "pure", "backbone_activation": "relu"}),
    ("cfc-mmrnn", {"form": "state"}),
    ("lstm", {"append_dt": True}),
    ("ct-rnn", {"solver": "euler", "clip": 0.3}),
]
EVERY = [*((name, {}) for name in MODELS), *OTHERS]
"""Names with options: every cell as it is, and some otherwise."""


def call_of(name, rows, steps, options=None, *, masked=False, sizes=(5, 6)):
    torch.manual_seed(3)
    cell = tauflow.build(name, *sizes, **(options or {})).cell
    x = torch.randn(rows, steps, sizes[0]).requires_grad_()
    h = (0.3 * torch.randn(rows, cell.state_size)).requires_grad_()
    dt = (torch.rand(rows, steps, 1) + 0.1).requires_grad_()
    mask = torch.rand(rows, steps) < 0.7 if masked else None
    seen = torch.rand(x.shape) < 0.6 if masked and cell.uses_observed else None
    return KernelCall(cell, x, h, dt, mask, seen)


def leaves(call):
    return [call.x, call.h, call.dt, *call.cell.parameters()]


def values_and_gradients(run, call):
    results = run(call)
    pulls = [torch.linspace(-1, 1, out.numel()).to(out).view_as(out) for out in results]
    gradients = torch.autograd.grad(results, leaves(call), pulls, allow_unused=True)
    none = [torch.zeros_like(leaf) for leaf in leaves(call)]
    return [*results, *(z if g is None else g for g, z in zip(gradients, none, strict=True))]


def assert_close(actual, expected, tolerance=1e-5):
    for value, other in zip(actual, expected, strict=True):
        unit = max([1.0, *other.detach().abs().flatten().tolist()])
        torch.testing.assert_close(value, other, rtol=tolerance, atol=tolerance * unit)


class Spike(torch.autograd.Function):
    """A step whose gradient is that of something smooth."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return (z > 0).to(z.dtype)

    @staticmethod
    def backward(ctx, pull):
        (z,) = ctx.saved_tensors
        return pull / (1 + z.abs()) ** 2
