"""How to train: the optimizer, its schedule, clipping, batches and selection, as checked data."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

from tauflow.checks import at_least, one_of
from tauflow.errors import ArgumentError, SpecificationError
from tauflow.recorded import python_number
from tauflow.registry import nearest


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training protocol.

    ``None`` stands for "the optimizer's own default", or for "not used". An option that the rest of
    the recipe would ignore is refused, so that a recipe says what happens and nothing else.

    Args:
        optimizer: ``"adam"``, ``"adamw"``, ``"adamax"`` or ``"rmsprop"``.
        lr: base learning rate.
        betas: decay rates of the two moments of the Adam family, each in [0, 1).
        eps: added to the denominator of the update. PyTorch and TensorFlow 1 use 1e-8, Keras 1e-7.
        rho: decay rate of RMSprop's average, in [0, 1). PyTorch uses 0.99, Keras 0.9.
        weight_decay: the optimizer's own decay: decoupled for AdamW, added to the gradient else.
        l2: factor of the sum of squares, added to the loss, of the tensors that the modules of the
            model list in ``l2_parameters()``.
        schedule: ``"constant"`` or ``"exponential"``.
        decay: factor on the learning rate per epoch, in (0, 1]; for ``"exponential"``.
        schedule_interval: ``"epoch"``: lr * decay^e in the e-th epoch, counted from 0. ``"step"``:
            lr * decay^(s / floor(n / batch_size)) at step s, counted from 0, with n training
            sequences.
        min_lr: floor of a decaying learning rate.
        clip: ``"none"``; ``"norm"``: the gradient as a whole; ``"per_tensor"``: the gradient of
            each parameter separately (``clipnorm`` in Keras), and of each tensor that a parameter
            packs, where its module says so (:func:`~tauflow.training.packed_parts`).
        clip_norm: largest norm that clipping leaves alone.
        epochs: passes over the training data.
        batch_size: sequences per step.
        drop_last: leave out the last batch of an epoch if it is smaller.
        shuffle: draw a new order of the training sequences in every epoch.
        class_weights: what an error on each class counts, beginning with class 0; for losses of
            classes.
        class_weight_mean: what the weighted loss of a batch is divided by: ``"weights"``, their
            sum, as in PyTorch, the default; or ``"entries"``, their number.
        curriculum: numbers of steps, increasing: the first stage trains on so many first steps of
            every sequence, the next on the next number, and what epochs remain on whole sequences.
            A stage continues from the weights of the one before, with a new optimizer. Evaluation
            is always on whole sequences; an epoch before the last stage whose scores overflow there
            is not selected.
        curriculum_epochs: epochs of each of these stages.
        select: ``"best"``: the weights with the best validation metric, the earliest if several
            tie; ``"last"``: those after the last epoch.
        select_by: name of the metric that is to be best; by default the reported one.
        patience: epochs without a better score after which training stops early; those of the
            stages of a curriculum do not count. Needs ``select="best"``.
        score_last_epoch: whether the weights after the last epoch may be selected. ``False``
            reproduces scripts that evaluate at the start of an epoch.
        on_divergence: what to do when the loss, a score or a parameter is no longer finite:
            ``"raise"``, or ``"stop"`` and keep the best epoch so far, if there is one.
        eval_batch_size: sequences per step of an evaluation.

    Raises:
        ArgumentError: a value is outside its range, or two options contradict each other.
        UnknownNameError: a choice does not exist.
    """

    optimizer: str = "adam"
    lr: float = 1e-3
    betas: tuple[float, float] | None = None
    eps: float | None = None
    rho: float | None = None
    weight_decay: float = 0.0
    l2: float = 0.0
    schedule: str = "constant"
    decay: float | None = None
    schedule_interval: str = "epoch"
    min_lr: float | None = None
    clip: str = "none"
    clip_norm: float | None = None
    epochs: int = 100
    batch_size: int = 64
    drop_last: bool = False
    shuffle: bool = True
    class_weights: tuple[float, ...] | None = None
    class_weight_mean: str | None = None
    curriculum: tuple[int, ...] | None = None
    curriculum_epochs: int | None = None
    select: str = "best"
    select_by: str | None = None
    score_last_epoch: bool = True
    on_divergence: str = "raise"
    eval_batch_size: int = 512
    patience: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, python_number(getattr(self, field.name)))
        self._check_choices()
        self._check_numbers()
        self._check_pairs()

    def _check_choices(self) -> None:
        one_of(("adam", "adamw", "adamax", "rmsprop"), optimizer=self.optimizer)
        one_of(("constant", "exponential"), schedule=self.schedule)
        one_of(("epoch", "step"), schedule_interval=self.schedule_interval)
        one_of(("none", "norm", "per_tensor"), clip=self.clip)
        one_of(("best", "last"), select=self.select)
        one_of(("raise", "stop"), on_divergence=self.on_divergence)
        if self.class_weight_mean is not None:
            one_of(("weights", "entries"), class_weight_mean=self.class_weight_mean)
        for name in ("drop_last", "shuffle", "score_last_epoch"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(f"{name} must be True or False, got {getattr(self, name)!r}.")

    def _check_numbers(self) -> None:
        at_least(1, epochs=self.epochs)
        at_least(1, batch_size=self.batch_size)
        at_least(1, eval_batch_size=self.eval_batch_size)
        if self.patience is not None:
            at_least(1, patience=self.patience)
        _number("lr", self.lr, above=0.0)
        ranges: dict[str, dict[str, float]] = {
            "weight_decay": {"low": 0.0},
            "l2": {"low": 0.0},
            "eps": {"above": 0.0},
            "rho": {"low": 0.0, "below": 1.0},
            "decay": {"above": 0.0, "high": 1.0},
            "min_lr": {"low": 0.0, "high": self.lr},
            "clip_norm": {"above": 0.0},
        }
        for name, limits in ranges.items():
            if getattr(self, name) is not None:
                _number(name, getattr(self, name), **limits)
        if self.betas is not None:
            if not isinstance(self.betas, tuple) or len(self.betas) != 2:
                raise ArgumentError(f"betas must be a tuple of two numbers, got {self.betas!r}.")
            for beta in self.betas:
                _number("betas", beta, low=0.0, below=1.0)
        if self.class_weights is not None:
            self._check_class_weights(self.class_weights)
        if self.curriculum is not None:
            self._check_curriculum(self.curriculum)

    def _check_class_weights(self, weights: tuple[float, ...]) -> None:
        if not isinstance(weights, tuple) or len(weights) < 2:
            raise ArgumentError(f"class_weights must be one number per class, got {weights!r}.")
        for weight in weights:
            _number("class_weights", weight, above=0.0)

    def _check_curriculum(self, steps: tuple[int, ...]) -> None:
        if not isinstance(steps, tuple) or not steps:
            raise ArgumentError(f"curriculum must be a tuple of step counts, got {steps!r}.")
        for count in steps:
            at_least(1, curriculum=count)
        if any(later <= sooner for sooner, later in pairwise(steps)):
            raise ArgumentError(f"curriculum must increase, got {steps!r}. Sort the step counts.")
        if self.curriculum_epochs is not None:
            at_least(1, curriculum_epochs=self.curriculum_epochs)

    def _check_pairs(self) -> None:
        if self.betas is not None and self.optimizer == "rmsprop":
            raise ArgumentError("betas belong to Adam, but optimizer='rmsprop'. Use rho instead.")
        if self.rho is not None and self.optimizer != "rmsprop":
            raise ArgumentError(
                f"rho belongs to RMSprop, but optimizer={self.optimizer!r}. Use betas instead."
            )
        if (self.schedule == "exponential") != (self.decay is not None):
            raise ArgumentError(
                f"schedule={self.schedule!r} contradicts decay={self.decay!r}. "
                "Give a decay with schedule='exponential', and only then."
            )
        if self.min_lr is not None and self.decay is None:
            raise ArgumentError("min_lr is the floor of a decay; give a decay, or leave it out.")
        if self.class_weight_mean is not None and self.class_weights is None:
            raise ArgumentError(
                "class_weight_mean needs class_weights; give them, or leave it out."
            )
        if (self.curriculum is None) != (self.curriculum_epochs is None):
            raise ArgumentError(
                f"curriculum={self.curriculum!r} contradicts "
                f"curriculum_epochs={self.curriculum_epochs!r}. Give both, or none."
            )
        if (self.clip != "none") != (self.clip_norm is not None):
            raise ArgumentError(
                f"clip={self.clip!r} contradicts clip_norm={self.clip_norm!r}. "
                "Give a clip_norm with clip='norm' or 'per_tensor', and only then."
            )
        self._check_selection()

    def _check_selection(self) -> None:
        if self.on_divergence == "stop" and self.select == "last":
            raise ArgumentError("on_divergence='stop' keeps the best epoch; set select='best'.")
        if self.patience is not None and self.select == "last":
            raise ArgumentError("patience waits for a better score; set select='best'.")
        if self.select_by is not None and self.select == "last":
            raise ArgumentError("select='last' selects by no metric; leave select_by out.")
        if not self.score_last_epoch and (self.select == "last" or self.epochs < 2):
            raise ArgumentError(
                "score_last_epoch=False leaves no epoch to select with "
                f"select={self.select!r} and epochs={self.epochs}. "
                "Set select='best' and epochs to at least 2."
            )

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> "Recipe":
        """Build a recipe from a table, as read from TOML or JSON.

        Raises:
            SpecificationError: a key is not a field of the recipe.
        """
        known = [field.name for field in fields(cls)]
        for key in options:
            if key not in known:
                raise SpecificationError(
                    f"a recipe has no option {key!r}.{nearest(key, known)} "
                    f"Known: {', '.join(known)}."
                )
        values = dict(options)
        for key, value in values.items():
            if isinstance(value, list):  # TOML and JSON have no tuples
                values[key] = tuple(value)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return every field as JSON can hold it; :meth:`from_dict` reads it back."""
        values = asdict(self)
        return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


def _number(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    above: float = -math.inf,
    high: float = math.inf,
    below: float = math.inf,
) -> None:
    """Refuse anything but a finite number with low <= value <= high and above < value < below."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if numeric and low <= value <= high and above < value < below:  # type: ignore[operator]
        return
    limits = [
        f"{sign} {limit:g}"
        for sign, limit in ((">=", low), (">", above), ("<=", high), ("<", below))
        if math.isfinite(limit)
    ]
    raise ArgumentError(f"{name} must be a finite number {' and '.join(limits)}, got {value!r}.")
