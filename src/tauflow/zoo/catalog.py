"""The catalog entries of the zoo."""

from tauflow.cells.registry import ModelEntry
from tauflow.models.registry import WholeModelEntry

from .cells.bidirectional_rnn import BidirectionalRNNCell
from .cells.cf_s import CfSCell
from .cells.cornn import CoRNNCell
from .cells.cru import CRUCell
from .cells.exprnn import ExpRNNCell
from .cells.gru_ode_bayes import GRUODEBayesCell
from .cells.gruwe import GRUwECell
from .cells.hippo import HiPPOCell
from .cells.linodenet import LinODENetCell
from .cells.linoss import LinOSSCell
from .cells.lipschitz_rnn import LipschitzRNNCell
from .cells.liquid_s4 import LiquidS4Cell
from .cells.lmu import LMUCell
from .cells.lrc_ssm import LrcSSMCell
from .cells.min_rnn import MinGRUCell, MinLSTMCell
from .cells.neural_flow import NeuralFlowCell
from .cells.rits import RITSCell
from .cells.rnn_decay import LinearDecayRNNCell, RNNDecayCell
from .cells.rubanova_gru import RubanovaGRUCell
from .cells.rubanova_ode import RubanovaODERNNCell
from .cells.s6 import S6Cell
from .cells.slice import SLiCECell
from .cells.slstm import SLSTMCell
from .models.brits import BRITS
from .models.grafiti import GraFITi
from .models.ip_net import IPNet
from .models.latent_ode import RNNVAE, LatentODE
from .models.mtan import MTAN
from .models.mtan_full import MTANFull
from .models.seft import SeFT
from .models.t_patch_gnn import TPatchGNN
from .models.transformer import Transformer

PUBLISHED_ENTRIES: tuple[ModelEntry, ...] = (
    ModelEntry("lrc-ssm", "LrcSSM", LrcSSMCell),
    ModelEntry("cf-s-equation-9", "Cf-S, Equation 9", CfSCell),
    ModelEntry("gru-ode-bayes", "GRU-ODE-Bayes", GRUODEBayesCell, tune={"substeps": (1, 4)}),
    ModelEntry("bidirectional-rnn", "Bidirectional RNN", BidirectionalRNNCell),
    ModelEntry("rnn-decay", "RNN-Decay", RNNDecayCell),
    ModelEntry("rnn-decay-released", "RNN-Decay, as released", LinearDecayRNNCell),
    ModelEntry("gruwe", "GRUwE", GRUwECell),
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
    ModelEntry(
        "cornn",
        "coRNN",
        CoRNNCell,
        tune={"step_size": (0.01, 0.05, 0.2), "gamma": (1.0, 3.0, 5.0), "eps": (1.0, 5.0)},
    ),
    ModelEntry(
        "lipschitz-rnn",
        "Lipschitz RNN",
        LipschitzRNNCell,
        tune={"beta": (0.65, 0.8, 0.9), "gamma": (0.001, 0.01, 0.1)},
    ),
    ModelEntry("lmu", "LMU", LMUCell, tune={"theta": (30.0, 100.0, 300.0)}),
    ModelEntry("hippo-legs", "HiPPO-LegS", HiPPOCell),
    ModelEntry("hippo-lagt", "HiPPO-LagT", HiPPOCell, {"measure": "lagt"}),
    ModelEntry("exprnn", "expRNN", ExpRNNCell),
    ModelEntry("linoss", "LinOSS", LinOSSCell),
    ModelEntry("slice", "SLiCE", SLiCECell, tune={"scale": (0.025, 0.1, 0.5)}),
    ModelEntry("rits", "RITS", RITSCell),
    ModelEntry("cru", "CRU", CRUCell, tune={"bases": (5, 15), "units": (30, 50, 100)}),
    ModelEntry("linodenet", "LinODENet", LinODENetCell, tune={"blocks": (1, 2, 5)}),
)
"""Of cells that :mod:`tauflow.cells` exports, and whose modules :mod:`tauflow` exports."""

OTHER_ENTRIES: tuple[ModelEntry, ...] = (
    ModelEntry("min-gru", "minGRU", MinGRUCell),
    ModelEntry("min-lstm", "minLSTM", MinLSTMCell),
    ModelEntry("slstm", "sLSTM", SLSTMCell, tune={"heads": (1, 2, 4)}),
    ModelEntry("s6", "S6", S6Cell, tune={"order": (8, 16), "step_max": (0.1, 1.0)}),
    ModelEntry("liquid-s4", "Liquid-S4", LiquidS4Cell, tune={"step_max": (0.1, 0.3, 1.0)}),
    ModelEntry("neural-flow", "Neural flow", NeuralFlowCell, tune={"flow_layers": (1, 2, 4)}),
)
"""Of cells that :mod:`tauflow.zoo` exports, with their modules."""

WHOLE_ENTRIES: tuple[WholeModelEntry, ...] = (
    WholeModelEntry("transformer", "Transformer", Transformer),
    WholeModelEntry("ip-net", "IP-Net", IPNet),
    WholeModelEntry("seft", "SeFT", SeFT),
    WholeModelEntry("mtan", "mTAN", MTAN),
    WholeModelEntry("mtan-full", "mTAND-Full", MTANFull),
    WholeModelEntry("t-patchgnn", "t-PatchGNN", TPatchGNN),
    WholeModelEntry("latent-ode-rnn", "Latent-ODE-RNN", LatentODE, {"encoder": "rnn"}),
    WholeModelEntry("latent-ode-ode", "Latent-ODE-ODE", LatentODE, {"encoder": "ode-rnn"}),
    WholeModelEntry("rnn-vae", "RNN-VAE", RNNVAE),
    WholeModelEntry("brits", "BRITS", BRITS),
    WholeModelEntry("grafiti", "GraFITi", GraFITi),
)
"""Of whole models."""
