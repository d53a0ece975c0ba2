"""The registry of cells and of models made of them."""

from dataclasses import dataclass, field
from typing import Any

from tauflow._internal.registry import Registry, make_entry_check
from tauflow.errors import ArgumentError

from .base import AbstractCell
from .cfc import CfCCell
from .ct_gru import CTGRUCell
from .ct_lstm import CTLSTMCell
from .ct_rnn import CTRNNCell
from .euler_gated import EulerGRUCell, EulerLSTMCell
from .gated import ElmanCell, GRUCell, LSTMCell
from .gnode import GNODECell
from .gru_d import GRUDCell, UnmaskedGRUDCell
from .gru_ode import GRUODECell
from .lem import LEMCell
from .lrc import LRCCell
from .lru import LRUCell
from .ltc import LTCCell
from .ltc_neuronal import NeuronalLTCCell
from .mixed_memory import MixedMemoryCell
from .neural_cde import NeuralCDECell
from .ode_lstm import ODELSTMCell
from .option_names import check_option_names
from .phased_lstm import PhasedLSTMCell
from .s5 import S5Cell
from .time_lstm import TimeLSTMCell, TLSTMCell
from .wired_cfc import WiredCfCCell


@dataclass(frozen=True)
class ModelEntry:
    """A published model: a cell class and the options that make it that model.

    Args:
        name: catalog name.
        title: name in the papers.
        cell: the class.
        options: options fixed by this entry.
        tune: values that are worth trying, by name of the option.
        source: where the model was published, if not where its cell was.
    """

    name: str
    title: str
    cell: type[AbstractCell]
    options: dict[str, Any] = field(default_factory=dict)
    tune: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    source: str | None = None

    @property
    def paper(self) -> str:
        """Where the model was published."""
        return self.cell.paper if self.source is None else self.source

    def build(self, input_size: int, hidden_size: Any, **options: Any) -> AbstractCell:
        """Build the cell; ``options`` add to, or override, those of the entry."""
        merged = {**self.options, **options}
        check_option_names(self.cell, merged)
        return self.cell(input_size, hidden_size, **merged)


# How the code of the LTC paper integrates its baselines: six steps of 0.1, whatever the time step.
_LTC_2021: dict[str, Any] = {"substeps": 6, "step_size": 0.1, "scale": False, "init": "tf1"}

_BACKBONE = {
    "backbone_layers": (1, 2, 3),
    "backbone_units": (32, 64, 128, 256),
    "backbone_dropout": (0.0, 0.1, 0.3),
}
_GATED_FLOW = {"layers": (1, 2, 3), "gate_layers": (1, 2)}
_ELASTANCE = {"elastance": ("asymmetric", "symmetric")}
_SUBSTEPS = {"substeps": (1, 3, 6)}

MODELS: Registry[ModelEntry] = Registry(
    "model",
    {
        entry.name: entry
        for entry in (
            ModelEntry("ltc", "LTC", LTCCell, tune={"substeps": (3, 6, 12)}),
            ModelEntry("ltc-exp", "LTC, exponential step", LTCCell, {"solver": "exponential"}),
            ModelEntry("ltc-neuronal", "LTC, neuronal form", NeuronalLTCCell),
            ModelEntry("lrc", "LRC", LRCCell, tune=_ELASTANCE),
            ModelEntry("stc", "STC", LRCCell, {"elastance": "none"}),
            ModelEntry("cfc", "CfC", CfCCell, tune=_BACKBONE),
            ModelEntry("cfc-nogate", "CfC-noGate", CfCCell, {"mode": "no_gate"}, _BACKBONE),
            ModelEntry("cf-s", "Cf-S", CfCCell, {"mode": "pure"}, _BACKBONE),
            ModelEntry("cfc-mmrnn", "CfC-mmRNN", MixedMemoryCell, {"core": "cfc"}, _BACKBONE),
            ModelEntry("wired-cfc", "CfC on a wiring", WiredCfCCell),
            ModelEntry("lstm", "LSTM", LSTMCell),
            ModelEntry("augmented-lstm", "Augmented LSTM", LSTMCell, {"append_dt": True}),
            ModelEntry("gru", "GRU", GRUCell),
            ModelEntry("elman", "Elman RNN", ElmanCell),
            ModelEntry("gnode", "gnODE", GNODECell, tune=_GATED_FLOW),
            ModelEntry("node", "nODE", GNODECell, {"gate_layers": 0}, {"layers": (1, 2, 3)}),
            ModelEntry(
                "mgru",
                "mGRU",
                GNODECell,
                {"layers": 1, "final_activation": "tanh"},
                source="Ravanelli et al. 2018, Light gated recurrent units",
            ),
            ModelEntry(
                "elman-euler",
                "Elman RNN, Euler step",
                GNODECell,
                {"layers": 1, "gate_layers": 0, "final_activation": "tanh"},
            ),
            ModelEntry("gru-euler", "GRU, Euler step", EulerGRUCell),
            ModelEntry("lstm-euler", "LSTM, Euler step", EulerLSTMCell),
            ModelEntry("lem", "LEM", LEMCell, tune={"tau": (0.3, 1.0, 3.0)}),
            ModelEntry("lem-forward", "LEM, forward Euler", LEMCell, {"scheme": "forward"}),
            ModelEntry("ct-rnn", "CT-RNN", CTRNNCell, tune=_SUBSTEPS),
            ModelEntry(
                "ode-rnn",
                "ODE-RNN",
                CTRNNCell,
                {"damping": 0.0},
                _SUBSTEPS,
                source="Rubanova et al. 2019, Latent ODEs for irregularly-sampled time series",
            ),
            ModelEntry(
                "ct-rnn-ltc",
                "CT-RNN of the LTC paper",
                CTRNNCell,
                {**_LTC_2021, "solver": "euler"},
                source="Hasani et al. 2021, Liquid Time-constant Networks",
            ),
            ModelEntry(
                "neural-ode",
                "Neural ODE",
                CTRNNCell,
                {**_LTC_2021, "damping": 0.0},
                source="Chen et al. 2018, Neural ordinary differential equations",
            ),
            ModelEntry("ode-lstm", "ODE-LSTM", ODELSTMCell),
            ModelEntry("ode-lstm-torch", "ODE-LSTM, PyTorch form", ODELSTMCell, {"form": "torch"}),
            ModelEntry("gru-ode", "GRU-ODE", GRUODECell),
            ModelEntry("ct-gru", "CT-GRU", CTGRUCell, tune={"scales": (4, 8, 12)}),
            ModelEntry(
                "ct-gru-ltc", "CT-GRU of the LTC paper", CTGRUCell, {"decay": "released-ltc"}
            ),
            ModelEntry("gru-d", "GRU-D", GRUDCell),
            ModelEntry("gru-d-unmasked", "GRU-D without masks", UnmaskedGRUDCell),
            ModelEntry("ct-lstm", "CT-LSTM", CTLSTMCell),
            ModelEntry(
                "ct-lstm-released", "CT-LSTM, as released", CTLSTMCell, {"form": "released"}
            ),
            ModelEntry("t-lstm", "T-LSTM", TLSTMCell),
            ModelEntry("time-lstm", "Time-LSTM 3", TimeLSTMCell),
            ModelEntry("time-lstm-1", "Time-LSTM 1", TimeLSTMCell, {"form": "one-gate"}),
            ModelEntry("time-lstm-2", "Time-LSTM 2", TimeLSTMCell, {"form": "two-gates"}),
            ModelEntry("phased-lstm", "Phased LSTM", PhasedLSTMCell),
            ModelEntry(
                "phased-lstm-released",
                "Phased LSTM, as released",
                PhasedLSTMCell,
                {"form": "released"},
            ),
            ModelEntry("lru", "LRU", LRUCell, tune={"r_min": (0.0, 0.5, 0.9)}),
            ModelEntry("s5", "S5", S5Cell, tune={"step_max": (0.1, 0.3, 1.0)}),
            ModelEntry(
                "neural-cde",
                "Neural CDE",
                NeuralCDECell,
                tune={"units": (32, 64, 128), "layers": (1, 2)},
            ),
        )
    },
)
"""Recurrent models by catalog name; plugins add their own."""


def _has_a_cell(name: str, entry: ModelEntry) -> None:
    if not (isinstance(entry.cell, type) and issubclass(entry.cell, AbstractCell)):
        raise ArgumentError(
            f"model {name!r}: cell must be a class derived from AbstractCell, got {entry.cell!r}. "
            "Pass the class itself; options of the entry go in by options={...}."
        )


MODELS.add_check(make_entry_check(ModelEntry))
MODELS.add_check(_has_a_cell)

CELLS: tuple[type[AbstractCell], ...] = tuple(
    dict.fromkeys(entry.cell for entry in MODELS.values())
)
"""The class of each cell, once. The exports of :mod:`tauflow` and :mod:`tauflow.cells`, the
sequence modules and the classes of model files are made of these; :mod:`tauflow.zoo` adds to all.
"""
