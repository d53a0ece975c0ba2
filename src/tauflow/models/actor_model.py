"""Sequence models whose head is a policy network."""

from collections.abc import Sequence

from torch import nn

from tauflow._internal.checks import check_one_of
from tauflow.sequence import SequenceModule

from .sequence_model import SequenceModel

ACTIVATIONS = ("Tanh", "ReLU", "ELU", "LeakyReLU", "GELU", "SiLU", "Sigmoid", "Softplus")


class ActorModel(SequenceModel):
    """A sequence module with a policy network as head, as ``RecurrentPolicy.actor_model`` makes.

    Args:
        rnn: the sequence module.
        output_size: actions.
        hidden_sizes: widths of the hidden layers of the policy network.
        activation: of ``torch.nn``, behind each hidden layer.
        squash: whether a tanh limits the actions.
    """

    def __init__(
        self,
        rnn: SequenceModule,
        output_size: int,
        *,
        hidden_sizes: Sequence[int] = (),
        activation: str = "Tanh",
        squash: bool = False,
    ) -> None:
        super().__init__(rnn, output_size)
        kind: type[nn.Module] = getattr(nn, check_one_of(ACTIVATIONS, activation=activation))
        layers: list[nn.Module] = []
        widths = [rnn.output_size, *hidden_sizes]
        for width, size in zip(widths, hidden_sizes, strict=False):
            layers += [nn.Linear(width, size), kind()]
        layers += [nn.Linear(widths[-1], output_size)] + [nn.Tanh()] * squash
        self.head = nn.Sequential(*layers)  # type: ignore[assignment]
