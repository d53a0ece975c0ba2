"""How to train: the optimizer, its schedule, clipping, batches and selection, as checked data."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tauflow._internal.checks import check_at_least, check_bool, check_one_of
from tauflow._internal.init_args import to_python_number
from tauflow._internal.json_io import to_lists
from tauflow._internal.registry import suggest_name
from tauflow.errors import ArgumentError, SpecificationError, TauflowError

from .class_weights import BALANCED
from .torch_registry import OPTIMIZERS, SCHEDULERS, has_option

LENGTH_DEPENDENT_SCHEDULES = ("cosine", "one_cycle")
"""Schedules that go over the whole training, and depend on how long it is."""
RHO_OPTIONS = {"rmsprop": "alpha", "adadelta": "rho"}
"""What optimizers call the decay rate of their average of squares."""
_DOWN_TO_MIN_LR = ("cosine", "plateau")
_OWN_SCHEDULES = ("constant", "exponential", *LENGTH_DEPENDENT_SCHEDULES, "plateau")
_CHOICES = {
    "autocast": ("bfloat16",),
    "schedule_interval": ("epoch", "step"),
    "clip": ("none", "norm", "per_tensor"),
    "select": ("best", "last"),
    "on_divergence": ("raise", "stop"),
    "class_weight_mean": ("weights", "entries"),
}
_MINIMA = {
    **dict.fromkeys(("epochs", "batch_size", "eval_batch_size", "accumulate", "patience"), 1),
    **{"curriculum_epochs": 1, "warmup_steps": 0},
}
_RANGES: dict[str, dict[str, float]] = {
    "lr": {"above": 0.0},
    "l2": {"low": 0.0},
    "decay": {"above": 0.0, "high": 1.0},
    "clip_norm": {"above": 0.0},
    "ema": {"above": 0.0, "below": 1.0},
}
_CONTRADICTIONS: tuple[tuple[Callable[["Recipe"], bool], str], ...] = (
    (
        lambda r: r.min_lr is not None and r.decay is None and r.schedule not in _DOWN_TO_MIN_LR,
        "min_lr is the floor of a decay; give a decay, or leave it out.",
    ),
    (
        lambda r: r.schedule == "plateau" and r.schedule_interval == "step",
        "schedule='plateau' looks at scores, once an epoch.",
    ),
    (
        lambda r: r.schedule in ("constant", "exponential", "cosine") and bool(r.schedule_options),
        "schedule={0.schedule!r} has no schedule_options.",
    ),
    (
        lambda r: (r.schedule == "exponential") != (r.decay is not None),
        "schedule={0.schedule!r} contradicts decay={0.decay!r}. Give a decay with "
        "schedule='exponential', and only then.",
    ),
    (
        lambda r: r.class_weight_mean is not None and r.class_weights is None,
        "class_weight_mean needs class_weights; give them, or leave it out.",
    ),
    (
        lambda r: (r.curriculum is None) != (r.curriculum_epochs is None),
        "curriculum={0.curriculum!r} contradicts curriculum_epochs={0.curriculum_epochs!r}. Give "
        "both, or none.",
    ),
    (
        lambda r: (r.clip != "none") != (r.clip_norm is not None),
        "clip={0.clip!r} contradicts clip_norm={0.clip_norm!r}. Give a clip_norm with clip='norm' "
        "or 'per_tensor', and only then.",
    ),
    (
        lambda r: r.patience is not None and r.select == "last",
        "patience waits for a better score; set select='best'.",
    ),
    (
        lambda r: r.select_by is not None and r.select == "last",
        "select='last' selects by no metric; leave select_by out.",
    ),
    (
        lambda r: not r.score_last_epoch and (r.select == "last" or r.epochs < 2),
        "score_last_epoch=False leaves no epoch to select with select={0.select!r} and "
        "epochs={0.epochs}. Set select='best' and epochs to at least 2.",
    ),
)
"""When options contradict each other, and what to say then."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyperparameters of a training run.

    ``None`` means the optimizer's default, or "not used". An option that the other options make
    ineffective raises an error, so a recipe holds only settings that have an effect. Options of
    optimizers and schedules are passed to PyTorch, which checks them when training begins.

    Args:
        optimizer: a class of ``torch.optim``, in lower case: ``"adam"``, ``"adamw"``, ``"sgd"``,
            ``"rmsprop"``, ``"nadam"``, ...
        lr: base learning rate; the highest of ``"one_cycle"``.
        betas: decay rates of the two moments of the Adam family, each in [0, 1).
        eps: added to the denominator of the update. PyTorch and TensorFlow 1 use 1e-8, Keras 1e-7.
        rho: decay rate of RMSprop's average, in [0, 1). PyTorch uses 0.99, Keras 0.9.
        weight_decay: the optimizer's own decay: decoupled for AdamW, added to the gradient else.
        l2: factor of the sum of squares, added to the loss, of the tensors that the modules of the
            model list in ``l2_parameters()``.
        schedule: ``"constant"``; ``"exponential"``; ``"cosine"``, from lr down to ``min_lr`` over
            all steps; ``"one_cycle"``, over all steps; ``"plateau"``, smaller when the validation
            score stands still, at epochs; or a class of ``torch.optim.lr_scheduler`` by its name,
            such as ``"StepLR"``, at epochs or steps as ``schedule_interval`` says.
        decay: factor on the learning rate per epoch, in (0, 1]; for ``"exponential"``.
        schedule_interval: ``"epoch"``: lr * decay^e in the e-th epoch, counted from 0. ``"step"``:
            lr * decay^(s / floor(n / batch_size)) at step s, counted from 0, with n training
            sequences. Of a class of PyTorch, when it takes a step.
        min_lr: floor of a decaying learning rate, of ``"cosine"`` and of ``"plateau"``.
        clip: ``"none"``; ``"norm"``: the gradient as a whole; ``"per_tensor"``: the gradient of
            each parameter separately (``clipnorm`` in Keras), and of each tensor that a parameter
            packs, where its module says so (:func:`~tauflow.training.packed_parts`).
        clip_norm: largest norm; larger gradients are scaled down to it.
        epochs: passes over the training data.
        batch_size: sequences per step.
        drop_last: leave out the last batch of an epoch if it is smaller.
        shuffle: draw a new order of the training sequences in every epoch.
        class_weights: weight of each class in the loss, beginning with class 0; or ``"balanced"``,
            inversely proportional to the number of its targets in the training split, as in
            scikit-learn. For losses of classes.
        class_weight_mean: what the weighted loss of a batch is divided by: ``"weights"``, their
            sum, as in PyTorch, the default; or ``"entries"``, their number.
        curriculum: numbers of steps: the first stage trains on that many first steps of
            every sequence, the second on the next number, and the remaining epochs use whole
            sequences. A stage continues from the weights of the previous one, with a new optimizer.
            Evaluation is always on whole sequences; an epoch before the last stage whose scores
            overflow is not selected.
        curriculum_epochs: epochs of each of these stages.
        select: ``"best"``: the weights with the best validation metric, the earliest if several
            tie; ``"last"``: those after the last epoch.
        select_by: name of the metric that selects the epoch; by default the reported metric.
        patience: epochs without a better score after which training stops early; those of the
            stages of a curriculum do not count. Needs ``select="best"``.
        score_last_epoch: whether the weights after the last epoch may be selected. ``False``
            reproduces scripts that evaluate at the start of an epoch.
        on_divergence: what to do when the loss, a score or a parameter is no longer finite:
            ``"raise"``, or ``"stop"`` and keep the best epoch so far, if there is one; the latter
            in one process alone.
        eval_batch_size: sequences per step of an evaluation.
        optimizer_options: further options of the optimizer, such as ``{"momentum": 0.9}`` of
            ``"sgd"``.
        schedule_options: options of ``"one_cycle"``, ``"plateau"`` or of the class of PyTorch.
        warmup_steps: steps before lr is reached, in equal parts: lr (s + 1) / (warmup_steps + 1) at
            step s, counted from 0. What follows every step begins after them.
        accumulate: batches whose gradients make up one step, as one batch of ``batch_size *
            accumulate`` sequences would, in less memory: each counts by its entries, or by their
            weights.
        autocast: ``"bfloat16"`` lets PyTorch's autocast run the training's forward passes in mixed
            precision; evaluation is in full precision.
        ema: decay of an exponential moving average of the weights, taken at every step, in (0, 1);
            the averaged weights are scored, selected and returned.

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
    class_weights: tuple[float, ...] | str | None = None
    class_weight_mean: str | None = None
    curriculum: tuple[int, ...] | None = None
    curriculum_epochs: int | None = None
    select: str = "best"
    select_by: str | None = None
    score_last_epoch: bool = True
    on_divergence: str = "raise"
    eval_batch_size: int = 512
    patience: int | None = None
    optimizer_options: Mapping[str, Any] | None = field(default=None, hash=False)
    schedule_options: Mapping[str, Any] | None = field(default=None, hash=False)
    warmup_steps: int = 0
    accumulate: int = 1
    autocast: str | None = None
    ema: float | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            object.__setattr__(self, part.name, to_python_number(getattr(self, part.name)))
        for name in ("optimizer_options", "schedule_options"):
            options = getattr(self, name)
            if options is not None and not isinstance(options, Mapping):
                raise ArgumentError(f"{name} must be a mapping of options, got {options!r}.")
            object.__setattr__(self, name, dict(options) if options else None)
        if isinstance(self.optimizer, str):
            object.__setattr__(self, "optimizer", self.optimizer.lower())
        check_one_of(OPTIMIZERS, optimizer=self.optimizer)
        if self.schedule not in _OWN_SCHEDULES:
            check_one_of((*_OWN_SCHEDULES, *SCHEDULERS), schedule=self.schedule)
        self._check_values()
        for is_wrong, message in _CONTRADICTIONS:
            if is_wrong(self):
                raise ArgumentError(message.format(self))

    def _check_values(self) -> None:
        """Refuse values that are out of range, of what is not passed to PyTorch."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        for name in ("drop_last", "shuffle", "score_last_epoch"):
            check_bool(**{name: getattr(self, name)})
        for name in _CHOICES.keys() & values.keys():
            check_one_of(_CHOICES[name], **{name: values[name]})
        for name in _MINIMA.keys() & values.keys():
            check_at_least(_MINIMA[name], **{name: values[name]})
        for name in _RANGES.keys() & values.keys():
            _check_number(name, values[name], **_RANGES[name])
        if self.min_lr is not None:
            _check_number("min_lr", self.min_lr, low=0.0, high=self.lr)
        self._check_lists()

    def _check_lists(self) -> None:
        if self.class_weights not in (None, BALANCED):
            if not isinstance(self.class_weights, tuple) or len(self.class_weights) < 2:
                raise ArgumentError(
                    f"class_weights must be {BALANCED!r} or a tuple of one number per class, got "
                    f"{self.class_weights!r}."
                )
            for weight in self.class_weights:
                _check_number("class_weights", weight, above=0.0)
        if self.curriculum is not None:
            steps = self.curriculum
            if not isinstance(steps, tuple) or not steps:
                raise ArgumentError(f"curriculum must be a tuple of step counts, got {steps!r}.")
            for count in steps:
                check_at_least(1, curriculum=count)

    @property
    def effective_batch_size(self) -> int:
        """Sequences per step."""
        return self.batch_size * self.accumulate

    def steps_per_epoch(self, sequences: int) -> int:
        """Return the steps of an epoch of so many training sequences."""
        full, rest = divmod(sequences, self.effective_batch_size)
        return full + bool(rest and not self.drop_last)

    def get_optimizer_kwargs(self) -> dict[str, Any]:
        """Return what the recipe's own fields say to the optimizer, in its words."""
        rho = RHO_OPTIONS.get(self.optimizer, "rho")
        settings = {"betas": self.betas, "eps": self.eps, rho: self.rho}
        options = {name: value for name, value in settings.items() if value is not None}
        decays = self.weight_decay or has_option(OPTIMIZERS[self.optimizer], "weight_decay")
        return options | ({"weight_decay": self.weight_decay} if decays else {})

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> "Recipe":
        """Build a recipe from a table, as read from TOML or JSON.

        Raises:
            SpecificationError: a key is not a field of the recipe.
        """
        for key in options:
            check_field_name(key, SpecificationError)
        values = dict(options)
        for key, value in values.items():
            if isinstance(value, list):  # TOML and JSON have no tuples
                values[key] = tuple(value)
        return cls(**values)

    def get_stage_length(self, epoch: int) -> int | None:
        """Return the steps of a sequence that an epoch, from 1, trains on; ``None`` for all."""
        if self.curriculum is None or self.curriculum_epochs is None:
            return None
        stage = (epoch - 1) // self.curriculum_epochs
        return self.curriculum[stage] if stage < len(self.curriculum) else None

    def begins_stage(self, epoch: int) -> bool:
        """Return whether an epoch, from 1, is the first of a further stage, or after the last."""
        if self.curriculum is None or self.curriculum_epochs is None:
            return False
        stage, epochs_before = divmod(epoch - 1, self.curriculum_epochs)
        return epochs_before == 0 and 0 < stage <= len(self.curriculum)

    def with_changes(self, changes: Mapping[str, Any]) -> "Recipe":
        """Return a recipe with other values of some fields, as read from TOML or JSON.

        Raises:
            SpecificationError: a key is not a field of the recipe.
        """
        return self.from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return every field as JSON can hold it; :meth:`from_dict` reads it back."""
        return {key: to_lists(value) for key, value in asdict(self).items()}


_FIELD_NAMES = tuple(field.name for field in fields(Recipe))


def check_field_name(name: str, error: type[TauflowError], where: str = "") -> None:
    """Raise ``error`` if no field of a recipe has this name.

    Args:
        name: of the setting.
        error: its type.
        where: what the message begins with, such as ``"my.toml: "``.
    """
    if name not in _FIELD_NAMES:
        near = (
            " Did you mean 'lr'?" if name == "learning_rate" else suggest_name(name, _FIELD_NAMES)
        )
        known = ", ".join(_FIELD_NAMES)
        raise error(f"{where}a recipe has no option {name!r}.{near} Known: {known}.")


def _check_number(
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
