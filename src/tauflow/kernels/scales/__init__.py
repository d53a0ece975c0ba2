"""Memories on several time scales (CT-GRU), and the arrays of their loops.

Axes: T time, B batch, M scales, N neurons, G = 2 M N of both gates. Results, inputs, gaps and masks
have the batch first, all else has time first. Memories and gates are scale by scale.
"""

from typing import Any, NamedTuple

Array = Any


class Weights(NamedTuple):
    """Weights of what is read from the memories.

    Args:
        W_h: (G, N), of the gates.
        W_q: (N, N), of what is written.
    """

    W_h: Array
    W_q: Array


class Tape(NamedTuple):
    """What steps leave, at every step or, where the first axis is 1 or 2, the last ones only.

    Args:
        memories: (T + 1 or 2, B, M N), before every step and after the last.
        read: (T, B, G + N), the input's share of the gates and of q beforehand; after it the gates
            before the softmax, and q.
        sums: (T or 1, B, N), of each neuron's memories, as the gates read them.
        chosen: (T or 1, B, N), what the first gate reads from the memories.
    """

    memories: Array
    read: Array
    sums: Array
    chosen: Array


class Run(NamedTuple):
    """What every step reads, and the results.

    Args:
        decays_first: whether a step's decay comes before the input acts, or after it.
        left: (B, T, M), what is left of each memory.
        mask: (B, T) bool, or (B, 0) for none.
        out: (B, T, N), the sums of the memories after every step; going back their gradients, or
            empty.
    """

    decays_first: bool
    left: Array
    mask: Array
    out: Array


class Deltas(NamedTuple):
    """Gradients.

    Args:
        read: (T, B, G + N), of the gates before the softmax, and of q before tanh.
        left: (B, T, M); empty if not wanted.
        memories: (B, M N), of those after the last step; become those before the first.
    """

    read: Array
    left: Array
    memories: Array
