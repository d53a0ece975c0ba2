"""A training step of a CT-RNN beside the same network in Diffrax and torchdiffeq.

All have the same parameters and four midpoint steps between two samples, and their outputs are
checked to be the same. They run in turns on one thread; the least time of a turn counts.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.table_tasks import Scores
from benchmarks.timing import interleaved, processor_clock
from torch import Tensor

import tauflow

Results = Iterator[tuple[str, dict[str, list[Scores]]]]
SIZE = {"batch": 32, "steps": 64, "inputs": 17, "neurons": 32}
SUBSTEPS = 4


def compare(task: str, data: Path, repeats: int) -> Results:
    """Yield the title, and milliseconds of processor time of each library."""
    del task, data
    torch.manual_seed(0)
    batch, steps = SIZE["batch"], SIZE["steps"]
    x, dt = torch.randn(batch, steps, SIZE["inputs"]), torch.rand(batch, steps) + 0.1
    options: dict[str, Any] = {"solver": "midpoint", "substeps": SUBSTEPS}
    module = tauflow.CTRNN(SIZE["inputs"], SIZE["neurons"], **options)
    plain = tauflow.CTRNN(SIZE["inputs"], SIZE["neurons"], backend="reference", **options)
    plain.load_state_dict(module.state_dict())
    calls: dict[str, Callable[[], object]] = {
        "tauflow `CTRNN`": _torch_step(module, lambda: module(x, dt=dt)[0]),
        'tauflow `CTRNN`, `backend="reference"`': _torch_step(plain, lambda: plain(x, dt=dt)[0]),
    }
    expected = module(x, dt=dt)[0].detach().numpy()
    for name, make in (("torchdiffeq `odeint`", _torchdiffeq), ("Diffrax `diffeqsolve`", _diffrax)):
        try:
            calls[name], outputs = make(module, x, dt)
        except ImportError as missing:
            print(f"{name} is left out: {missing}")
            continue
        np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-4)
    timings = interleaved(calls, rounds=2 * repeats + 1, least=0.5, clock=processor_clock)
    times = {name: [{"ms": 1e3 * min(timing.rounds)}] for name, timing in timings.items()}
    sizes = ", ".join(f"{number} {name}" for name, number in SIZE.items())
    yield f"One training step of a CT-RNN, {sizes}, {SUBSTEPS} midpoint steps a sample", times


def _torch_step(module: torch.nn.Module, outputs: Callable[[], Tensor]) -> Callable[[], object]:
    parameters = list(module.parameters())
    return lambda: torch.autograd.grad(outputs().square().mean(), parameters)


def _torchdiffeq(module: Any, x: Tensor, dt: Tensor) -> tuple[Callable[[], object], Any]:
    """Return a training step, and its outputs; time runs from 0 to 1 in each step."""
    from torchdiffeq import odeint

    cell = module.cells[0]
    grid = torch.linspace(0, 1, 2)
    options = {"step_size": 1 / SUBSTEPS}

    def field(input_current: Tensor, gap: Tensor, _: Tensor, h: Tensor) -> Tensor:
        return gap * (cell.s * torch.tanh(input_current + h @ cell.W_h.T) - cell.damping * h)

    def outputs() -> Tensor:
        h, states = x.new_zeros(x.shape[0], cell.hidden_size), []
        drives = x @ cell.W_x.T + cell.b
        for step in range(x.shape[1]):
            now = partial(field, drives[:, step], dt[:, step, None])
            h = odeint(now, h, grid, method="midpoint", options=options)[-1]
            states.append(h)
        return torch.stack(states, dim=1)

    return _torch_step(module, outputs), outputs().detach().numpy()


def _diffrax(module: Any, x: Tensor, dt: Tensor) -> tuple[Callable[[], object], Any]:
    """Return a compiled training step of a scan over samples, and its outputs."""
    import diffrax
    import jax
    import jax.numpy as jnp

    cell = module.cells[0]
    weights = [cell.W_x, cell.W_h, cell.b, cell.s]
    parameters = [jnp.asarray(tensor.detach().numpy()) for tensor in weights]
    inputs = [jnp.asarray(tensor.numpy()) for tensor in (x, dt)]

    def outputs(parameters: Any, x: Any, dt: Any) -> Any:
        W_x, W_h, b, s = parameters

        def field(t: Any, h: Any, input_current: Any) -> Any:
            return s * jnp.tanh(input_current + W_h @ h) - cell.damping * h

        def advance(h: Any, now: Any) -> Any:
            input_current, gap = now
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(field),
                diffrax.Midpoint(),
                0.0,
                gap,
                gap / SUBSTEPS,
                h,
                args=input_current,
                saveat=diffrax.SaveAt(t1=True),
                max_steps=SUBSTEPS + 1,
            )
            return solution.ys[0], solution.ys[0]

        def run_row(x: Any, dt: Any) -> Any:
            start = jnp.zeros(cell.hidden_size)
            return jax.lax.scan(advance, start, (x @ W_x.T + b, dt))[1]

        return jax.vmap(run_row)(x, dt)

    step = jax.jit(jax.grad(lambda *inputs: jnp.mean(outputs(*inputs) ** 2)))
    run = jax.jit(outputs)
    return lambda: jax.block_until_ready(step(parameters, *inputs)), run(parameters, *inputs)
