"""What the compiled loops of the closed-form cells read and write.

Axes: T time, B batch, N neurons, U units of a backbone layer, L backbone layers, R width of what
the first layer reads at every step, F width of the first layer, K heads (4, or 1 in the pure form).
The first layer is the heads themselves if L is 0. Everything but outputs, gaps and masks is stored
with time first, so that a step of a slice of the batch is one block of memory.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .activation_codes import Phi

Array = Any  # numpy arrays of float32, which numba types by itself


class Form(NamedTuple):
    """Which closed form, and around which backbone.

    Args:
        layers: L.
        backbone: activation of the backbone.
        pure: whether h' is the pure form.
        phi: activation of the two state heads.
        blend: 1 if h' = phi(g) (1 - p) + phi(h) p; 0 if h' = phi(g) + phi(h) p.
        sign: of the time in the gate.
        time_bias: whether t_b exists; its place in memory does in any case, and holds t_a.
    """

    layers: int
    backbone: Phi
    pure: bool
    phi: Phi
    blend: np.float32
    sign: np.float32
    time_bias: bool


@cache
def form_numbers(form: Form) -> Array:
    """Return a form as an array, which costs Python far less to pass than nested tuples."""
    flat = (form.layers, *form.backbone, form.pure, *form.phi, form.blend, form.sign)
    return np.array([*flat, form.time_bias], np.float32)


class Weights(NamedTuple):
    """Parameters.

    Args:
        recurrent: (F, R), the columns of the first layer that multiply what changes in the loop.
        first_bias: (F,).
        deep: (L - 1, U, U), the other layers of the backbone.
        deep_bias: (L - 1, U).
        heads: (K N, U), without t_b (3 N, U); empty if L is 0.
        heads_bias: (K N,), or (3 N,).
        rate: (N,), |w_tau| of the pure form.
        amplitude: (N,), A of the pure form.
    """

    recurrent: Array
    first_bias: Array
    deep: Array
    deep_bias: Array
    heads: Array
    heads_bias: Array
    rate: Array
    amplitude: Array


class Tape(NamedTuple):
    """What the layers give, at every step or, where the first axis is 1, at the last one.

    Args:
        first: (T, B, F), the products with the input beforehand, the first layer's values after.
        deep: (L - 1, T or 1, B, U), values of the other layers.
        slopes: (L, T, B, U), slopes of activations that do not show them; else empty.
        heads: (T or 1, B, K N): phi(g), phi(h), p and t_a, or r of the pure form.
    """

    first: Array
    deep: Array
    slopes: Array
    heads: Array


class Deltas(NamedTuple):
    """Gradients of the products, before bias and activation.

    Args:
        first: (T, B, F).
        deep: (L - 1, T, B, U).
        heads: (T, B, K N); may be the memory of the tape's.
    """

    first: Array
    deep: Array
    heads: Array


class Gaps(NamedTuple):
    """Elapsed times.

    Args:
        dt: (B, T).
        valid: (B, T) bool; empty if every step is.
        gradient: (B, T), receives the gradient; empty if not wanted.
    """

    dt: Array
    valid: Array
    gradient: Array


class PureGradients(NamedTuple):
    """Gradients of the pure form's own parameters, per slice of the batch: (slices, N) each."""

    rate: Array
    amplitude: Array


class MixedWeights(NamedTuple):
    """Parameters of a memory beside a core.

    Args:
        recurrent: (4 N, N), the weights W_h of the gates i, f, g, o.
        bias: (4 N,), b with the constant of the forget gate added.
        reads_state: whether the core reads [u; v] (form ``input``) or u (form ``state``).
    """

    recurrent: Array
    bias: Array
    reads_state: bool


class MixedTape(NamedTuple):
    """What a memory gives.

    Args:
        gates: (T, B, 4 N), the products with the input beforehand, i, f, g, o after.
        c: (T + 1 or 2, B, N), the memory, its initial value first.
        source: (T or 1, B, R), what the core's first layer reads.
    """

    gates: Array
    c: Array
    source: Array
