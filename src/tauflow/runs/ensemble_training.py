"""The members of an ensemble: one training for each seed, and what they are together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.checks import check_at_least
from tauflow._internal.sanitize import format_count
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError
from tauflow.evaluation.certainty import check_certainty_options
from tauflow.evaluation.thresholds import Rule
from tauflow.models import Ensemble
from tauflow.models.spread import SPREADS
from tauflow.training.evaluation_loop import evaluate
from tauflow.training.metrics import METRICS
from tauflow.training.process_group import DistributedContext

from .job import RECORD_FILE, Job
from .results import RunRecord

CONFORMAL = "conformal"


@dataclass(frozen=True)
class CertaintyOptions:
    """What a run learns beside a network to say how sure its answers are.

    Args:
        ensemble: networks, with as many seeds from that of the run on; by default 5 of several
            models, and 1 otherwise.
        calibrate: ``"temperature"`` or ``"isotonic"``, see :func:`tauflow.evaluation.calibrate`.
        threshold: see :func:`tauflow.evaluation.choose_threshold`.
        intervals: of values: ``"conformal"``, ``"quantile"`` or ``"gaussian"``; by default the
            first, where there is a validation split.
    """

    ensemble: int | None = None
    calibrate: str | None = None
    threshold: Rule | None = None
    intervals: str | None = None

    @property
    def spread(self) -> str | None:
        """The head that the model gets."""
        return self.intervals if self.intervals in SPREADS else None

    def check(self, data: TaskData) -> None:
        """Refuse what the data cannot serve; see :func:`check_certainty_options`."""
        if self.ensemble is not None:
            check_at_least(1, ensemble=self.ensemble)
        if self.intervals not in (None, CONFORMAL, *SPREADS):
            raise ArgumentError(
                f"intervals={self.intervals!r} is unknown. Choose from: "
                f"{', '.join((CONFORMAL, *SPREADS))}."
            )
        check_certainty_options(data, self.calibrate, self.threshold, self.intervals is not None)

    def makes_intervals(self, data: TaskData) -> bool:
        """Whether intervals are learned: where they are asked for, or cost next to nothing."""
        is_table_of_values = data.schema is not None and data.card.task == "regress"
        return self.intervals is not None or (is_table_of_values and data.valid is not None)


def get_run_directory(jobs: Sequence[Job], runs_dir: Path) -> Path:
    """Return the folder of a run, which for an ensemble says how many networks it has."""
    base = replace(jobs[0], row=get_ensemble_row(jobs)).directory(runs_dir)
    if len(jobs) == 1:
        return base
    row, _, rest = base.name.rpartition("-seed")
    return base.with_name(f"{row}-ensemble{len(jobs)}-seed{rest}")


def list_member_folders(jobs: Sequence[Job], directory: Path) -> list[Path]:
    """Return where each network of a run is trained: in its folder, or in one for each seed."""
    return [directory / f"seed{job.seed}" for job in jobs] if len(jobs) > 1 else [directory]


def train_members(
    jobs: Sequence[Job],
    data: TaskData,
    directory: Path,
    train: Callable[[Job, Path], tuple[RunRecord, nn.Module]],
) -> tuple[RunRecord, nn.Module, tuple[str, ...]]:
    """Train the networks of a run, each of an ensemble in a separate folder.

    Args:
        jobs: one for each network, with consecutive seeds.
        data: what the trained networks answer.
        directory: of the run.
        train: trains one of them, in a folder.

    Returns:
        The record of the whole, the model, and notes on the members.
    """
    trained = list(map(train, jobs, list_member_folders(jobs, directory)))
    records, models = zip(*trained, strict=True)
    if len(jobs) == 1:
        return records[0], models[0], ()
    model = Ensemble(models, data.card.task).eval()
    first, metric = jobs[0], METRICS[jobs[0].metric]
    scores = [
        None if part is None else evaluate(model, part, metric=metric)
        for part in (data.valid, data.test)
    ]
    seconds = sum(record.seconds or 0.0 for record in records)
    record = replace(
        records[0],
        row=get_ensemble_row(jobs),
        valid=scores[0],
        test=scores[1],
        last_test=None,
        parameters=sum(record.parameters or 0 for record in records),
        seconds=seconds,
        config={**records[0].config, "ensemble": len(jobs)},
    )
    if DistributedContext.current().is_main:
        write_atomically(directory / RECORD_FILE, (record.to_json() + "\n").encode())
    names = get_ensemble_row(jobs).split("+")
    turns = f" ({' and '.join(names)} in turn)" if len(names) > 1 else ""
    each = ", ".join(f"{record.test:.4g}" for record in records)
    return (
        record,
        model,
        (
            f"The mean of {format_count(len(jobs), 'network')}{turns}, seeds {first.seed} to "
            f"{jobs[-1].seed}: epochs and learning curves are of the first. "
            f"Test {first.metric} of each by itself: {each}.",
        ),
    )


def get_ensemble_row(jobs: Sequence[Job]) -> str:
    """Return what networks are called together: the names of their models."""
    return "+".join(dict.fromkeys(job.row for job in jobs))
