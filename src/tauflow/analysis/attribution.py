r"""Attribution of an output to inputs and times: integrated gradients and occlusion.

Integrated gradients follow a straight path from a baseline :math:`x'` to the input :math:`x`,

.. math::
    a_i = (x_i - x'_i) \int_0^1 \frac{\partial F(x' + \alpha (x - x'))}{\partial x_i} \, d\alpha,
    \qquad \sum_i a_i = F(x) - F(x')

The second equation is called completeness; what numerical integration misses of it is the residual.

Source: Sundararajan et al. 2017, "Axiomatic attribution for deep networks", Eq. 1; Zeiler and
Fergus 2014, "Visualizing and understanding convolutional networks", for occlusion.

Differs from the source: the integral is taken by Gauss-Legendre quadrature on more and more panels
until completeness holds, as the path of a recurrent network may be steep in places; and what
occlusion puts in the place of a value is the last value before it, for irregular sequences.
"""

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_one_of, check_positive
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch, check_batch, check_finite_batch
from tauflow.data.imputation import forward_fill
from tauflow.errors import ArgumentError, ShapeError

Answer = Callable[[SequenceBatch], Tensor]
"""A differentiable function of a batch that gives one number per sequence, (B,)."""
REMOVALS = ("value", "measurement")
"""What occlusion removes: a value, or the fact that there is one."""
_NODES = 16  # of a panel
_BATCH_SIZE = 512
_MAX_ELEMENTS = 1 << 22


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contributions of inputs to one output per sequence.

    Args:
        values: contribution of every input at every step, in the unit of the output.
        outputs: the output.
        baseline_outputs: the output at the baseline.
    """

    values: Float[Tensor, "B T I"]
    outputs: Float[Tensor, " B"]
    baseline_outputs: Float[Tensor, " B"]

    @property
    def residuals(self) -> Float[Tensor, " B"]:
        """Differences of the outputs less the sums of contributions, 0 where completeness holds."""
        return self.outputs - self.baseline_outputs - self.values.sum((1, 2))


def integrated_gradients(
    answer: Answer,
    batch: SequenceBatch,
    *,
    baseline: Float[Tensor, " I"] | float = 0.0,
    inputs: Bool[Tensor, " I"] | None = None,
    tolerance: float = 0.01,
    max_steps: int = 1024,
) -> Attribution:
    """Return contributions of inputs, by integrated gradients.

    Times, masks and which inputs were measured are held fixed. Missing inputs contribute nothing.
    The first output of a model after the last sample::

        def answer(batch):
            prediction, _ = model(batch.x, dt=batch.dt, mask=batch.mask)
            return prediction[:, -1, 0]

        integrated_gradients(answer, SequenceBatch(x, y, dt)).values  # (B, T, I)

    Args:
        answer: function of a batch that returns one number per sequence, such as the logit of a
            class.
        batch: the sequences.
        baseline: value of each input from which contributions are counted; 0 is the mean of scaled
            inputs.
        inputs: which inputs to attribute to; the others are held fixed. By default all.
        tolerance: largest residual, as a part of the sum of the absolute contributions.
        max_steps: gradients to take at most in one quadrature; at least 16 are taken.

    Raises:
        ArgumentError: ``answer`` is a module.
        DataError: a measured input, or a time step, is not finite.
        DtypeError: ``batch`` is no batch.
        ShapeError: ``answer`` does not give one number per sequence.

    Warns:
        UserWarning: the residual of some sequences is above the tolerance.
    """
    _check_answer("integrated_gradients", answer)
    check_batch("integrated_gradients: batch", batch)
    check_finite_batch("integrated_gradients' batch", batch)
    check_positive(tolerance=tolerance)
    check_at_least(1, max_steps=max_steps)
    x = batch.x.detach()
    is_measured = batch.valid.unsqueeze(-1)
    is_measured = is_measured if batch.observed is None else is_measured & batch.observed
    moving = is_measured if inputs is None else is_measured & inputs.to(is_measured.device)
    difference = torch.where(moving, x - baseline, torch.zeros_like(x))
    start = x - difference
    with torch.no_grad():
        outputs = _call(answer, batch)
        baseline_outputs = _call(answer, replace(batch, x=start))
    panels = 1
    while True:
        values = difference * _average_gradient(answer, batch, start, difference, panels)
        attribution = Attribution(values, outputs, baseline_outputs)
        missed = attribution.residuals.abs() > tolerance * values.abs().sum((1, 2))
        if not bool(missed.any()) or 2 * panels * _NODES > max_steps:
            break
        panels *= 2
    if bool(missed.any()):
        warnings.warn(
            f"integrated gradients: the contributions of {int(missed.sum())} of "
            f"{format_count(len(batch), 'sequence')} miss more than {tolerance:.0%} of what "
            "they should add up to, after "
            f"{format_count(panels * _NODES, 'step')}. Raise max_steps.",
            UserWarning,
            stacklevel=2,
        )
    return attribution


def _average_gradient(
    answer: Answer, batch: SequenceBatch, start: Tensor, difference: Tensor, panels: int
) -> Tensor:
    """Return the mean of the gradient along the straight path, (B, T, I)."""
    total = torch.zeros_like(start)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    for panel in range(panels):
        for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
            share = (panel + 0.5 * (node + 1)) / panels
            with torch.enable_grad():
                point = (start + share * difference).requires_grad_()
                answers = _call(answer, replace(batch, x=point)).sum()
                (gradient,) = torch.autograd.grad(answers, point, allow_unused=True)
            if gradient is not None:
                total += 0.5 * weight / panels * gradient
    return total


@torch.no_grad()
def occlusion(
    answer: Answer,
    batch: SequenceBatch,
    *,
    remove: str = REMOVALS[0],
    groups: Sequence[Sequence[int]] | None = None,
    static: Collection[int] = (),
    unmasked: Collection[int] = (),
) -> Float[Tensor, "B T G"]:
    """Return the decrease of an output when measured inputs are removed one at a time.

    Args:
        answer: function of a batch that returns one number per sequence, see
            :func:`integrated_gradients`.
        batch: the sequences; x is 0 where an input is missing.
        remove: ``"value"``: the last value before it in the same sequence, and 0 before the first,
            takes its place, still as a measured one; ``"measurement"``: it is missing.
        groups: inputs that are removed together, such as those of one category. By default each
            input is one group.
        static: numbers of groups that are constant in a sequence. They are removed at all steps at
            once, and the result stands at the first step where they are measured.
        unmasked: numbers of groups that ``observed`` does not mark as missing: they are 0 then.

    Returns:
        Output less the output without the input; 0 where nothing was measured.

    Raises:
        ArgumentError: ``answer`` is a module.
        DataError: a measured input, or a time step, is not finite.
        DtypeError: ``batch`` is no batch.
        ShapeError: ``answer`` does not give one number per sequence.
        UnknownNameError: nothing can be removed so.
    """
    _check_answer("occlusion", answer)
    check_batch("occlusion: batch", batch)
    check_finite_batch("occlusion's batch", batch)
    check_one_of(REMOVALS, remove=remove)
    groups = [[place] for place in range(batch.x.shape[2])] if groups is None else groups
    is_measured = batch.valid.unsqueeze(-1).expand_as(batch.x)
    is_measured = is_measured if batch.observed is None else is_measured & batch.observed
    previous = _shift_values(batch.x, is_measured)
    effects = batch.x.new_zeros(*batch.x.shape[:2], len(groups))
    if remove != REMOVALS[0]:
        batch = replace(batch, observed=is_measured)
    for row in range(len(batch)):
        sequence = batch[row]
        reference = _call(answer, sequence)
        for cells in _iter_cells(is_measured[row], groups, static):
            changed = sequence[[0] * len(cells)]
            for copy, (step, group) in enumerate(cells):
                place = slice(None) if group in static else slice(step, step + 1)
                inputs = list(groups[group])
                if remove == REMOVALS[0]:
                    changed.x[copy, place, inputs] = previous[row, step, inputs]
                else:
                    changed.x[copy, place, inputs] = 0.0
                    if group not in unmasked:
                        assert changed.observed is not None  # set above
                        changed.observed[copy, place, inputs] = False
            effect = (reference - _call(answer, changed)).to(effects.dtype)
            steps, of = (list(numbers) for numbers in zip(*cells, strict=True))
            effects[row, steps, of] = effect
    return effects


def _shift_values(x: Tensor, observed: Tensor) -> Tensor:
    """Return the last value measured before each step, 0 before the first, (B, T, I)."""
    shifted = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    known = torch.cat([torch.zeros_like(observed[:, :1]), observed[:, :-1]], 1)
    return forward_fill(shifted, known, None)


def _iter_cells(
    observed: Tensor, groups: Sequence[Sequence[int]], static: Collection[int]
) -> Iterator[list[tuple[int, int]]]:
    """Yield steps and groups to remove from one sequence, so many as fit in one batch."""
    cells = []
    for group, inputs in enumerate(groups):
        steps = observed[:, list(inputs)].any(-1).nonzero().flatten().tolist()
        cells += [(step, group) for step in (steps[:1] if group in static else steps)]
    size = max(1, min(_BATCH_SIZE, _MAX_ELEMENTS // observed.numel()))
    for start in range(0, len(cells), size):
        yield cells[start : start + size]


def _check_answer(where: str, answer: Answer) -> None:
    if isinstance(answer, nn.Module):
        raise ArgumentError(
            f"{where}: answer is a function of a batch that returns one number per sequence, got "
            f"the module {type(answer).__name__}. Choose one of its outputs: lambda batch: "
            "model(batch.x, dt=batch.dt, mask=batch.mask)[0][:, -1, 0]"
        )


def _call(answer: Answer, batch: SequenceBatch) -> Tensor:
    output = answer(batch)
    if output.shape != (len(batch),):
        raise ShapeError(
            f"the answer to explain has shape {tuple(output.shape)}, expected ({len(batch)},): one "
            "number per sequence. Choose one output, and one step of it."
        )
    return output
