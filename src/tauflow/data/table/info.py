"""What is known of a table once it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from tauflow.data.imputation import IMPUTE_STRATEGIES
from tauflow.errors import ArgumentError

from .options import TEXT_LABELS, Categories, TableOptions


@dataclass(frozen=True, eq=False)
class TableInfo:
    """What is known of a table beyond its batches.

    Args:
        task: ``"classification"``, ``"regression"`` or ``"next-step"``.
        ids: ids of ``"train"``, ``"valid"`` and ``"test"``, in the order of their sequences. An id
            that was cut by time is in several.
        inputs: name of every input of x: features first, then what was added to them.
        x_mean: of every input, over the training part, (I,).
        x_scale: its standard deviation there, (I,): x is (value - mean) / scale; 0 of an input that
            was constant there, which is 0 whatever its value.
        outputs: name of every target value, or of every class.
        y_mean: as ``x_mean``, of every target value, (O,); ``None`` for classes.
        y_scale: as ``x_scale``, but 1 of a constant.
        options: how the table was read, with its features named and its task decided.
        dated: whether its times were dates, and not numbers.
        unit: what its times are counted in: that of numbers, hours or what was asked for of dates.
        gap: how many of them a gap of 1 in the batches is; of any table that is read alike, too.
        ahead: of a forecast, how many of them a row is ahead on average, or over a horizon in the
            median.
        categories: columns of text, each with its categories in the training part.
        unseen: columns of text with the categories that only the other parts had: all inputs of the
            column are 0 there.
        variables: of a long table.
        kind: of classes, what they are in the table (``outputs`` has their names): ``"texts"``,
            ``"booleans"``, ``"whole numbers"`` or ``"numbers"``.
        groups: of each id of the test part, its group, where groups were given.
        named: whether the user named the features, so that what else is in a table is not read.
        fill: where inputs say what was measured, what stands for a missing value: the ``"last"``
            one of the sequence, or the ``"mean"``, as it was before there was a choice.
    """

    task: str
    ids: Mapping[str, tuple[str, ...]] = field(repr=False)
    inputs: tuple[str, ...]
    x_mean: Tensor
    x_scale: Tensor
    outputs: tuple[str, ...]
    y_mean: Tensor | None = None
    y_scale: Tensor | None = None
    options: TableOptions = field(kw_only=True)
    dated: bool = field(kw_only=True)
    unit: str = field(default="row", kw_only=True)
    gap: float = field(default=1.0, kw_only=True)
    ahead: float | None = field(default=None, kw_only=True)
    categories: Categories = field(default=(), kw_only=True)
    unseen: Categories = field(default=(), kw_only=True)
    variables: tuple[str, ...] = field(default=(), kw_only=True)
    kind: str = field(default=TEXT_LABELS, kw_only=True)
    named: bool = field(default=False, kw_only=True)
    groups: Mapping[str, str] = field(default_factory=dict, repr=False, kw_only=True)
    fill: str = field(default=IMPUTE_STRATEGIES[1], kw_only=True)

    def unscale(self, y: Tensor) -> Tensor:
        """Return targets or predictions, (..., O), in the units of the table.

        In double precision: in single, values near 1e8 lie 8 apart.

        Raises:
            ArgumentError: the targets are classes.
        """
        if self.y_mean is None or self.y_scale is None:
            raise ArgumentError(
                "unscale: the targets are classes, which have no scale. Take the largest logit: "
                "outputs[prediction.argmax(-1)]."
            )
        return _inverse_transform(y, self.y_mean, self.y_scale)

    def unscale_inputs(self, x: Tensor) -> Tensor:
        """Return inputs, (..., I), as :meth:`unscale` does; the mean where not observed."""
        return _inverse_transform(x, self.x_mean, self.x_scale)


def _inverse_transform(values: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Return values, (..., C), that were scaled, on their own device."""
    if values.device.type == "mps":  # which has no double precision
        mean, scale = mean.float(), scale.float()
    return values * scale.to(values.device) + mean.to(values.device)
