"""A sequence module with a linear readout: what experiments train."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.checks import check_at_least, check_one_of
from tauflow._internal.init_args import CaptureInitArgs
from tauflow.batch import SequenceBatch
from tauflow.cells.reinitialise import reset_submodules
from tauflow.errors import ArgumentError, StreamError
from tauflow.sequence import SequenceModule, Stream
from tauflow.sequence.inputs import mask_from_lengths
from tauflow.sequence.streaming.parts import StreamParts
from tauflow.training.elementwise import PredictionLoss
from tauflow.training.evaluation_loop import predict

from .base import AbstractWholeModel
from .embedding import TokenEmbedding
from .spread import QUANTILE_LEVELS, build_spread_head


class SequenceModel(nn.Module, metaclass=CaptureInitArgs):
    r"""A sequence module and a dense head, :math:`y = W_o h + b_o` at every returned step.

    Follows the contract of its body: ``y, h = model(x, hx, dt=..., t=..., mask=..., lengths=...,
    observed=...)``. With a body that returns sequences, y is (B, T, O), else (B, O).

    Args:
        rnn: the body, a sequence module or a whole model such as
            :class:`~tauflow.models.Transformer`.
        output_size: O.
        head_init: ``"torch"`` (the default of ``torch.nn.Linear``), ``"keras"`` (Glorot uniform,
            zero bias) or ``"truncated-0.05"`` (truncated normal of standard deviation 0.05, zero
            bias, of some released regression scripts).
        vocabulary: number of tokens; x then holds an integer id per step, (B, T, 1), which a
            :class:`~tauflow.models.TokenEmbedding` turns into the body's input. 0 for features.
        embedding_dropout: dropout on the embedded tokens.
        spread: ``"quantile"`` or ``"gaussian"``: a second head learns how far targets lie around
            the prediction, see :meth:`quantiles`. The prediction itself is trained as without it.
    """

    options: dict[str, Any]

    def __init__(
        self,
        rnn: SequenceModule | AbstractWholeModel,
        output_size: int,
        *,
        head_init: str = "torch",
        vocabulary: int = 0,
        embedding_dropout: float = 0.0,
        spread: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(rnn, SequenceModule | AbstractWholeModel):
            raise ArgumentError(
                f"rnn must be a sequence module such as tauflow.LTC, got {type(rnn).__name__}. "
                "Wrap a cell with tauflow.RNN(cell)."
            )
        if isinstance(rnn, AbstractWholeModel) and rnn.has_head:
            raise ArgumentError(
                f"{type(rnn).__name__} predicts by itself. Train it as it is, with the head that "
                "its own options describe."
            )
        self.rnn = rnn
        self.head = nn.Linear(rnn.output_size, check_at_least(1, output_size=output_size))
        self.head_init = check_one_of(("torch", "keras", "truncated-0.05"), head_init=head_init)
        self.reset_head()
        self.spread = None
        if spread is not None:
            self.spread = build_spread_head(spread, rnn.output_size, output_size)
        self.embedding = None
        if check_at_least(0, vocabulary=vocabulary):
            self.embedding = TokenEmbedding(vocabulary, rnn.input_size, dropout=embedding_dropout)
        elif embedding_dropout:
            raise ArgumentError(
                f"embedding_dropout={embedding_dropout} without a vocabulary has nothing to drop; "
                "give the number of tokens, or leave it out."
            )

    def reset_head(self) -> None:
        """Draw the head as ``head_init`` says."""
        if self.head_init == "torch":
            reset_submodules(nn.Sequential(self.head))
            return
        nn.init.zeros_(self.head.bias)
        if self.head_init == "keras":
            nn.init.xavier_uniform_(self.head.weight)
        else:
            nn.init.trunc_normal_(self.head.weight, std=0.05, a=-0.1, b=0.1)

    def reset_parameters(self) -> None:
        """Draw all parameters again, from the global generator, as when the model was built.

        Raises:
            ArgumentError: a part has parameters that no ``reset_parameters`` draws.
        """
        reset_submodules(self)
        self.reset_head()

    def forward(
        self, x: Tensor | PackedSequence, hx: Tensor | None = None, **times_and_masks: Any
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run body and head.

        Args:
            x: inputs, as for the body; with a vocabulary, token ids.
            hx: state to start from.
            **times_and_masks: ``dt``, ``t``, ``mask``, ``lengths``, ``observed`` and, with a
                sequence module as body, ``episode_start``, as for :meth:`SequenceModule.forward`.

        Returns:
            Predictions in the form of the input, and the final state.
        """
        y, h = self.rnn(self._embed(x, times_and_masks), hx, **times_and_masks)
        if isinstance(y, PackedSequence):
            packed = y._replace(data=self.head(y.data))
            return packed, h
        prediction: Tensor = self.head(y)
        return prediction, h

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """The levels of :meth:`quantiles`; ``()`` without a head of the spread."""
        return () if self.spread is None else QUANTILE_LEVELS

    def quantiles(self, x: Tensor, **times_and_masks: Any) -> Tensor:
        """Return the quantiles of the targets at :attr:`quantile_levels`, (..., O, Q), increasing.

        Args:
            x: inputs, as for :meth:`forward`, but no packed sequence.
            **times_and_masks: as for :meth:`forward`.

        Raises:
            ArgumentError: the model was built without ``spread``.
        """
        if self.spread is None:
            raise ArgumentError(
                "this SequenceModel learned no quantiles. Build it with spread='quantile' or "
                "'gaussian', and train it."
            )
        y, _ = self.rnn(self._embed(x, times_and_masks), None, **times_and_masks)
        return self.spread.quantiles(y, self.head(y))

    def _embed(self, x: Tensor | PackedSequence, masks: dict[str, Any]) -> Tensor | PackedSequence:
        """Return what the body reads: the vectors of token ids, or x as it is."""
        return x if self.embedding is None else self.embedding(_zero_padding_ids(x, masks))

    @property
    def ignores_padding(self) -> bool:
        """Whether masked steps at the ends of sequences change nothing, as the body says."""
        return self.rnn.ignores_padding

    @property
    def uses_observed(self) -> bool:
        """Whether the body takes the (B, T, I) mask of measured features."""
        return self.rnn.uses_observed

    def initial_state(self, batch_size: int = 1) -> Tensor:
        """Return the state that sequences start from; see :meth:`SequenceModule.initial_state`."""
        return self._check_steppable("initial_state").initial_state(batch_size)

    def step(
        self, x: Tensor, h: Any = None, dt: Tensor | float = 1.0, **masks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Predict after one more sample; see :meth:`SequenceModule.step`.

        Args:
            x: a sample of each sequence, (B, I) or (I,), or token ids.
            h: state before it; by default the initial one.
            dt: time since the sample before, a number or (B,).
            **masks: ``observed`` and ``episode_start``.

        Returns:
            The predictions, (B, O) or (O,), and the state.
        """
        rnn = self._check_steppable("step")
        if self.embedding is not None:
            x = self.embedding(x.unsqueeze(-2)).squeeze(-2)
        y, h = rnn.step(x, h, dt, **masks)
        prediction: Tensor = self.head(y)
        return prediction, h

    def stream(self, batch_size: int = 1) -> Stream:
        """Return a stream of predictions, one sample at a time; see :meth:`SequenceModule.stream`.

        Args:
            batch_size: sequences that run side by side.

        Raises:
            StreamError: the body cannot run sample by sample.
        """
        return Stream(self, batch_size)

    def stream_parts(self) -> StreamParts:
        """Return what a stream runs for each sample: the body, the embedding before and the head.

        Raises:
            StreamError: the body cannot run sample by sample.
        """
        return StreamParts(
            self._check_steppable("stream"), preprocessor=self.embedding, postprocessor=self.head
        )

    def _check_steppable(self, where: str) -> SequenceModule:
        if isinstance(self.rnn, SequenceModule):
            return self.rnn
        raise StreamError(
            f"SequenceModel.{where}: {type(self.rnn).__name__} reads sequences as a whole. Only "
            "sequence modules, such as tauflow.CfC, go on sample by sample."
        )

    def training_loss(
        self, batch: SequenceBatch, prediction_loss: PredictionLoss, *, epoch: int
    ) -> Tensor:
        """Return the loss of the predictions, or the body's own loss if it has one.

        Args:
            batch: inputs and targets.
            prediction_loss: of predictions.
            epoch: finished epochs.
        """
        loss: Callable[..., Tensor] | None = getattr(self.rnn, "training_loss", None)
        if loss is None and self.spread is None:
            return prediction_loss(predict(self, batch), batch)
        x = self._embed(batch.x, {"mask": batch.mask})
        assert isinstance(x, Tensor)
        batch = replace(batch, x=x)
        if loss is None:
            return self._compute_loss(predict(self.rnn, batch), batch, prediction_loss)
        return loss(batch, lambda y, of: self._compute_loss(y, of, prediction_loss), epoch=epoch)

    def _compute_loss(
        self, y: Tensor, batch: SequenceBatch, prediction_loss: PredictionLoss
    ) -> Tensor:
        """Return the loss of the heads, given what the body makes of a batch."""
        prediction = self.head(y)
        loss = prediction_loss(prediction, batch)
        return loss if self.spread is None else loss + self.spread.loss(y, prediction, batch)


def _zero_padding_ids(x: Tensor | PackedSequence, masks: dict[str, Any]) -> Tensor | PackedSequence:
    """Return token ids with 0 at steps that are not there, where anything may stand."""
    mask, lengths = masks.get("mask"), masks.get("lengths")
    if isinstance(x, PackedSequence) or x.ndim not in (2, 3):
        return x
    if lengths is not None and mask is None:
        batched = x.ndim == 3
        mask = mask_from_lengths("SequenceModel", lengths, x if batched else x[None], batched)
        mask = mask if batched else mask[0]
    if not isinstance(mask, Tensor) or mask.dtype is not torch.bool or mask.shape != x.shape[:-1]:
        return x  # the body says what is wrong with the mask
    return x.masked_fill(~mask.unsqueeze(-1), 0)
