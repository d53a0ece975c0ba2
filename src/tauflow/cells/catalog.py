"""The models that exist, by the names of the command line and of the specifications."""

from dataclasses import dataclass, field
from typing import Any

from tauflow.registry import Registry

from .base import AbstractCell
from .cfc import CfCCell
from .cornn import CoRNNCell
from .euler_gated import EulerGRUCell, EulerLSTMCell
from .exprnn import ExpRNNCell
from .gated import ElmanCell, GRUCell, LSTMCell
from .gnode import GNODECell
from .hippo import HiPPOCell
from .lem import LEMCell
from .lipschitz import LipschitzRNNCell
from .lmu import LMUCell
from .ltc import LTCCell
from .ltc_neuronal import NeuronalLTCCell
from .mixed_memory import MixedMemoryCell
from .options import refuse_unknown_options
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
            ModelEntry("gnode", "gnODE", GNODECell),
            ModelEntry("node", "nODE", GNODECell, {"gate_layers": 0}),
            ModelEntry("mgru", "mGRU", GNODECell, {"layers": 1, "final_activation": "tanh"}),
            ModelEntry(
                "elman-euler",
                "Elman RNN, Euler step",
                GNODECell,
                {"layers": 1, "gate_layers": 0, "final_activation": "tanh"},
            ),
            ModelEntry("gru-euler", "GRU, Euler step", EulerGRUCell),
            ModelEntry("lstm-euler", "LSTM, Euler step", EulerLSTMCell),
            ModelEntry("lem", "LEM", LEMCell),
            ModelEntry("lem-forward", "LEM, forward Euler", LEMCell, {"scheme": "forward"}),
            ModelEntry("cornn", "coRNN", CoRNNCell),
            ModelEntry("lipschitz-rnn", "Lipschitz RNN", LipschitzRNNCell),
            ModelEntry("lmu", "LMU", LMUCell),
            ModelEntry("hippo-legs", "HiPPO-LegS", HiPPOCell),
            ModelEntry("hippo-lagt", "HiPPO-LagT", HiPPOCell, {"measure": "lagt"}),
            ModelEntry("exprnn", "expRNN", ExpRNNCell),
        )
    },
)
