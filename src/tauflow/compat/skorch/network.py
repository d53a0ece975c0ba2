"""A model of any cell as one module of options, whose call returns the prediction alone."""

from typing import Any

from torch import Tensor, nn

from tauflow.models import SequenceModel
from tauflow.sequence import build


class SequenceNet(nn.Module):
    """A sequence module with a linear readout, as skorch and other trainers of modules build it.

    ::

        net = NeuralNetClassifier(
            SequenceNet, module__input_size=3, module__output_size=2, module__model="gru-d"
        )
        net.fit({"x": x, "dt": dt, "lengths": lengths}, y)  # arrays in float32, lengths int64

    Args:
        input_size: features per time point.
        output_size: width of the prediction.
        hidden_size: neurons.
        model: name of a cell of ``tauflow models``.
        per_step: whether it predicts at every step, or at the last valid one.
        **options: of the cell and of its sequence module.

    Raises:
        UnknownNameError: no model has that name.
        OptionError: the model has no such option.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        hidden_size: int = 64,
        model: str = "cfc",
        per_step: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        rnn = build(model, input_size, hidden_size, return_sequences=per_step, **options)
        self.model = SequenceModel(rnn, output_size)

    def forward(self, x: Tensor, **timing: Any) -> Tensor:
        """Return predictions, (B, O), or (B, T, O) with ``per_step``.

        Args:
            x: inputs, (B, T, I).
            **timing: ``dt``, ``t``, ``mask``, ``lengths``, ``observed``, as for
                :meth:`tauflow.SequenceModel.forward`.
        """
        y: Tensor = self.model(x, **timing)[0]
        return y
