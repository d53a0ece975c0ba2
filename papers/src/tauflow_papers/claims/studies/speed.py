"""Time of networks with a solver beside CfC: in fused kernels and in plain PyTorch steps."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tauflow.models.registry import WHOLE_MODELS
from tauflow.sequence import SequenceModule, build
from tauflow_papers.claims.stored import compute_exponent
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.run.time_estimate import estimate_row

_BATCH, _STEPS, _FEATURES, _NEURONS = 32, 64, 18, 64
_ADAPTIVE: dict[str, Any] = {"solver": "dopri5", "rtol": 1e-3, "atol": 1e-4}
_NETWORKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "CfC": ("cfc", {}),
    "CfC-noGate": ("cfc-nogate", {}),
    "Cf-S": ("cf-s", {}),
    "CfC-mmRNN": ("cfc-mmrnn", {}),
    "LSTM": ("lstm", {}),
    "GRU": ("gru", {}),
    "GRU-D": ("gru-d-unmasked", {}),
    "LTC": ("ltc", {}),
    "ODE-RNN": ("ode-rnn", {}),
    "CT-RNN": ("ct-rnn", {}),
    "Neural ODE": ("neural-ode", {}),
    "GRU-ODE": ("gru-ode", {}),
    "ODE-LSTM": ("ode-lstm", {}),
    "ODE-RNN, dopri5": ("ode-rnn", _ADAPTIVE),
    "CT-RNN, dopri5": ("ct-rnn", _ADAPTIVE),
}
_ROUNDS = 3
Job = Callable[[], object]


def compare() -> dict[str, Any]:
    """Time training steps and forward passes of every network, in turns.

    A training step is a forward pass, a mean square and a backward pass over one batch of 32
    sequences of 64 samples with 18 features, with 64 neurons and one thread. Times are of the
    processor, the lowest of three rounds.

    Returns:
        Milliseconds, by backend (``"kernels"``: the one taken by default; ``"steps"``: PyTorch
        operations step by step), by what is timed (``"training"`` or ``"inference"``) and network.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {
            name: _time_networks(backend)
            for name, backend in {"kernels": "auto", "steps": "reference"}.items()
        }
    finally:
        torch.set_num_threads(threads)


def _time_networks(backend: str) -> dict[str, dict[str, float]]:
    torch.manual_seed(0)
    x, dt = torch.randn(_BATCH, _STEPS, _FEATURES), torch.rand(_BATCH, _STEPS) + 0.5
    rnns = {
        title: build(name, _FEATURES, _NEURONS, backend=backend, **options)
        for title, (name, options) in _NETWORKS.items()
        if backend == "reference" or "solver" not in options  # adaptive steps have no kernel
    }
    return {
        "training": _time_jobs({t: _make_training_step(rnn, x, dt) for t, rnn in rnns.items()}),
        "inference": _time_jobs({t: _make_forward_pass(rnn, x, dt) for t, rnn in rnns.items()}),
    }


def _make_training_step(rnn: SequenceModule, x: Tensor, dt: Tensor) -> Job:
    def job() -> None:
        rnn.zero_grad()
        rnn(x, dt=dt)[0].square().mean().backward()

    return job


def _make_forward_pass(rnn: torch.nn.Module, x: Tensor, dt: Tensor | None = None) -> Job:
    def job() -> None:
        with torch.no_grad():
            rnn(x, dt=dt)

    return job


def _time_jobs(jobs: Mapping[str, Job], rounds: int = _ROUNDS) -> dict[str, float]:
    """Return milliseconds of the processor, the lowest of some rounds, all jobs in turns."""
    best = dict.fromkeys(jobs, math.inf)
    for job in jobs.values():  # compiles and warms up
        job()
    for _ in range(rounds):
        for name, job in jobs.items():
            started = time.process_time()
            job()
            best[name] = min(best[name], 1e3 * (time.process_time() - started))
    return {name: round(value, 3) for name, value in best.items()}


# --- epochs ----------------------------------------------------------------------------------

_ROWS: Mapping[str, Sequence[str]] = {
    "cfc-table-4": ("cfc/event", "ode-rnn/event", "ct-rnn/event"),
    "cfc-table-5": (
        *("cfc", "gru-d/observed", "phased-lstm", "ode-rnn/observed"),
        "latent-ode-ode/observed",
    ),
    "cfc-table-7": ("cfc", "ode-rnn", "ct-rnn", "ltc"),
    "ltc-table-6": ("ltc", "ltc-rk4", "neural-ode"),
}


def time_epochs() -> dict[str, Any]:
    """Time an epoch of rows of tables, all on one machine and with one version.

    Returns:
        Seconds of the processor, with one thread, by table and row, from a few batches: the least
        of three rounds.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {table: _time_rows(table, rows) for table, rows in _ROWS.items()}
    finally:
        torch.set_num_threads(threads)


def _time_rows(table: str, rows: Sequence[str]) -> dict[str, float]:
    experiment = load_experiment(table)
    return {
        row: round(
            min(estimate_row(experiment, experiment.row(row)).epoch for _ in range(_ROUNDS)), 3
        )
        for row in rows
    }


# --- growth ----------------------------------------------------------------------------------

_LENGTHS = (512, 1024, 2048, 4096)
_SUBSTEPS = (4, 8, 16, 32)
_WIDTHS = (64, 128, 256, 512)


def measure_growth() -> dict[str, Any]:
    """Time forward passes over the length n, the neurons k and the solver's steps p.

    Returns:
        Milliseconds by network and length; of an ODE-RNN and an LTC by steps of their solvers, and
        of a CfC and an Elman network by neurons; and ``"exponents"``, the slopes of their
        logarithms.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            return _measure_growth()
    finally:
        torch.set_num_threads(threads)


def _measure_growth() -> dict[str, Any]:
    torch.manual_seed(0)
    networks: dict[str, torch.nn.Module] = {
        "RNN": build("elman", 8, 64),
        "CfC": build("cfc", 8, 64),
        "ODE-RNN": build("ode-rnn", 8, 64),
        "LTC": build("ltc", 8, 32),
        "Transformer": WHOLE_MODELS["transformer"].build(8, 64),
    }
    inputs = {n: torch.randn(4, n, 8) for n in _LENGTHS}
    over_n = {
        name: _time_jobs({str(n): _make_forward_pass(net, x) for n, x in inputs.items()})
        for name, net in networks.items()
    }
    over_p = {
        title: _time_jobs(
            {
                str(p): _make_forward_pass(build(name, 8, k, substeps=p), inputs[512])
                for p in _SUBSTEPS
            }
        )
        for title, name, k in (("ODE-RNN", "ode-rnn", 64), ("LTC", "ltc", 32))
    }
    over_k = {
        title: _time_jobs(
            {str(k): _make_forward_pass(build(name, 8, k, **options), inputs[512]) for k in _WIDTHS}
        )
        for title, name, options in (
            ("RNN", "elman", {}),
            ("CfC", "cfc", {"backbone_units": 64}),
        )
    }
    exponents = {f"{name} over n": compute_exponent(times) for name, times in over_n.items()}
    exponents |= {f"{name} over p": compute_exponent(times) for name, times in over_p.items()}
    exponents |= {f"{name} over k": compute_exponent(times) for name, times in over_k.items()}
    return {"over n": over_n, "over p": over_p, "over k": over_k, "exponents": exponents}
