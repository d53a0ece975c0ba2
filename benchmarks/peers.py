"""Time tauflow beside JAX, ncps, nn.LSTM, nn.GRU and torch.compile.

All run in turns, on the same inputs. JAX runs the same model, with the same parameters and checked
to give the same outputs, as ``jax.jit`` of ``lax.scan``. It is no dependency: without it, its
columns are left out, and a line says so (``pip install jax``).
"""

import argparse
import json
import os
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow.runs.results import describe_machine, get_versions

from .cpu import SUBSTEPS, Size, others, ours
from .timing import Job, forward, interleaved, training_step

SIZES = {
    "CfC": ((16, 32, 17, 32), (128, 64, 18, 64), (128, 64, 18, 128), (256, 84, 18, 256)),
    "LTC": ((16, 32, 17, 32), (128, 64, 18, 64)),
}
KINDS = {"forward": forward, "training step": training_step}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rows", type=int, default=4, help="sizes of each model, smallest first")
    parser.add_argument("--compile", action="store_true", help="torch.compile, which takes minutes")
    parser.add_argument("--results", type=Path, help="folder for a JSON file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep the numbers if there is a folder for them."""
    torch.set_num_threads(arguments.threads)
    with_jax = find_spec("jax") is not None
    if not with_jax:
        print("jax is not installed: its columns are left out; pip install jax\n")
    found = []
    for model in arguments.models:
        for size in SIZES[model][: arguments.rows]:
            for row in measure(model, Size(*size), arguments, with_jax=with_jax):
                found.append(row)
                times = ", ".join(f"{name} {ms:.2f}" for name, ms in row["milliseconds"].items())
                print(f"{model} {row['size']} {row['kind']}: {times}", flush=True)
    report = {
        "what": "least milliseconds of a call, the mean of a turn; all in turns",
        "threads": arguments.threads,
        "load average at the end": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "rows": found,
        **describe_machine(),
        **get_versions(),
    }
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = arguments.results / f"peers-{date.today().isoformat()}.json"
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure(
    model: str, size: Size, arguments: argparse.Namespace, *, with_jax: bool
) -> list[dict[str, Any]]:
    """Return the times of all contenders, forward and in training."""
    torch.manual_seed(0)
    x = torch.randn(size.batch, size.steps, size.inputs)
    dt = torch.rand(size.batch, size.steps) + 0.5
    modules = ours(model, size)
    contenders = {"tauflow": modules["tauflow"], **others(model, size)}
    if arguments.compile:
        reference, call = modules["reference"]
        contenders["torch.compile"] = (reference, torch.compile(call))
    rows = []
    for kind, make in KINDS.items():
        jobs = {name: make(module, call, x, dt) for name, (module, call) in contenders.items()}
        if with_jax:
            jobs["JAX"] = make_jax_job(model, modules["tauflow"][0], x, dt, kind)
        timings = interleaved(jobs, rounds=arguments.rounds)
        times = {name: round(1e3 * min(timing.rounds), 4) for name, timing in timings.items()}
        rows.append({"model": model, "size": str(size), "kind": kind, "milliseconds": times})
    return rows


def make_jax_job(model: str, module: nn.Module, x: Tensor, dt: Tensor, kind: str) -> Job:
    """Return a call of the same model by ``jax.jit`` of ``lax.scan``.

    Raises:
        AssertionError: its outputs are not those of the module.
    """
    import jax
    import jax.numpy as jnp

    cell = module.cell
    assert isinstance(cell, nn.Module)
    tensors = cell.packed_parameters()  # type: ignore[operator]
    parameters = [jnp.asarray(tensor.detach().numpy()) for tensor in tensors]
    step = {"CfC": jax_cfc_step, "LTC": jax_ltc_step}[model]
    inputs = [jnp.asarray(tensor.numpy()) for tensor in (x, dt)]

    def outputs(parameters: Any, x: Any, dt: Any) -> Any:
        def advance(h: Any, now: Any) -> Any:
            after = step(parameters, h, *now)
            return after, after

        start = jnp.zeros((x.shape[0], cell.state_size))
        _, y = jax.lax.scan(advance, start, (x.swapaxes(0, 1), dt.swapaxes(0, 1)[..., None]))
        return y.swapaxes(0, 1)

    expected = module(x, dt=dt)[0].detach().numpy()
    np.testing.assert_allclose(outputs(parameters, *inputs), expected, rtol=1e-4, atol=1e-4)
    compiled = jax.jit(outputs)
    if kind == "training step":
        compiled = jax.jit(jax.grad(lambda *given: jnp.mean(outputs(*given) ** 2)))
    return lambda: jax.block_until_ready(compiled(parameters, *inputs))


def jax_cfc_step(parameters: Any, h: Any, x: Any, dt: Any) -> Any:
    """Return a CfC's state after ``dt``: the default form, with a backbone of one layer."""
    import jax.numpy as jnp
    from jax.nn import sigmoid

    first, first_bias, _, _, heads, heads_bias, *_ = parameters
    z = jnp.concatenate((x, h), -1) @ first.T + first_bias
    z = 1.7159 * jnp.tanh(0.666 * z)
    g, held, a, b = jnp.split(z @ heads.T + heads_bias, 4, -1)
    p = sigmoid(b - a * dt)
    return jnp.tanh(g) * (1 - p) + jnp.tanh(held) * p


def jax_ltc_step(parameters: Any, v: Any, u: Any, dt: Any) -> Any:
    """Return an LTC's potentials after ``dt``, by sub-steps of the fused solver."""
    from jax.nn import sigmoid

    weights_x, weights, leak, C = parameters

    def currents(z: Any, synapses: Any) -> Any:
        sigma, mu, w, E = synapses
        g = w * sigmoid(sigma * (z[..., None] - mu))
        return (g * E).sum(-2), g.sum(-2)

    drive_x, conductance_x = currents(u, weights_x)
    held = C * SUBSTEPS / dt
    for _ in range(SUBSTEPS):
        drive, conductance = currents(v, weights)
        numerator = held * v + drive_x + leak[0] + drive
        v = numerator / (held + conductance_x + leak[1] + conductance)
    return v
