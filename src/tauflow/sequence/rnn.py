"""A sequence module around any cell."""

from .sequence_module import SequenceModule


class RNN(SequenceModule):
    """Run any cell over sequences, also a custom one.

    Args:
        cell: the cell, whose options every subclass of :class:`~tauflow.cells.AbstractCell` records
            by itself.
        num_layers: stacked layers.
        bidirectional: whether each layer also runs backwards in time.
        dropout: probability of dropping an output between layers, while training.
        proj_size: width of a linear map on every layer's output; 0 for none.
        return_sequences: whether to return every step's output, or the last valid one's.
        backend: ``"auto"``, ``"reference"`` or the name of a fused backend.
        checkpoint_every: train with memory for so many steps only, at the price of a second
            forward pass, see :class:`SequenceModule`; ``None`` keeps what every step needs.
        batch_first: always True; accepted for compatibility with ``torch.nn``.
    """
