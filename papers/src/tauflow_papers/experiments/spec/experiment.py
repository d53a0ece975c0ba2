"""What an experiment is: frozen dataclasses, checked when built."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tauflow._internal.registry import suggest_name
from tauflow.errors import SpecificationError, UnknownNameError
from tauflow.models.spec import ModelSpec
from tauflow.runs.job import DatasetSpec
from tauflow.training.recipe import Recipe

READY = "ready"
PLANNED = "not implemented yet"
UNTRAINED = "not trained"

BOOSTING, NAIVE = BASELINES = ("boosting", "naive")
"""Models of rows without a network; see :mod:`tauflow_papers.experiments.run.baseline_rows`."""
ENSEMBLE = "ensemble"
"""Model of rows that average others; see :mod:`tauflow_papers.experiments.run.ensemble_rows`."""


def list_members(model: ModelSpec) -> tuple[tuple[ModelSpec, ...], int]:
    """Return the members of an ensemble, and how often each is trained: its folds or seeds.

    Raises:
        SpecificationError: the options are not these.
    """
    options = dict(model.options)
    members, member_options = options.pop("members", None), options.pop("options", {})
    times = list(options.values())
    if not members or set(options) not in ({"folds"}, {"seeds"}) or times[0] < 1:
        raise SpecificationError(
            "an ensemble has the options members, a list of models, either folds or seeds, how "
            f"often each is trained, and options of its networks, got {dict(model.options)}."
        )
    specs = [ModelSpec(name, model.hidden_size, head_init=model.head_init) for name in members]
    return (
        tuple(
            spec if spec.cell in BASELINES else replace(spec, options=member_options)
            for spec in specs
        ),
        int(times[0]),
    )


@dataclass(frozen=True)
class Published:
    """A number from a paper's table.

    Args:
        mean: the mean over runs, in the metric's own unit (an accuracy is a fraction).
        std: its spread over runs, if given.
        n: number of runs, if stated.
        chance: score of the best constant answer, where the paper reports networks that fail.
        below: all the paper says is that the number is below this.
        above: all the paper says is that it is at least this.
        figure: where the number is drawn, if it is not printed.
        absent: why there is no number: the row compares a model that the paper does not.
        parameters: number of trainable parameters, if given.
        minutes_per_epoch: the paper's training time, if given.
        quoted: the source the paper took the number from, if it is not the paper's own.
    """

    mean: float | None = None
    std: float | None = None
    n: int | None = None
    chance: float | None = None
    below: float | None = None
    above: float | None = None
    figure: str | None = None
    absent: str | None = None
    parameters: int | None = None
    minutes_per_epoch: float | None = None
    quoted: str | None = None

    @property
    def has_bound(self) -> bool:
        """Whether the paper gives a bound instead of a number."""
        return self.mean is None and (self.below is not None or self.above is not None)


@dataclass(frozen=True)
class Setting:
    """One of the settings among which a row chooses the best.

    Args:
        label: what tells it from the others, in words.
        model: what is trained.
        recipe: how.
        values: what it sets, by dotted name.
    """

    label: str
    model: ModelSpec
    recipe: Recipe
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One published number and what is needed to measure it again.

    Args:
        name: unique in the experiment; ``"model/part"`` if the experiment has several parts.
        title: the model as the paper calls it.
        part: its data set.
        published: the paper's number.
        loss: name in the losses' registry.
        metric: name in the metrics' registry, of the published number.
        recipe: how it is trained; ``None`` for rows that are not.
        model: what is trained; ``None`` for rows that are not.
        search: settings to try; the one with the best validation score of seed 0 is then run with
            all seeds. Without any, ``model`` and ``recipe`` are run.
        search_part: the data set on which they are tried; by default the row's own.
        planned: name of the model that is still missing, else ``None``.
        untrained: why there is nothing to train, else ``None``.
        note: what a reader must know about this row.
        unlike: why our number cannot be judged by the paper's, if it cannot: another protocol.
    """

    name: str
    title: str
    part: DatasetSpec
    published: Published
    loss: str
    metric: str
    recipe: Recipe | None = None
    model: ModelSpec | None = None
    search: tuple[Setting, ...] = ()
    search_part: DatasetSpec | None = None
    planned: str | None = None
    untrained: str | None = None
    note: str = ""
    unlike: str = ""

    @property
    def status(self) -> str:
        """``"ready"``, ``"not implemented yet"`` or ``"not trained"``."""
        if self.model is not None:
            return READY
        return UNTRAINED if self.planned is None else PLANNED


@dataclass(frozen=True)
class Experiment:
    """One published table, or a figure that is a sweep.

    Args:
        name: what ``tauflow reproduce`` is told.
        title: one line.
        source: paper and table.
        seeds: number of seeds of a full reproduction; they are 0, 1, 2, ...
        ddof: of the standard deviation in our column: 0 for the population's, 1 for the sample's.
        rows: every published row.
        notes: conflicts between sources and the choices made.
        command: what computes the numbers, if they do not come from training.
        runs_of: names of tables some of whose rows train the same as some of this one: their runs
            count here too.
        headlines: names of the rows that the paper leads with.
        best_epoch: whether the best test score of any epoch is shown beside, as the published
            scores may be of that kind.
        epochs: to how many every run is cut; ``None`` for the recipes' own.
        split_option: option of the data sets that draws the parts; each run's seed is given there
            too, so that runs of different seeds differ in their parts.
        scored_part: ``"valid"`` where the paper shows validation scores, so that ours are, too;
            ``"test"`` else.
        judged_over: option of the data sets that draws the parts, where the published numbers are
            of one split that cannot be rebuilt: rows are judged over runs with different ones.
    """

    name: str
    title: str
    source: str
    seeds: int
    ddof: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    command: str | None = None
    runs_of: tuple[str, ...] = ()
    headlines: tuple[str, ...] = ()
    best_epoch: bool = False
    epochs: int | None = None
    split_option: str = ""
    scored_part: str = "test"
    judged_over: str = ""

    @property
    def published(self) -> bool:
        """Whether a paper has any of its numbers; else it is a comparison of our own."""
        return any(row.published.absent is None for row in self.rows)

    def with_epochs(self, epochs: int | None) -> "Experiment":
        """Return the experiment with another number of epochs, ``None`` for the recipes' own."""
        return replace(self, epochs=epochs)

    def row(self, name: str) -> Row:
        """Return the row of that name."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise UnknownNameError(
                f"{self.name} has no row {name!r}.{suggest_name(name, rows)} "
                f"Known: {', '.join(sorted(rows))}."
            )
        return rows[name]

    def select(self, models: Iterable[str] | None = None) -> tuple[Row, ...]:
        """Return the rows to run: those named, or all whose model exists.

        Args:
            models: names of rows. Where no row is called ``"cfc"`` alone, that stands for
                ``"cfc/dense"`` and ``"cfc/event"``; ``"event"`` stands for the rows of that part
                that can be run.

        Raises:
            UnknownNameError: no such row, or it cannot be run.
        """
        if models is None:
            return tuple(row for row in self.rows if row.status == READY)
        chosen: list[Row] = []
        for name in models:
            named = [row for row in self.rows if name == row.name]
            named = named or [row for row in self.rows if name == row.name.split("/")[0]]
            named = named or [r for r in self.rows if name == r.part.name and r.status == READY]
            for row in named or [self.row(name)]:
                if row.status != READY:
                    raise self._not_runnable_error(row)
                if row not in chosen:
                    chosen.append(row)
        return tuple(chosen)

    def _not_runnable_error(self, row: Row) -> UnknownNameError:
        ready = sorted(other.name for other in self.rows if other.status == READY)
        why = f"the model {row.planned!r} of row {row.name!r} is not implemented yet"
        if row.status == UNTRAINED:
            why = f"row {row.name!r} is not trained: {row.untrained}"
        return UnknownNameError(f"{self.name}: {why}. Rows that run: {', '.join(ready) or 'none'}.")
