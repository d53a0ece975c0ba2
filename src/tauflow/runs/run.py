"""What is asked of a run: made once, by the command line or in Python, and handed down."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError
from tauflow.models.spec import ModelSpec
from tauflow.tabular.options import TableOptions
from tauflow.training.callbacks import AnyCallback
from tauflow.training.defaults import DEFAULT_HIDDEN_SIZE, DEFAULT_MODEL, DEFAULT_RECIPE
from tauflow.training.loggers import log_to
from tauflow.training.recipe import Recipe

from .ensemble_training import CertaintyOptions
from .job import Job, Say, Trained, say_nothing, train_job
from .portfolio import AUTO, HIDDEN_SIZE


@dataclass(frozen=True)
class CsvFile:
    """A table in a file of the user's own.

    Args:
        path: of the file, see :func:`tauflow.data.from_table`.
        table: which of its columns are what.
        absent: roles, such as ``"id"``, of which the user said that no column has them.
    """

    path: Path
    table: TableOptions
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """What to train, on what, how, and where to keep it.

    Args:
        source: name of a data set of the catalog; the folder of one that
            :func:`tauflow.data.write_task` wrote, which is not read into memory; or a CSV file.
        model: name of the model, a cell or a whole one; or ``"auto"``; or several names, whose
            networks take turns in an ensemble. By default such an ensemble of
            :data:`tauflow.training.defaults.DEFAULT_MODELS` for a table with one target, or several
            values, per sequence, and 40 or more sequences to learn from, and ``"cfc"`` for others.
        hidden_size: neurons, or latent dimensions; by default those of
            :data:`tauflow.training.defaults.DEFAULT_HIDDEN_SIZE`, of ``"auto"`` 64, and of
            :func:`~tauflow.runs.tune.tune` those that are tried.
        options: of the model's constructor.
        recipe: how to train; the last weights are taken if the data set has no validation split. Of
            classes the loss chooses the epoch, unless the recipe names a metric in ``select_by``.
        seed: of weights, shuffling and dropout; the split of a CSV file has its own.
        time_limit: seconds, of ``"auto"`` alone.
        resume: continue the latest run with these arguments, on data with the same content, or
            begin where the same run with fewer epochs ended; without it a new run gets a new
            directory.
        runs_dir: folder under which the run has its directory.
        data_dir: folder of the data files of the catalog.
        dataset_options: of the loader of a data set of the catalog.
        metrics: names of metrics to report, of which the first one selects the epoch; see
            :func:`~tauflow.training.objectives.choose_metrics`.
        progress: whether to draw a bar; by default on a terminal only.
        device: where to train; by default the CPU.
        log: where else the numbers of every epoch go, see :func:`tauflow.training.log_to`.
        callbacks: told how training goes, see :func:`tauflow.training.train`.
        certainty: ensembles, calibration, a threshold, intervals.
        say: called with what was understood of a CSV file, line by line, before training.

    Raises:
        ArgumentError: a time limit is given to a single model, or a table has a horizon.
    """

    source: str | Path | CsvFile
    model: str | Sequence[str] | None = None
    _: KW_ONLY
    hidden_size: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = DEFAULT_RECIPE
    seed: int = 0
    time_limit: float | None = None
    resume: bool = False
    runs_dir: Path = Path("runs")
    data_dir: Path | None = None
    dataset_options: Mapping[str, Any] = field(default_factory=dict)
    metrics: Sequence[str] = ()
    progress: bool | None = None
    device: str | None = None
    log: Sequence[str] = ()
    callbacks: Sequence[AnyCallback] = ()
    certainty: CertaintyOptions = CertaintyOptions()  # noqa: RUF009  # frozen
    say: Say = say_nothing

    def __post_init__(self) -> None:
        """Refuse a time limit of a single model, and forecasts over a horizon."""
        if self.time_limit is not None and self.models != (AUTO,):
            raise ArgumentError(
                f"a time limit goes with model {AUTO!r}, which fits what it tries into a time. "
                "Give another model a number of epochs."
            )
        if isinstance(self.source, CsvFile) and self.source.table.horizon:
            raise ArgumentError(
                "a run predicts the row after each row, and horizon (--horizon) asks for several "
                "ahead. Train a forecaster for any time instead: 'tauflow forecast TABLE --time "
                "TIME --max-lead-time 24h', or SequenceForecaster in Python."
            )

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that were asked for."""
        if self.model is None:
            return ()
        return (self.model,) if isinstance(self.model, str) else tuple(self.model)

    @property
    def spec(self) -> ModelSpec:
        """What is built, of the first model."""
        name = next(iter(self.models), DEFAULT_MODEL)
        usual = HIDDEN_SIZE if name == AUTO else DEFAULT_HIDDEN_SIZE
        size = usual if self.hidden_size is None else self.hidden_size
        return ModelSpec(name, size, spread=self.certainty.spread, options=dict(self.options))

    def train(
        self, job: Job, data: TaskData, folder: Path, callbacks: Sequence[AnyCallback] = ()
    ) -> Trained:
        """Train one network of the run, in its folder and with its callbacks."""
        return train_job(
            job,
            data,
            run_dir=folder,
            resume=self.resume,
            progress=self.progress,
            callbacks=[*self.callbacks, *(log_to(kind, folder) for kind in self.log), *callbacks],
            device=self.device,
        )
