"""What a data set is, and what loading one gives."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from tauflow._internal.checks import check_at_least, check_one_of, find_type_mismatch
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError

from .loaders import make_data_loader

if TYPE_CHECKING:
    from tauflow.tabular.schema import Schema

TASKS = ("regress", "classify", "binary")


@dataclass(frozen=True)
class DatasetCard:
    """Description of a data set: its task, its source and the protocol of its split.

    Args:
        name: name in the catalog.
        title: name for people, short enough for a plot's title.
        task: ``"regress"``, ``"classify"`` (integer classes) or ``"binary"`` (0 or 1, a logit for
            each of one or several labels).
        input_size: features per step; of images, their pixels times their channels.
        target_size: values, classes or logits that a model has to give.
        time_unit: what a time step of 1 means.
        sizes: number of training, validation and test sequences; 0 without a validation split.
        source: whose data these are, and who published the protocol.
        licence: under which terms the files, or the generated numbers, may be used.
        split: how the parts were made.
        loss: name of the loss to train with.
        metric: name of the metric to report.
        targets: a name for each of the ``target_size`` values, for plots; may be left out.
        per_step: whether there is a target at every step, rather than one per sequence.
        forecast: whether the targets are later values of the first ``target_size`` inputs, so that
            "nothing changes" is a prediction to compare with.
        horizon: of a forecast with one answer per sequence, how many rows after it that is for: the
            values of the first row come first; 0 for others.
        season: of a forecast, rows after which values come again; 0 if none is known.
        query_targets: of forecasts at times that are asked for, which inputs are forecast, by
            number. Sequences then end in queries, which the last input marks, see
            :class:`tauflow.models.ForecastModel`; ``()`` for others.
        query_horizon: longest time from the last sample to a query, in the unit of the time steps.
        query_periods: after which values come again, in that unit; ``None`` if unknown.
        query_gap: usual time between samples, in that unit.
        calendar_inputs: how many inputs before the last one follow from dates.
        image_size: (channels, height, width) of inputs that are images; ``None`` for features.
        folder: folder of the files under the data directory; empty for generated data.
        base_url: address that, with a file's name appended, serves that file; ends in a slash.
        files: SHA-256 of every file, by name; empty for a file without a published digest, so
            that the loader checks what it holds.
        repacked: SHA-256 of files that hold the same in another packing, by name. Where they lie in
            ``folder`` they do as well as ``files``; they have no address to download from.
        vocabulary: number of token ids, for data whose x holds an id per step, (B, T, 1) of
            integers, and is to be embedded; 0 for features.
        noncausal_options: options of the loader with the value that makes inputs of later samples
            too.
        static_inputs: numbers of the inputs with one value per sequence, such as the age.
        notes: what a reader of results must know: known leaks, and where paper and code disagree.
    """

    name: str
    title: str
    task: str
    input_size: int
    target_size: int
    time_unit: str
    sizes: tuple[int, int, int]
    source: str
    licence: str
    split: str
    loss: str
    metric: str
    targets: tuple[str, ...] = ()
    per_step: bool = True
    forecast: bool = False
    horizon: int = 0
    season: int = 0
    query_targets: tuple[int, ...] = ()
    query_horizon: float = 1.0
    query_periods: tuple[float, ...] | None = None
    query_gap: float = 1.0
    calendar_inputs: int = 0
    image_size: tuple[int, int, int] | None = None
    folder: str = ""
    base_url: str = ""
    files: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    repacked: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    vocabulary: int = 0
    noncausal_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    static_inputs: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_one_of(TASKS, task=self.task)
        check_at_least(1, input_size=self.input_size)
        check_at_least(1, target_size=self.target_size)
        check_at_least(0, vocabulary=self.vocabulary)
        if self.targets and len(self.targets) != self.target_size:
            raise ArgumentError(
                f"targets must name each of the {format_count(self.target_size, 'target value')}, "
                "got "
                f"{len(self.targets)}: {', '.join(self.targets)}. Name all of them, or none."
            )
        at_once = self.horizon or 1
        if self.forecast and self.target_size > self.input_size * at_once:
            raise ArgumentError(
                f"forecast=True says that targets are later values of the inputs, but there are "
                f"{format_count(self.target_size, 'target')} and "
                f"{format_count(self.input_size, 'input')}."
            )
        if self.image_size is not None and math.prod(self.image_size) != self.input_size:
            raise ArgumentError(
                f"input_size={self.input_size} is not that of images of {self.image_size}, "
                f"{math.prod(self.image_size)}."
            )


@dataclass(frozen=True, repr=False)
class TaskData:
    """A data set in memory.

    Args:
        card: its description.
        train: training split.
        valid: validation split, or ``None`` if the protocol has none.
        test: test split.
        schema: of a user's own table, how it was read, its scaling, and which ids are where.
    """

    card: DatasetCard
    train: SequenceBatch
    valid: SequenceBatch | None
    test: SequenceBatch
    schema: "Schema | None" = field(default=None, kw_only=True)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of training, validation and test sequences."""
        return len(self.train), 0 if self.valid is None else len(self.valid), len(self.test)

    def __repr__(self) -> str:
        """Show what it is, the shapes of its parts, and the notes: tensors would fill pages."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        lines = [f"{name}={part!r}" for name, part in parts.items() if part is not None]
        card = self.card
        head = (
            f"TaskData({card.name}: {card.task}, {card.target_size} from "
            f"{format_count(card.input_size, 'input')}"
        )
        notes = [f"- {note}" for note in card.notes]
        return "\n    ".join([head, *lines, *notes]) + ")"

    def to(self, device: Any) -> "TaskData":
        """Move every tensor to a device."""
        valid = None if self.valid is None else self.valid.to(device)
        return TaskData(
            self.card, self.train.to(device), valid, self.test.to(device), schema=self.schema
        )

    def loader(
        self,
        batch_size: int,
        split: str = "train",
        *,
        bucket_by_length: bool = False,
        shuffle: bool = False,
        drop_last: bool = False,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> DataLoader[SequenceBatch]:
        """Return PyTorch's loader of the batches of a part, for a training loop of one's own.

        Args:
            batch_size: sequences of a batch.
            split: ``"train"``, ``"valid"`` or ``"test"``.
            bucket_by_length: whether a batch's sequences are of like lengths, and end where the
                longest of them does, so that little is padding.
            shuffle: whether to draw the order of the sequences again in each epoch.
            drop_last: whether to leave out what does not fill a batch.
            generator: of the draws; torch's global one if ``None``.
            **options: of ``torch.utils.data.DataLoader``: ``num_workers``, ``pin_memory``, ...

        Raises:
            ArgumentError: there is no validation split.
        """
        data = getattr(self, check_one_of(("train", "valid", "test"), split=split))
        if data is None:
            raise ArgumentError(
                f"{self.card.name} has no validation split. Choose split='train' or split='test'."
            )
        return make_data_loader(
            data,
            batch_size,
            per_step=self.card.per_step,
            bucket_by_length=bucket_by_length,
            shuffle=shuffle,
            drop_last=drop_last,
            generator=generator,
            **options,
        )


def check_labels(specs: Iterable[Sequence[Any]]) -> None:
    """Raise ``TypeError`` unless several targets of older versions all have two classes."""
    if any(kind != "class" or len(classes) != 2 for _, kind, classes, *_ in specs):
        raise TypeError("several targets of different kinds, of which each takes a model today")


_OLD_FIELDS = {"looks_ahead": "noncausal_options"}
"""Names of fields in files of older versions."""


def card_to_dict(card: DatasetCard) -> dict[str, Any]:
    """Return the fields of a card as JSON gives them back: NumPy's numbers become Python's."""
    entries = {field.name: getattr(card, field.name) for field in fields(card)}
    known = {k: dict(v) if isinstance(v, Mapping) else v for k, v in entries.items()}
    plain: dict[str, Any] = json.loads(json.dumps(known, default=_to_json_value))
    return plain


def _to_json_value(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise ArgumentError(f"card: a {type(value).__name__}, {value!r}, cannot be stored as JSON.")


def card_from_dict(fields_by_name: Mapping[str, Any]) -> DatasetCard:
    """Return the card that :func:`card_to_dict` described; ``TypeError`` if they describe none."""
    values: dict[str, Any] = {
        _OLD_FIELDS.get(k, k): tuple(v) if isinstance(v, list) else v
        for k, v in fields_by_name.items()
    }
    if specs := values.pop("target_specs", ()):
        check_labels(specs)
        values |= {"task": "binary", "loss": "bce", "metric": "bce"}
    if wrong := find_type_mismatch(DatasetCard.__init__, values):
        raise TypeError(wrong)
    return DatasetCard(**values)
