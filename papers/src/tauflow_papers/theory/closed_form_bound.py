r"""How tight the closed form of a single neuron is, for any input: Lemma 1 of the CfC paper.

One neuron without self-connection, driven through one synapse with f between 0 and 1, has

.. math::
    x(t) = c\, e^{-w t - \int_0^t f(I(s)) ds} + A, \qquad
    \tilde x(t) = c\, e^{-(w + f(I(t)))\, t} f(-I(t)) + A, \qquad c = x(0) - A

exactly and approximately, where f(-I) = 1 - f(I) for a sigmoid. For every input

.. math::
    e^{-w t} (e^{-t} - 1) \le (x(t) - \tilde x(t)) / c \le e^{-w t}

and no bounds are closer. The ODE solved is :math:`\dot x = -(w + f)(x - A)`, whose leak pulls
towards A as well; that of a liquid time-constant network leaks towards 0, and these bounds are not
its own.

Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", Eq. 5, Lemma 1 and its
proof.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import (
    check_floating_point,
    check_one_of,
    check_positive,
    check_within,
    shape_error,
)
from tauflow.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class ClosedFormTightness:
    """A neuron's exact and approximate state, and the bounds on their difference.

    Args:
        t: time at the end of each time step.
        exact: x at these times.
        approximate: its closed form.
        error: (exact - approximate) / c.
        lower: lower bound of the error.
        upper: upper bound.
    """

    t: Float[Tensor, "B T"]
    exact: Float[Tensor, "B T"]
    approximate: Float[Tensor, "B T"]
    error: Float[Tensor, "B T"]
    lower: Float[Tensor, "B T"]
    upper: Float[Tensor, "B T"]

    @property
    def holds(self) -> bool:
        """Whether every error lies within its bounds, up to rounding."""
        slack = 16 * torch.finfo(self.error.dtype).eps
        return bool(((self.error >= self.lower - slack) & (self.error <= self.upper + slack)).all())


def closed_form_tightness(
    signal: Float[Tensor, "B T"],
    dt: Float[Tensor, "B T"],
    *,
    w: float = 1.0,
    x0: float = 1.0,
    A: float = 0.0,
    f: Callable[[Tensor], Tensor] = torch.sigmoid,
) -> ClosedFormTightness:
    """Compare the closed form with the exact state under inputs that are constant in each step.

    Args:
        signal: the input over each time step.
        dt: the time steps, 0 or more.
        w: rate of the leak, 0 or more, per unit of ``dt``.
        x0: state at the start.
        A: the synapse's reversal potential.
        f: the synapse, increasing, with values from 0 to 1.

    Raises:
        ArgumentError: f, of the signal or its negative, leaves the range from 0 to 1, or a time
            step is below 0.
    """
    check_floating_point("closed_form_tightness", signal=signal)
    if signal.ndim != 2 or dt.shape != signal.shape:
        raise shape_error(
            "closed_form_tightness", "dt", dt, f"(B, T) like signal, {tuple(signal.shape)}", ""
        )
    check_within(0.0, math.inf, w=w)
    if not bool((dt >= 0).all()):
        raise ArgumentError(
            f"closed_form_tightness: dt must be 0 or more, but its least is {float(dt.min()):g}. "
            "Sort the samples by time."
        )
    conducted, mirrored = both = f(signal), f(-signal)
    values = torch.stack(both)
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise ArgumentError(
            f"f has values from {float(values.min()):g} to {float(values.max()):g}; the "
            "bounds need values from 0 to 1. Scale it, e.g. use torch.sigmoid."
        )
    c = x0 - A
    t = dt.cumsum(dim=1)
    leak = torch.exp(-w * t)
    exact = leak * torch.exp(-(conducted * dt).cumsum(dim=1))
    approximate = leak * torch.exp(-conducted * t) * mirrored
    return ClosedFormTightness(
        t=t,
        exact=c * exact + A,
        approximate=c * approximate + A,
        error=exact - approximate,
        lower=leak * torch.expm1(-t),
        upper=leak,
    )


def worst_signal(
    t: float, *, bound: str = "upper", level: float = 30.0, last: float = 1e-9
) -> tuple[Float[Tensor, "1 2"], Float[Tensor, "1 2"]]:
    """Return an input whose error comes as close to a bound as one likes.

    It is shut (upper bound) or open (lower bound) all the time but a last instant, in which it is
    the opposite.

    Args:
        t: time of the last sample, above 0.
        bound: ``"upper"`` or ``"lower"``.
        level: size of the input; the larger, the closer.
        last: share of the time that the last instant takes; the smaller, the closer.

    Returns:
        The signal and its time steps, for :func:`closed_form_tightness`.
    """
    check_positive(t=t)
    check_within(0.0, 1.0, last=last)
    sign = 1.0 if check_one_of(("upper", "lower"), bound=bound) == "upper" else -1.0
    signal = torch.tensor([[-sign * level, sign * level]], dtype=torch.float64)
    return signal, torch.tensor([[t * (1 - last), t * last]], dtype=torch.float64)
