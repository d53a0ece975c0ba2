"""How wide the predictions of a model are, whatever its head is."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tauflow.errors import ExportError
from tauflow.models import SequenceModel


@torch.no_grad()
def compute_head_width(model: SequenceModel, axes: Sequence[int], like: Tensor) -> int:
    """Return the width O of what a model's head gives for (*axes, H).

    Args:
        model: in evaluation mode.
        axes: sizes of the axes before the last one.
        like: a tensor of the model's dtype, on its device.

    Raises:
        ExportError: the head takes no such input, or gives something other than (*axes, O).
    """
    probe = like.new_zeros(*axes, model.rnn.output_size)
    kind, given = type(model.head).__name__, tuple(probe.shape)
    try:
        y: object = model.head(probe)
    except (RuntimeError, TypeError, ValueError, LookupError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ExportError(
            f"the head, a {kind}, does not take outputs of the body of shape {given}: {reason} "
            "Export the body, model.rnn, by itself, or give the model a head that works on the "
            "last axis alone."
        ) from error
    if not isinstance(y, Tensor) or tuple(y.shape[:-1]) != tuple(axes) or y.ndim == 0:
        found = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ExportError(
            f"the head, a {kind}, makes {found} of outputs of the body of shape {given}, expected "
            f"({', '.join(map(str, axes))}, O). Give the model a head that works on the last axis "
            "alone."
        )
    return y.shape[-1]
