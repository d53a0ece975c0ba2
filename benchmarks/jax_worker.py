"""CfC and LTC in JAX, timed in a separate process.

Two libraries in one process slow each other: each keeps threads that wait for work. The worker is
asked in turns over its pipes, so that whoever is timed has the machine to itself. It runs as a
script and needs JAX and NumPy only, so that its interpreter may be one of another environment.
"""

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


class JaxWorker:
    """The process that compiles and times models in JAX.

    Args:
        python: its interpreter.
        threads: processors that it may use.
        substeps: of an LTC's solver.

    Raises:
        ModuleNotFoundError: its environment has no JAX.
    """

    def __init__(self, python: str, threads: int, substeps: int) -> None:
        command = [python, str(Path(__file__)), str(threads), str(substeps)]
        # What the path of this process adds belongs to another environment.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        try:
            self.version: str = self._receive()
        except EOFError:
            raise ModuleNotFoundError(f"{python} has no jax") from None

    def compile(
        self, model: str, kind: str, parameters: list[Any], x: Any, dt: Any, expected: Any
    ) -> None:
        """Compile a model, and check its outputs.

        Args:
            model: ``"CfC"`` or ``"LTC"``.
            kind: ``"forward"`` or ``"training step"``.
            parameters: packed, as arrays.
            x: (B, T, I).
            dt: (B, T).
            expected: (B, T, N), the outputs.

        Raises:
            AssertionError: the outputs are others.
        """
        answer = self._ask(("compile", (model, kind, parameters, x, dt, expected)))
        assert not answer, answer

    def time(self, calls: int) -> float:
        """Return the seconds of a call of the model that was compiled last."""
        return float(self._ask(("time", (calls,))))

    def __call__(self) -> None:
        """Run that model once."""
        self.time(1)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, request: Any) -> Any:
        assert self._process.stdin is not None
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)


class _Models:
    """The models of the worker.

    Args:
        substeps: of an LTC's solver.
    """

    def __init__(self, substeps: int) -> None:
        self._substeps = substeps
        self._job: Any = None

    def compile(
        self, model: str, kind: str, parameters: Any, x: Any, dt: Any, expected: Any
    ) -> str:
        """Compile a model; return what is wrong with its outputs, if anything."""
        import jax
        import jax.numpy as jnp

        step = {"CfC": self._step_cfc, "LTC": self._step_ltc}[model]

        def outputs(parameters: Any, x: Any, dt: Any) -> Any:
            def advance(h: Any, now: Any) -> Any:
                after = step(parameters, h, *now)
                return after, after

            start = jnp.zeros((x.shape[0], expected.shape[2]))
            _, y = jax.lax.scan(advance, start, (x.swapaxes(0, 1), dt.swapaxes(0, 1)[..., None]))
            return y.swapaxes(0, 1)

        inputs = [jnp.asarray(array) for array in (x, dt)]
        parameters = [jnp.asarray(array) for array in parameters]
        compiled = jax.jit(outputs)
        try:
            np.testing.assert_allclose(
                compiled(parameters, *inputs), expected, rtol=1e-4, atol=1e-4
            )
        except AssertionError as error:
            return f"JAX's {model} has other outputs: {error}"
        if kind == "training step":
            compiled = jax.jit(jax.grad(lambda *inputs: jnp.mean(outputs(*inputs) ** 2)))
        self._job = lambda: jax.block_until_ready(compiled(parameters, *inputs))
        self._job()
        return ""

    def time(self, calls: int) -> float:
        """Return the seconds of a call."""
        started = time.perf_counter()
        for _ in range(calls):
            self._job()
        return (time.perf_counter() - started) / calls

    def _step_cfc(self, parameters: Any, h: Any, x: Any, dt: Any) -> Any:
        """Return a CfC's state after ``dt``: the default form, with a backbone of one layer."""
        import jax.numpy as jnp
        from jax.nn import sigmoid

        first, first_bias, _, _, heads, heads_bias, *_ = parameters
        z = jnp.concatenate((x, h), -1) @ first.T + first_bias
        z = 1.7159 * jnp.tanh(0.666 * z)
        g, held, a, b = jnp.split(z @ heads.T + heads_bias, 4, -1)
        p = sigmoid(b - a * dt)
        return jnp.tanh(g) * (1 - p) + jnp.tanh(held) * p

    def _step_ltc(self, parameters: Any, v: Any, u: Any, dt: Any) -> Any:
        """Return an LTC's potentials after ``dt``, by sub-steps of the fused solver."""
        from jax.nn import sigmoid

        weights_x, weights, leak, C = parameters

        def currents(z: Any, synapses: Any) -> Any:
            sigma, mu, w, E = synapses
            g = w * sigmoid(sigma * (z[..., None] - mu))
            return (g * E).sum(-2), g.sum(-2)

        drive_x, conductance_x = currents(u, weights_x)
        held = C * self._substeps / dt
        for _ in range(self._substeps):
            current, conductance = currents(v, weights)
            numerator = held * v + drive_x + leak[0] + current
            v = numerator / (held + conductance_x + leak[1] + conductance)
        return v


def _serve(threads: int, substeps: int) -> None:
    """Answer requests until there are no more."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    import jax

    models, answer = _Models(substeps), jax.__version__
    while True:
        pickle.dump(answer, answers)
        answers.flush()
        try:
            name, arguments = pickle.load(requests)
        except EOFError:
            return
        answer = getattr(models, name)(*arguments)


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
