"""Networks that remember pulses, trained for the figures that look into them."""

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow.analysis import Flow, Projection, as_flow, output_projection, visited_states
from tauflow.batch import SequenceBatch
from tauflow.models import SequenceModel
from tauflow.runs.job import load_dataset, train_job
from tauflow.sequence import SequenceModule
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.run.row_jobs import make_job

from .paper_figure import FigureJob


class GridPoint(NamedTuple):
    """A point of the grid that the paper searches."""

    lr: float
    weight_decay: float
    batch_size: int


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network trained on a flip-flop task.

    Args:
        model: the network with its readout.
        rnn: the part that has a state.
        trials: validation trials.
        valid: mean squared error on them.
        seconds: that its training took.
    """

    model: SequenceModel
    rnn: SequenceModule
    trials: SequenceBatch
    valid: float
    seconds: float

    @property
    def flow(self) -> Flow:
        """How the state moves without pulses, per time constant."""
        return as_flow(self.rnn)

    @property
    def states(self) -> Tensor:
        """The states of all trials, (B, T, S)."""
        return visited_states(self.rnn, self.trials.x, dt=self.trials.dt)

    @property
    def view(self) -> Projection:
        """The plane of the first two outputs."""
        return output_projection(lambda h: self.model.head(h), self.rnn.state_size)

    @torch.no_grad()
    def compute_outputs(self, trials: SequenceBatch) -> Tensor:
        """Return the outputs, (B, T, O)."""
        y, _ = self.model(trials.x, dt=trials.dt)
        return y  # type: ignore[no-any-return]


def train_network(job: FigureJob, table: str, row: str, setting: GridPoint) -> TrainedNetwork:
    """Return the network of a table's row, trained with one setting of the row's grid.

    A network that several figures show is trained once in a process; at size ``"small"`` it gets a
    few trials, units and epochs.

    Args:
        job: the figure's; its settings note the network's.
        table: a packaged table.
        row: a row of it.
        setting: instead of the row's own search.
    """
    started = time.perf_counter()
    network = train_on_task(table, row, setting, small=job.size == "small", seed=job.seed)
    job.add_seconds("training", network.seconds)
    # trained for another figure before, it takes no time now, but belongs to this one as well
    job.add_seconds("all", network.seconds - (time.perf_counter() - started))
    job.settings[row] = {**setting._asdict(), "table": table, "validation MSE": network.valid}
    return network


@lru_cache(maxsize=16)
def train_on_task(
    table: str, row: str, setting: GridPoint, *, small: bool, seed: int
) -> TrainedNetwork:
    """Train the network of a table's row with one setting of its grid.

    Args:
        table: a packaged table.
        row: a row of it.
        setting: instead of the row's own search.
        small: whether a few trials, units and epochs are enough.
        seed: of weights and batches.
    """
    started = time.perf_counter()
    experiment = load_experiment(table).with_epochs(2 if small else None)
    job = make_job(experiment, experiment.row(row), seed)
    job = replace(job, recipe=replace(job.recipe, **setting._asdict()))
    if small:
        part = replace(job.part, options={**job.part.options, "sizes": [20, 10, 10]})
        options = {**job.model.options, **({"units": 8} if "units" in job.model.options else {})}
        job = replace(job, part=part, model=replace(job.model, options=options))
    data = load_dataset(job.part)
    record, model = train_job(job, data, progress=False)
    assert isinstance(model, SequenceModel)
    assert isinstance(model.rnn, SequenceModule)
    assert data.valid is not None
    assert record.valid is not None
    seconds = time.perf_counter() - started
    return TrainedNetwork(model.eval(), model.rnn, data.valid, record.valid, seconds)
