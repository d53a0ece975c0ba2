r"""Lower bounds on the growth of trajectory lengths, beside lengths that were measured.

With width k, layer d, computational depth L, and the base

.. math::
    b(s) = \frac{s \sqrt{k}}{\sqrt{\sigma_w^2 + \sigma_b^2 + k \sqrt{\sigma_w^2 + \sigma_b^2}}}

the expected length of the latent trajectory of layer d is claimed to be at least

.. math::
    \text{neural ODE:} \quad & b(\sigma_w)^{dL}\; l(I) \\
    \text{CT-RNN:} \quad & b(\sigma_w - \sigma_b)^{dL}\; l(I) \\
    \text{LTC:} \quad & b(\sigma_w)^{dL}
        \left(\sigma_w + \frac{\lVert z \rVert}{\min(\delta t, L)}\right) l(I)

up to a constant that the paper does not give and that is 1 here.

Source: Hasani et al. 2021, "Liquid Time-constant Networks", Theorems 4 and 5. The 2020 draft has
the exponent d in place of d L for the LTC; so has the released code, which multiplies the norm of z
by min(1 / L, 1 / T) with T input samples where the papers divide by min(delta t, L).

These are asymptotic statements with heuristic steps (the proof of Theorem 5 subtracts a lower bound
and then adds it), for hard-tanh networks without recurrent synapses, inputs with perpendicular
progress and weights from N(0, sigma_w^2 / k). A measured length below the bound refutes nothing but
the constant, and one above proves nothing. For neural ODEs and CT-RNNs measured lengths are above;
for LTCs they are far below both printed forms, as dividing by a small delta t makes these large.
"""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_one_of, check_within

from .random_networks import MODEL_NAMES
from .trajectory_length import TrajectoryLengths

STATEMENTS: tuple[str, ...] = ("aaai", "draft", "released")
"""Forms of the LTC's bound."""


@dataclass(frozen=True, eq=False)
class LengthComparison:
    """Measured trajectory lengths and their lower bounds.

    Args:
        model: the model.
        statement: which form of Theorem 5.
        measured: length of every network's latent trajectory in each layer.
        bound: its lower bound, from that network's depth and latent norm.
    """

    model: str
    statement: str
    measured: Float[Tensor, "R n"]
    bound: Float[Tensor, "R n"]

    @property
    def share_above(self) -> Float[Tensor, " n"]:
        """Share of the networks whose length is at least the bound, layer by layer."""
        return (self.measured >= self.bound).double().mean(dim=0)


def length_lower_bound(
    model: str,
    *,
    width: int,
    weight_variance: float,
    bias_variance: float,
    depth: float,
    input_length: float,
    layer: int = 1,
    latent_norm: float = 0.0,
    samples: int = 100,
    time_step: float = 1.0,
    statement: str = "aaai",
) -> float:
    """Return the lower bound of Theorem 4 (neural ODE, CT-RNN) or 5 (LTC), with constant 1.

    Args:
        model: ``"neural-ode"``, ``"ct-rnn"`` or ``"ltc"``.
        width: neurons k per layer.
        weight_variance: sigma_w^2.
        bias_variance: sigma_b^2.
        depth: computational depth L.
        input_length: length of the input curve, l(I).
        layer: d, counted from 1.
        latent_norm: the norm of z; the LTC's bound only.
        samples: input samples T; the LTC's bound in its released form only.
        time_step: delta t between them; the LTC's bound only.
        statement: ``"aaai"`` (exponent d L for the LTC too), ``"draft"`` (its exponent is d) or
            ``"released"``.

    Returns:
        The bound; infinite where it is beyond the largest float. It is 0 for a CT-RNN with
        sigma_w below sigma_b, where the theorem says nothing.
    """
    check_one_of(MODEL_NAMES, model=model)
    check_one_of(STATEMENTS, statement=statement)
    check_at_least(1, width=width)
    check_at_least(1, layer=layer)
    for name, value in {"depth": depth, "input_length": input_length}.items():
        check_within(0.0, math.inf, **{name: value})
    sigma_w = math.sqrt(check_within(0.0, math.inf, weight_variance=weight_variance))
    sigma_b = math.sqrt(check_within(0.0, math.inf, bias_variance=bias_variance))
    total = weight_variance + bias_variance
    scale = sigma_w - sigma_b if model == "ct-rnn" else sigma_w
    if scale <= 0:
        return 0.0
    base = scale * math.sqrt(width) / math.sqrt(total + width * math.sqrt(total))
    exponent = layer * depth if model != "ltc" or statement == "aaai" else float(layer)
    factor = input_length
    if model == "ltc":
        released = statement == "released"
        share = 1 / max(depth, samples) if released else 1 / max(min(time_step, depth), 1e-300)
        factor *= sigma_w + latent_norm * share
    growth = exponent * math.log(base)
    return factor * math.exp(growth) if growth < 700 else math.inf


def compare_with_bounds(result: TrajectoryLengths, *, statement: str = "aaai") -> LengthComparison:
    """Compare measured lengths with their bounds.

    The depth L of each network is counted as the released code does, its latent norm is the mean
    distance of the trajectory from its centre, and delta t the spacing of the input samples.

    Args:
        result: lengths of random networks.
        statement: one of :data:`STATEMENTS`.
    """
    law, depth, samples = result.law, result.depth(), len(result.signal.t)
    bound = result.lengths.clone()
    for row in range(bound.shape[0]):
        for layer in range(bound.shape[1]):
            bound[row, layer] = length_lower_bound(
                result.model,
                width=law.width,
                weight_variance=law.weight_variance,
                bias_variance=law.bias_variance,
                depth=float(depth[row]),
                input_length=result.input_length,
                layer=layer + 1,
                latent_norm=float(result.latent_norm[row, layer]),
                samples=samples,
                time_step=result.signal.span / (samples - 1),
                statement=statement,
            )
    return LengthComparison(result.model, statement, result.lengths, bound)
