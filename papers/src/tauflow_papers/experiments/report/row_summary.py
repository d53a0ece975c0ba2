"""One row of a table with what was measured of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tauflow.runs.report import metric_format
from tauflow.runs.results import RunRecord
from tauflow.runs.time_limits import format_duration
from tauflow_papers.experiments.run.time_estimate import Estimate
from tauflow_papers.experiments.spec.experiment import Row

from . import table
from .protocol import Judgement


@dataclass(frozen=True)
class RowSummary:
    """One row of a table, as a survey shows it.

    Args:
        row: the row.
        line: its texts.
        records: its runs, by seed: those as long as published, if there are any.
        judged: the verdict, as ``papers/PROTOCOL.md`` says.
        seeds: runs, ours and published.
        epochs: epochs of a run, ours and published.
        settings: settings that a search has tried, and all that it has to.
        remark: what was looked into, for a row that is worse or has a remark; how far training
            came, for one that is unfinished.
        expected: what a run is expected to take, for a row without results.
        untraced: runs from sources that are not available any more.
    """

    row: Row
    line: table.TableLine
    records: tuple[RunRecord, ...] = ()
    judged: Judgement = field(default_factory=Judgement)
    seeds: tuple[int, int] = (0, 0)
    epochs: tuple[int, int] = (0, 0)
    settings: tuple[int, int] = (0, 0)
    remark: str = ""
    expected: Estimate | None = None
    untraced: int = 0

    @property
    def judgement(self) -> str:
        """The verdict; empty if nothing can be said."""
        return self.judged.verdict

    @property
    def worse_by(self) -> float | None:
        """The difference from the published mean in margins; positive is worse."""
        known = self.judged.interval
        if known is None or not known.margin:
            return None
        return self.judged.side * abs(known.difference) / known.margin

    @property
    def few_seeds(self) -> bool:
        """Whether there are fewer runs than published."""
        return self.seeds[0] < self.seeds[1]

    @property
    def few_epochs(self) -> bool:
        """Whether our runs are shorter than published."""
        return self.epochs[0] < self.epochs[1]

    @property
    def few_settings(self) -> bool:
        """Whether a search has not tried all of its settings."""
        return self.settings[0] < self.settings[1]

    @property
    def pace(self) -> str:
        """Our time per epoch, of the fastest run, and, if given, the paper's."""
        fastest = find_fastest_epoch(self.records)
        if fastest is None:
            return metric_format.DASH
        ours = format_duration(fastest) if fastest >= 10 else f"{fastest:.2g} s"
        theirs = self.row.published.minutes_per_epoch
        return ours if theirs is None else f"{ours} ({format_duration(60 * theirs)})"


def find_fastest_epoch(records: Sequence[RunRecord]) -> float | None:
    """Return the seconds of an epoch of the fastest run, ``None`` without one.

    Other work on a machine only adds to them; of the processor alone, where these were counted.
    """
    seconds = [
        min(r.seconds_per_epoch, (r.processor_seconds or math.inf) / (r.epochs or 1))
        for r in records
        if r.seconds_per_epoch is not None
    ]
    return min(seconds, default=None)
