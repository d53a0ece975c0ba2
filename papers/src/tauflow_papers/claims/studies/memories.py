"""Networks trained on flip-flops: how they generalise, and which solver."""

from dataclasses import replace
from typing import Any

import torch

from tauflow.cells import GNODECell
from tauflow.runs.job import Job, load_dataset, train_job
from tauflow_papers.datasets.synthetic.flip_flop import load_flip_flop
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.figures.flip_flop_training import GridPoint, TrainedNetwork, train_on_task

_TWO_NEURONS = GridPoint(1e-3, 1e-3, 10)
_RINGS = {"1 < r < 2": (1.0, 2.0), "0.5 < r < 1": (0.5, 1.0), "0 < r < 0.5": (0.0, 0.5),
          "2 < r < 4": (2.0, 4.0)}  # fmt: skip


def test_disk() -> dict[str, Any]:
    """Train a gnODE of two neurons on the disk, and test it on pulses of other radii.

    Returns:
        ``"errors"`` on 100 trials by radii; and ``"gate"`` and ``"target minus state"``, the mean
        component of the gate and the root mean square of ``F - h``, over states inside the disk.
    """
    network = train_on_task("gnode-figure-2", "gnode/disk", _TWO_NEURONS, small=False, seed=0)
    errors = {}
    for name, radii in _RINGS.items():
        data = load_flip_flop(
            bits=2, amplitude="variable", shape="disk", radii=radii, sizes=(1, 100, 1), seed=1
        )
        assert data.valid is not None
        errors[name] = float((network.compute_outputs(data.valid) - data.valid.y).square().mean())
    return {"validation MSE": network.valid, "errors": errors, **_look_at_gate(network)}


@torch.no_grad()
def _look_at_gate(network: TrainedNetwork) -> dict[str, float]:
    cell = network.rnn.cell
    assert isinstance(cell, GNODECell)
    h = network.states[:, 10:].reshape(-1, cell.state_size)
    outputs = network.model.head(h)
    h = h[outputs.norm(dim=-1) < 1]  # well inside
    silent = torch.zeros(len(h), cell.input_size)
    gate = cell.update_gate(silent, h)
    velocity = network.flow.velocity(h.double()).float()  # of one time constant: G (F - h)
    return {
        "states": float(len(h)),
        "gate": float(gate.mean()),
        "gate norm": float(gate.norm(dim=-1).mean()),
        "norm of target minus state": float((velocity / gate).norm(dim=-1).mean()),
    }


_SIX_NEURONS = GridPoint(1e-2, 1e-3, 10)  # the best of 27 for the gnODE of six neurons


def train_three() -> dict[str, Any]:
    """Train a gnODE of three neurons to remember three real numbers, with one setting of 27.

    Returns:
        The lowest validation error of 600 epochs, and the setting.
    """
    network = train_on_task("gnode-figure-1", "gnode-3", _SIX_NEURONS, small=False, seed=0)
    return {"setting": _SIX_NEURONS._asdict(), "validation MSE": network.valid}


_TSIT5: dict[str, Any] = {"solver": "tsit5", "rtol": 1e-3, "atol": 1e-3}


def compare_tsit5() -> dict[str, Any]:
    """Train on the flip-flop with fixed amplitudes by Euler steps and by Tsitouras 5/4 steps.

    Returns:
        The lowest validation errors of 200 epochs, by network and solver.
    """
    experiment = load_experiment("gnode-figure-6")
    results = {}
    for title, row in {"RNN": "rnn-6", "mGRU": "mgru-6"}.items():
        job = make_job(experiment, experiment.row(row), 0)
        options = {**job.model.options, **_TSIT5}
        other = replace(job, model=replace(job.model, options=options))
        results[title] = {"euler": _train(job), "tsit5": _train(other)}
    return results


def _train(job: Job) -> float:
    record, _ = train_job(job, load_dataset(job.part), progress=False)
    assert record.valid is not None
    return record.valid
