# Written by `python tests/repo/derived.py` from the catalog of cells.
# ruff: noqa
# fmt: off
"""The sequence module of each catalogued cell, and ``build`` by catalog name."""

from collections.abc import Callable
from collections.abc import Sequence
from tauflow.cells.base import AbstractCell
from tauflow.wirings.base import AbstractWiring
from torch import Tensor
from typing import Any

from .catalog_rnn import CatalogRNN
from .sequence_module import SequenceModule

SEQUENCE_MODULES: tuple[type[CatalogRNN], ...]

def make_module(cell: type[AbstractCell]) -> type[CatalogRNN]: ...

def build(name: str, input_size: int, hidden_size: Any, **options: Any) -> SequenceModule: ...

class LTC(CatalogRNN):
    """Liquid time-constant cell, conductance form.

    Over sequences; for the options see tauflow.cells.LTCCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int | AbstractWiring, num_layers: int = 1, *,
        solver: str = "fused", substeps: int = 6, constraint: str = "softplus", init: str = "ncps",
        input_mapping: str = "affine", output_mapping: str = "affine", time_scale: float = 1.0,
        dt_offset: float = 0.0, epsilon: float = 1e-08, bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class NeuronalLTC(CatalogRNN):
    """Liquid time-constant cell, neuronal form.

    Over sequences; for the options see tauflow.cells.NeuronalLTCCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        activation: str | Callable[[Tensor], Tensor] = "tanh", solver: str = "fused",
        substeps: int = 6, scale: bool = False, bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class LRC(CatalogRNN):
    """Liquid-resistance liquid-capacitance cell, and without elastance the saturated LTC (STC).

    Over sequences; for the options see tauflow.cells.LRCCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        elastance: str = "asymmetric", solver: str = "explicit", substeps: int = 1,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class CfC(CatalogRNN):
    """Closed-form continuous-time cell.

    Over sequences; for the options see tauflow.cells.CfCCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, mode: str = "default",
        backbone_units: int = 128, backbone_layers: int = 1,
        backbone_activation: str | Callable[[Tensor], Tensor] = "lecun_tanh",
        backbone_dropout: float = 0.0, dropout_first: bool = True,
        activation: str | Callable[[Tensor], Tensor] = "tanh", time_sign: int = -1,
        time_bias: bool = True, init: str = "keras", init_gain: float | None = None,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class MixedMemory(CatalogRNN):
    """LSTM memory c and a continuous-time core with state v; with CfC as core, CfC-mmRNN.

    Over sequences; for the options see tauflow.cells.MixedMemoryCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int | AbstractWiring, num_layers: int = 1, *,
        core: str = "cfc", form: str = "input", forget_bias: float = 1.0,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True, **core_options: Any,
    ) -> None: ...

class WiredCfC(CatalogRNN):
    """Closed-form continuous-time cell whose neurons follow a wiring.

    Over sequences; for the options see tauflow.cells.WiredCfCCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int | AbstractWiring, num_layers: int = 1, *,
        mode: str = "default", activation: str | Callable[[Tensor], Tensor] = "tanh",
        time_sign: int = -1, time_bias: bool = True, init: str = "keras",
        init_gain: float | None = None, bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class LSTM(CatalogRNN):
    """Long short-term memory; with ``append_dt`` the augmented LSTM of the papers.

    Over sequences; for the options see tauflow.cells.LSTMCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, append_dt: bool = False,
        init: str = "torch", forget_bias: float = 0.0, bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class GRU(CatalogRNN):
    """Gated recurrent unit.

    Over sequences; for the options see tauflow.cells.GRUCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, append_dt: bool = False,
        init: str = "torch", activation: str = "tanh", bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class Elman(CatalogRNN):
    """Elman's simple recurrent network.

    Over sequences; for the options see tauflow.cells.ElmanCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, append_dt: bool = False,
        init: str = "torch", bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class GNODE(CatalogRNN):
    """Gated neural ODE: a dense network as target, another as rate.

    Over sequences; for the options see tauflow.cells.GNODECell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, layers: int = 2,
        units: int | None = None, gate_layers: int = 1, gate_units: int | None = None,
        activation: str | Callable[[Tensor], Tensor] | None = None,
        final_activation: str = "identity", tau: float = 1.0, train_tau: bool = False,
        solver: str = "euler", substeps: int = 1, rtol: float = 1e-06, atol: float = 1e-06,
        initial_state: str = "zeros", init: str = "glorot_normal", bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class EulerGRU(CatalogRNN):
    """Gated recurrent unit as a flow, stepped by Euler's method.

    Over sequences; for the options see tauflow.cells.EulerGRUCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, tau: float = 1.0,
        solver: str = "euler", substeps: int = 1, rtol: float = 1e-06, atol: float = 1e-06,
        initial_state: str = "zeros", init: str = "glorot_normal", bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class EulerLSTM(CatalogRNN):
    """Long short-term memory as a flow, stepped by Euler's method.

    Over sequences; for the options see tauflow.cells.EulerLSTMCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, tau: float = 1.0,
        substeps: int = 1, initial_state: str = "zeros", init: str = "glorot_normal",
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class LEM(CatalogRNN):
    """Long expressive memory: two coupled states, each with a gated time step.

    Over sequences; for the options see tauflow.cells.LEMCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        scheme: str = "forward-backward", tau: float = 1.0, substeps: int = 1,
        initial_state: str = "zeros", init: str = "torch", bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class CTRNN(CatalogRNN):
    """Continuous-time recurrent network (CT-RNN); without damping, ODE-RNN or neural ODE.

    Over sequences; for the options see tauflow.cells.CTRNNCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        activation: str | Callable[[Tensor], Tensor] = "tanh", solver: str = "rk4",
        substeps: int = 3, damping: float = 1.0, scale: bool = True, init: str = "keras",
        step_size: float | None = None, clip: float | None = None, rtol: float = 0.01,
        atol: float = 0.0001, adjoint: bool = False, train_tau: bool = False,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class ODELSTM(CatalogRNN):
    """ODE-LSTM: an LSTM memory c, untouched by time, and an output state h that flows.

    Over sequences; for the options see tauflow.cells.ODELSTMCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, form: str = "tensorflow",
        solver: str | None = None, substeps: int | None = None, forget_bias: float | None = None,
        rtol: float = 0.01, atol: float = 0.0001, bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class GRUODE(CatalogRNN):
    """Gated recurrent unit in continuous time.

    Over sequences; for the options see tauflow.cells.GRUODECell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, form: str = "full",
        solver: str = "euler", substeps: int = 4, rtol: float = 0.001, atol: float = 0.0001,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class CTGRU(CatalogRNN):
    """Continuous-time gated recurrent unit.

    Over sequences; for the options see tauflow.cells.CTGRUCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, scales: int = 8,
        decay: str = "until-next", bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class GRUD(CatalogRNN):
    """GRU-D: inputs decay towards their mean and the state towards 0 while nothing is observed.

    Over sequences; for the options see tauflow.cells.GRUDCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        x_mean: float | Sequence[float] = 0.0, bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class UnmaskedGRUD(CatalogRNN):
    """GRU-D as the ODE-LSTM and CfC papers ran it: the state decays, and nothing is missing.

    Over sequences; for the options see tauflow.cells.UnmaskedGRUDCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class CTLSTM(CatalogRNN):
    """Continuous-time LSTM: between events the memory decays towards a learned target.

    Over sequences; for the options see tauflow.cells.CTLSTMCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, form: str = "paper",
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class TLSTM(CatalogRNN):
    """Time-aware LSTM: the short-term part of the memory fades with the time step.

    Over sequences; for the options see tauflow.cells.TLSTMCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class TimeLSTM(CatalogRNN):
    """Time-LSTM: gates that the time step opens and closes stand before the new memory.

    Over sequences; for the options see tauflow.cells.TimeLSTMCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, form: str = "coupled",
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class PhasedLSTM(CatalogRNN):
    """LSTM with a time gate k for each neuron, open for a share r of a cycle of length tau.

    Over sequences; for the options see tauflow.cells.PhasedLSTMCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, form: str = "paper",
        forget_bias: float = 1.0, leak: float = 0.001, ratio: float = 0.05,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class LRU(CatalogRNN):
    """Linear recurrent unit: a stable complex diagonal recurrence, and a gated readout.

    Over sequences; for the options see tauflow.cells.LRUCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, r_min: float = 0.0,
        r_max: float = 1.0, max_phase: float = 6.283185307179586, glu: bool = True,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class S5(CatalogRNN):
    """Simplified state space layer: a linear ODE in its eigenbasis, and a gated readout.

    Over sequences; for the options see tauflow.cells.S5Cell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, step_min: float = 0.001,
        step_max: float = 0.1, glu: bool = True, bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class NeuralCDE(CatalogRNN):
    """Neural controlled differential equation: the state follows a path through the samples.

    Over sequences; for the options see tauflow.cells.NeuralCDECell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, units: int = 64,
        layers: int = 1, solver: str = "midpoint", substeps: int = 1, rtol: float = 0.001,
        atol: float = 0.0001, bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class LrcSSM(CatalogRNN):
    """Diagonal liquid-resistance liquid-capacitance cell, the core of an LrcSSM.

    Over sequences; for the options see tauflow.cells.LrcSSMCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, substeps: int = 1,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class CfS(CatalogRNN):
    """Closed-form solution network (Cf-S) as Equation 9 has it.

    Over sequences; for the options see tauflow.cells.CfSCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        activation: str = "sigmoid", bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class GRUODEBayes(CatalogRNN):
    """GRU-ODE-Bayes: an autonomous gated flow, and a gated update at what was observed.

    Over sequences; for the options see tauflow.cells.GRUODEBayesCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, prediction_units: int = 32,
        read_units: int = 8, solver: str = "euler", substeps: int = 4, rtol: float = 0.001,
        atol: float = 0.0001, bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class BidirectionalRNN(CatalogRNN):
    """An LSTM and a CT-RNN, each of which reads the other's last state.

    Over sequences; for the options see tauflow.cells.BidirectionalRNNCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, solver: str = "euler",
        substeps: int = 4, damping: float = 1.0, forget_bias: float = 1.0,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class RNNDecay(CatalogRNN):
    """Elman network whose state decays exponentially over the time step before each sample.

    Over sequences; for the options see tauflow.cells.RNNDecayCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class LinearDecayRNN(CatalogRNN):
    """The "RNN-Decay" of the ODE-LSTM and CfC papers' tables: a linear drift after two layers.

    Over sequences; for the options see tauflow.cells.LinearDecayRNNCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class GRUwE(CatalogRNN):
    """GRU with exponential basis functions: the state decays, then a GRU reads values and mask.

    Over sequences; for the options see tauflow.cells.GRUwECell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class RubanovaGRU(CatalogRNN):
    """GRU on data and mask; the time step is a feature, or lets the state or missing inputs decay.

    Over sequences; for the options see tauflow.cells.RubanovaGRUCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, decay: bool = False,
        impute: bool = False, x_mean: float | Sequence[float] = 0.0, bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class RubanovaODERNN(CatalogRNN):
    """ODE-RNN: the mean y follows a neural ODE over dt, then a gated unit reads the sample.

    Over sequences; for the options see tauflow.cells.RubanovaODERNNCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, ode_units: int = 100,
        ode_layers: int = 1, gru_units: int = 100, solver: str = "euler", substeps: int = 4,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class CoRNN(CatalogRNN):
    """Coupled oscillatory recurrent cell: forced, damped oscillators that drive one another.

    Over sequences; for the options see tauflow.cells.CoRNNCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, step_size: float = 0.054,
        gamma: float = 4.9, eps: float = 4.8, implicit_damping: bool = False,
        append_dt: bool = False, bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class LipschitzRNN(CatalogRNN):
    """Lipschitz recurrent cell: a linear part and a tanh, both with constrained matrices.

    Over sequences; for the options see tauflow.cells.LipschitzRNNCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, beta: float = 0.8,
        gamma: float = 0.01, eps: float = 0.01, alpha: float = 1.0, solver: str = "euler",
        init_std: float = 1.0, append_dt: bool = False, bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class LMU(CatalogRNN):
    """Legendre memory unit: a linear delay line of the last theta steps, and a tanh that reads it.

    Over sequences; for the options see tauflow.cells.LMUCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, order: int | None = None,
        theta: float = 100.0, discretisation: str = "zoh", hidden_to_memory: bool = True,
        memory_to_memory: bool = True, input_to_hidden: bool = True, init: str = "lmu",
        append_dt: bool = False, bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class HiPPO(CatalogRNN):
    """Recurrent cell around a HiPPO memory of one learned signal u.

    Over sequences; for the options see tauflow.cells.HiPPOCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, measure: str = "legs",
        order: int | None = None, timestamped: bool = False, step_size: float | None = None,
        append_dt: bool = False, bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class ExpRNN(CatalogRNN):
    """Recurrent cell whose recurrent matrix is orthogonal, for gradients that keep their length.

    Over sequences; for the options see tauflow.cells.ExpRNNCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, init: str = "cayley",
        append_dt: bool = False, bidirectional: bool = False, dropout: float = 0.0,
        proj_size: int = 0, return_sequences: bool = True, backend: str = "auto",
        checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class LinOSS(CatalogRNN):
    """Linear oscillatory state-space cell: forced harmonic oscillators, and a gated readout.

    Over sequences; for the options see tauflow.cells.LinOSSCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, glu: bool = True,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class SLiCE(CatalogRNN):
    """Structured linear controlled differential equation (SLiCE) with blocks on the diagonal.

    Over sequences; for the options see tauflow.cells.SLiCECell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        block_size: int | None = None, scale: float = 0.025, bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class RITS(CatalogRNN):
    """Recurrent imputation of time series: an LSTM on inputs that it fills in itself.

    Over sequences; for the options see tauflow.cells.RITSCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...

class CRU(CatalogRNN):
    """Continuous recurrent unit, in its fast form: a continuous-discrete Kalman filter.

    Over sequences; for the options see tauflow.cells.CRUCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, units: int = 50,
        bases: int = 15, initial_variance: float = 10.0, bidirectional: bool = False,
        dropout: float = 0.0, proj_size: int = 0, return_sequences: bool = True,
        backend: str = "auto", checkpoint_every: int | None = None, batch_first: bool = True,
    ) -> None: ...

class LinODENet(CatalogRNN):
    """Linear ODE network: latent linear dynamics, and a correction in the form of a Kalman gain.

    Over sequences; for the options see tauflow.cells.LinODENetCell.
    """
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, blocks: int = 5,
        bidirectional: bool = False, dropout: float = 0.0, proj_size: int = 0,
        return_sequences: bool = True, backend: str = "auto", checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None: ...
