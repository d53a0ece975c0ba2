"""Memories on several time scales (CT-GRU), and the arrays of their loops.

Axes: T time, B batch, M scales, N neurons, G = 2 M N of both gates. Results, inputs, time steps and
masks have the batch first, all else has time first. Memories and gates are scale by scale.
"""

from typing import Any, NamedTuple

Array = Any


class CTGRUWeights(NamedTuple):
    """Weights of what is read from the memories.

    Args:
        W_h: (G, N), of the gates.
        W_q: (N, N), of what is written.
    """

    W_h: Array
    W_q: Array


class CTGRUActivations(NamedTuple):
    """What steps leave, at every step or, where the first axis is 1 or 2, the last ones only.

    Args:
        traces: (T + 1 or 2, B, M N), before every step and after the last.
        read: (T, B, G + N), the input's share of the gates and of q beforehand; after it the gates
            before the softmax, and q.
        trace_sums: (T or 1, B, N), of each neuron's memories, as the gates read them.
        retrieved: (T or 1, B, N), what the first gate reads from the memories.
    """

    traces: Array
    read: Array
    trace_sums: Array
    retrieved: Array


class CTGRUSequence(NamedTuple):
    """What every step reads, and the results.

    Args:
        decays_first: whether a step's decay comes before the input acts, or after it.
        decay_factors: (B, T, M), what is left of each memory.
        mask: (B, T) bool, or (B, 0) for none.
        out: (B, T, N), the sums of the memories after every step; going back their gradients, or
            empty.
    """

    decays_first: bool
    decay_factors: Array
    mask: Array
    out: Array


class CTGRUGradients(NamedTuple):
    """Gradients.

    Args:
        read: (T, B, G + N), of the gates before the softmax, and of q before tanh.
        decay_factors: (B, T, M); empty if not wanted.
        traces: (B, M N), of those after the last step; become those before the first.
    """

    read: Array
    decay_factors: Array
    traces: Array
