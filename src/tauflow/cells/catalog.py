"""The models that exist, by the names of the command line and of the specifications."""

from dataclasses import dataclass, field
from typing import Any

from tauflow.registry import Registry

from .base import AbstractCell
from .cfc import CfCCell
from .ct_lstm import CTLSTMCell
from .gated import ElmanCell, GRUCell, LSTMCell
from .gru_d import GRUDCell, UnmaskedGRUDCell
from .ltc import LTCCell
from .ltc_neuronal import NeuronalLTCCell
from .mixed_memory import MixedMemoryCell
from .options import refuse_unknown_options
from .phased_lstm import PhasedLSTMCell
from .rnn_decay import LinearDecayRNNCell, RNNDecayCell
from .rubanova import RubanovaGRUCell
from .rubanova_ode import RubanovaODERNNCell
from .wired_cfc import WiredCfCCell


@dataclass(frozen=True)
class ModelEntry:
    """A published model: a cell class and the options that make it that model.

    Args:
        name: catalog name.
        title: name in the papers.
        cell: the class.
        options: options fixed by this entry.
    """

    name: str
    title: str
    cell: type[AbstractCell]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """Where the cell was published."""
        return self.cell.paper

    def build(self, input_size: int, hidden_size: Any, **options: Any) -> AbstractCell:
        """Build the cell; ``options`` add to, or override, those of the entry."""
        merged = {**self.options, **options}
        refuse_unknown_options(self.cell, merged)
        return self.cell(input_size, hidden_size, **merged)


MODELS: Registry[ModelEntry] = Registry(
    "model",
    {
        entry.name: entry
        for entry in (
            ModelEntry("ltc", "LTC", LTCCell),
            ModelEntry("ltc-neuronal", "LTC, neuronal form", NeuronalLTCCell),
            ModelEntry("cfc", "CfC", CfCCell),
            ModelEntry("cfc-nogate", "CfC-noGate", CfCCell, {"mode": "no_gate"}),
            ModelEntry("cf-s", "Cf-S", CfCCell, {"mode": "pure"}),
            ModelEntry("cfc-mmrnn", "CfC-mmRNN", MixedMemoryCell, {"core": "cfc"}),
            ModelEntry("wired-cfc", "CfC on a wiring", WiredCfCCell),
            ModelEntry("lstm", "LSTM", LSTMCell),
            ModelEntry("augmented-lstm", "Augmented LSTM", LSTMCell, {"append_dt": True}),
            ModelEntry("gru", "GRU", GRUCell),
            ModelEntry("elman", "Elman RNN", ElmanCell),
            ModelEntry("rnn-decay", "RNN-Decay", RNNDecayCell),
            ModelEntry("rnn-decay-released", "RNN-Decay, as released", LinearDecayRNNCell),
            ModelEntry("gru-d", "GRU-D", GRUDCell),
            ModelEntry("gru-d-unmasked", "GRU-D without masks", UnmaskedGRUDCell),
            ModelEntry("ct-lstm", "CT-LSTM", CTLSTMCell),
            ModelEntry(
                "ct-lstm-released", "CT-LSTM, as released", CTLSTMCell, {"form": "released"}
            ),
            ModelEntry("phased-lstm", "Phased LSTM", PhasedLSTMCell),
            ModelEntry(
                "phased-lstm-released",
                "Phased LSTM, as released",
                PhasedLSTMCell,
                {"form": "released"},
            ),
            ModelEntry("rnn-delta-t", "RNN-Delta-t", RubanovaGRUCell),
            ModelEntry("rnn-impute", "RNN-impute", RubanovaGRUCell, {"impute": True}),
            ModelEntry(
                "rnn-decay-rubanova",
                "RNN-Decay of the Latent ODE paper",
                RubanovaGRUCell,
                {"decay": True},
            ),
            ModelEntry(
                "gru-d-rubanova",
                "GRU-D of the Latent ODE paper",
                RubanovaGRUCell,
                {"decay": True, "impute": True},
            ),
            ModelEntry("ode-rnn-rubanova", "ODE-RNN of the Latent ODE paper", RubanovaODERNNCell),
        )
    },
)
