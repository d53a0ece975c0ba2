"""What a table's numbers meant before they were scaled, and which rows went where."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from tauflow.errors import ArgumentError

from .options import TableOptions

GAP_AHEAD = "gap ahead"
"""Name of the input that says how far the row to predict is away."""
MEASURED = "{} measured"
"""Name of the input that says whether a feature was measured."""


@dataclass(frozen=True, eq=False)
class TableInfo:
    """What is known of a table beyond its batches.

    Args:
        task: ``"classification"``, ``"regression"`` or ``"next-step"``.
        ids: ids of ``"train"``, ``"valid"`` and ``"test"``, in the order of their sequences. An id
            that was cut by time is in several.
        inputs: name of every input of x: features first, then what was added to them.
        x_mean: of every input, over the training part, (I,).
        x_scale: its standard deviation there, (I,): x is (value - mean) / scale.
        outputs: name of every target value, or of every class.
        y_mean: as ``x_mean``, of every target value, (O,); ``None`` for classes.
        y_scale: as ``x_scale``.
        options: how the table was read, with its features named and its task decided.
        dated: whether its times were dates, and not numbers.
    """

    task: str
    ids: Mapping[str, tuple[str, ...]]
    inputs: tuple[str, ...]
    x_mean: Tensor
    x_scale: Tensor
    outputs: tuple[str, ...]
    y_mean: Tensor | None = None
    y_scale: Tensor | None = None
    options: TableOptions = field(kw_only=True)
    dated: bool = field(kw_only=True)

    def unscale(self, y: Tensor) -> Tensor:
        """Return targets or predictions, (..., O), in the units of the table.

        Raises:
            ArgumentError: the targets are classes.
        """
        if self.y_mean is None or self.y_scale is None:
            raise ArgumentError(
                "unscale: the targets are classes, which have no scale. Take the largest logit: "
                "outputs[prediction.argmax(-1)]."
            )
        return y * self.y_scale.to(y) + self.y_mean.to(y)

    def unscale_inputs(self, x: Tensor) -> Tensor:
        """Return inputs, (..., I), in the units of the table; the mean where not observed."""
        return x * self.x_scale.to(x) + self.x_mean.to(x)
