"""Several targets of one model: what each of them is, and which of the outputs are its own."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

VALUE, CLASS, ORDINAL = "value", "class", "ordinal"
TARGET_KINDS = (VALUE, CLASS, ORDINAL)
MULTIOUTPUT = "multioutput"
"""The task of several targets, its loss, and what its targets are."""
_MIN_STEP = 1e-12  # between thresholds, of classes whose probability rounds to 0


class TargetSpec(NamedTuple):
    r"""One of several targets.

    A value has one output, the scaled value itself. Of classes the outputs say how probable each of
    the K classes is:

    * ``"class"``: K logits of a softmax; of two classes one logit, of the second.
    * ``"ordinal"``: a cumulative logit model (McCullagh 1980, "Regression Models for Ordinal
      Data"), :math:`P(y \le k \mid x) = \sigma(\theta_k(x))`, with K - 1 outputs :math:`o` that
      keep the thresholds in order: :math:`\theta_0 = o_0` and :math:`\theta_k = \theta_{k-1} +
      \mathrm{softplus}(o_k)`. Where only :math:`o_0` depends on x it is the proportional odds
      model.

    Args:
        name: of the column.
        kind: ``"value"``, ``"class"`` or ``"ordinal"``.
        classes: names of the classes, of an ordinal target in their order; ``()`` for a value.
        labels: what the classes are in the table, see :class:`tauflow.data.Schema`.
    """

    name: str
    kind: str = VALUE
    classes: tuple[str, ...] = ()
    labels: str = "texts"

    @property
    def size(self) -> int:
        """How many outputs a model has for it."""
        if self.kind == VALUE:
            return 1
        count = len(self.classes)
        return count - 1 if self.kind == ORDINAL or count == 2 else count

    def compute_log_probabilities(self, outputs: Tensor) -> Tensor:
        """Return the log-probability of every class, (..., K), of its outputs, (..., size)."""
        if self.kind == CLASS:
            if outputs.shape[-1] == 1:
                return F.logsigmoid(torch.cat([-outputs, outputs], -1))
            return outputs.log_softmax(-1)
        steps = torch.cat([outputs[..., :1], F.softplus(outputs[..., 1:])], -1)
        thresholds = steps.cumsum(-1)
        # P(y = k) is s(b) - s(a) for a = threshold k - 1 and b = threshold k, which is
        # s(b) s(-a) (1 - exp(a - b)); and 1 - exp(-softplus(o)) is s(o).
        below = F.pad(F.logsigmoid(thresholds), (0, 1))
        above = F.pad(F.logsigmoid(-thresholds), (1, 0))
        between = F.pad(F.logsigmoid(outputs[..., 1:]), (1, 1))
        return below + above + between

    def compute_outputs(self, logs: Tensor) -> Tensor:
        """Return the outputs, (..., size), that give log-probabilities, (..., K), all finite."""
        if self.kind == CLASS:
            return logs[..., 1:] - logs[..., :1] if self.size == 1 else logs
        above = logs.flip(-1).logcumsumexp(-1).flip(-1)
        thresholds = logs.logcumsumexp(-1)[..., :-1] - above[..., 1:]
        steps = thresholds.diff(dim=-1).clamp(min=_MIN_STEP)
        return torch.cat([thresholds[..., :1], steps + torch.log(-torch.expm1(-steps))], -1)

    def compute_error(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the squared error of y, (...), or minus the log-probability of its class."""
        if self.kind == VALUE:
            return (outputs[..., 0] - y).square()
        chosen = y.long().unsqueeze(-1)
        return -self.compute_log_probabilities(outputs).gather(-1, chosen).squeeze(-1)


def average_targets(specs: Sequence[TargetSpec], predictions: Tensor, log_share: Tensor) -> Tensor:
    """Return the mean of the predictions of M models: of values, and of probabilities of classes.

    Args:
        specs: the targets.
        predictions: outputs of the models, (M, ..., O).
        log_share: logarithm of how much each counts, of 1 in all, (M, 1, ...).
    """
    means = []
    for spec, own in zip(specs, split_outputs(specs, predictions.double()), strict=True):
        if spec.kind == VALUE:
            means.append((own * log_share.exp()).sum(0))
        else:
            logs = spec.compute_log_probabilities(own) + log_share
            means.append(spec.compute_outputs(logs.logsumexp(0)))
    return torch.cat(means, -1).to(predictions.dtype)


def count_outputs(specs: Sequence[TargetSpec]) -> int:
    """Return how many outputs a model of several targets has."""
    return sum(spec.size for spec in specs)


def split_outputs(specs: Sequence[TargetSpec], outputs: Tensor) -> tuple[Tensor, ...]:
    """Return the outputs of each target, (..., size), of those of all, (..., O)."""
    return torch.split(outputs, [spec.size for spec in specs], -1)
