"""A sequence module with a linear readout: what experiments train."""

from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tauflow.checks import at_least, one_of
from tauflow.errors import ArgumentError
from tauflow.recorded import RecordedMeta
from tauflow.sequence import SequenceModule

from .stateless import AbstractStatelessModel


class SequenceModel(nn.Module, metaclass=RecordedMeta):
    r"""A body and a dense head, :math:`y = W_o h + b_o` at every step it returns.

    Follows the contract of its body: ``y, h = model(x, hx, dt=..., t=..., mask=..., lengths=...,
    observed=...)``. With a body that returns sequences, y is (B, T, O), else (B, O).

    Args:
        rnn: the body, a sequence module or a whole model such as
            :class:`~tauflow.models.Transformer`.
        output_size: O.
        head_init: ``"torch"`` (the default of ``torch.nn.Linear``), ``"keras"`` (Glorot uniform,
            zero bias) or ``"truncated-0.05"`` (truncated normal of standard deviation 0.05, zero
            bias, of some released regression scripts).
    """

    options: dict[str, Any]

    def __init__(
        self,
        rnn: SequenceModule | AbstractStatelessModel,
        output_size: int,
        *,
        head_init: str = "torch",
    ) -> None:
        super().__init__()
        if not isinstance(rnn, SequenceModule | AbstractStatelessModel):
            raise ArgumentError(
                f"rnn must be a sequence module such as tauflow.LTC, got {type(rnn).__name__}. "
                "Wrap a cell with tauflow.RNN(cell)."
            )
        self.rnn = rnn
        self.head = nn.Linear(rnn.output_size, at_least(1, output_size=output_size))
        self.head_init = one_of(("torch", "keras", "truncated-0.05"), head_init=head_init)
        self.reset_head()

    def reset_head(self) -> None:
        """Draw the head as ``head_init`` says."""
        if self.head_init == "torch":
            self.head.reset_parameters()
            return
        nn.init.zeros_(self.head.bias)
        if self.head_init == "keras":
            nn.init.xavier_uniform_(self.head.weight)
        else:
            nn.init.trunc_normal_(self.head.weight, std=0.05, a=-0.1, b=0.1)

    def forward(
        self, x: Tensor | PackedSequence, hx: Tensor | None = None, **times_and_masks: Any
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run body and head.

        Args:
            x: inputs, as for the body.
            hx: state to start from.
            **times_and_masks: ``dt``, ``t``, ``mask``, ``lengths`` and ``observed``, as for
                :meth:`SequenceModule.forward`.

        Returns:
            Predictions in the form of the input, and the final state.
        """
        y, h = self.rnn(x, hx, **times_and_masks)
        if isinstance(y, PackedSequence):
            packed = y._replace(data=self.head(y.data))
            return packed, h
        prediction: Tensor = self.head(y)
        return prediction, h
