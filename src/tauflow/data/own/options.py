"""What a user says of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from tauflow.checks import boolean, one_of, seed_of_bits
from tauflow.errors import ArgumentError

from .parts import fractions_of
from .targets import TASKS

SPLIT = (0.7, 0.15, 0.15)
BY_ID, BY_TIME = "id", "time"


@dataclass(frozen=True)
class TableOptions:
    """Which columns of a table are what, and how to split it.

    Args:
        id: column that says which sequence a row belongs to.
        time: column of the times: numbers, or dates (ISO 8601 with hyphens, ``datetime64``).
            Without one, the rows of a sequence are one step apart.
        target: column to predict. In next-step prediction it is the one to predict, and an input;
            without it, all features are.
        features: columns of the inputs, numbers or truth values; by default all others.
        task: ``"classification"``, ``"regression"`` or ``"next-step"``. By default next-step
            without a target; classification if the target is text, truth values, or whole numbers
            with at most 20 different values; regression otherwise.
        per_step: whether there is one target per row, rather than one per id. By default there is
            one per id if no id has two different ones.
        time_unit: unit that dates are converted to, by default hours; of numbers, which are not
            converted, it is a name only.
        split: fractions of training, validation and test part; see ``split_by``.
        split_seed: of the draw of ids or groups.
        sort: whether to sort the rows of an id by time; by default rows out of order are an error.
        scale: whether to scale features, and the targets of a regression, to mean 0 and standard
            deviation 1 by what was observed in the training part.
        group: column that says which ids belong together, such as the patient where an id is one of
            his days: all ids of a group are in one part. By default each id is drawn on its own.
        split_by: ``"id"`` draws ids, or groups, so that none is in two parts; where ids have one
            class each, the classes are spread evenly. ``"time"`` is for few or single recordings
            with targets in their rows: the rows of each id are cut, in their order, into an early
            sequence for training, a middle one for validation and a late one for the test. No row
            is in two parts, nor is the row that a next-step target is taken from. Each sequence
            starts anew, its first gap 0; an id with too few rows is for training alone. Each id is
            cut for itself: training rows of one may be later than test rows of another.

    Raises:
        ArgumentError: a value is outside its range, or two options contradict each other.
        UnknownNameError: no such task, or way to split.
    """

    id: str
    time: str | None = None
    target: str | None = None
    features: Sequence[str] | None = None
    task: str | None = None
    per_step: bool | None = None
    time_unit: str | None = None
    split: Sequence[float] = SPLIT
    split_seed: int = 0
    sort: bool = False
    scale: bool = True
    group: str | None = None
    split_by: str = BY_ID

    def __post_init__(self) -> None:
        if isinstance(self.features, str) or (self.features is not None and not self.features):
            raise ArgumentError(
                f"features must be a list of column names, got {self.features!r}. Name at least "
                "one, or leave it out for all columns that have no other use."
            )
        if self.task is not None:
            one_of(TASKS, task=self.task)
        if self.per_step is not None:
            boolean(per_step=self.per_step)
        boolean(sort=self.sort)
        boolean(scale=self.scale)
        seed_of_bits(32, split_seed=self.split_seed)  # all that NumPy's RandomState takes
        fractions_of(self.split)
        if self.time is None and (self.time_unit is not None or self.sort):
            raise ArgumentError("time_unit and sort are for a column of times. Name it as time.")
        one_of((BY_ID, BY_TIME), split_by=self.split_by)
        if self.split_by == BY_TIME and (self.group is not None or self.split_seed):
            name = "split_seed" if self.group is None else "group"
            raise ArgumentError(
                f"{name} is for a draw of ids, and split_by='time' draws none: it cuts each of "
                "them. Leave one of the two out."
            )

    @property
    def otherwise(self) -> str:
        """How to split otherwise, for a message."""
        if self.split_by == BY_TIME:
            return "at other fractions (--split)"
        return "with another split_seed (--split-seed)"
