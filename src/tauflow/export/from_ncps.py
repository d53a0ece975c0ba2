"""Networks of ``ncps`` as networks of tauflow, with the same weights and outputs.

``ncps`` itself is neither needed nor imported: its classes are recognised by name.
"""

import copy
from typing import Any

import torch
from torch import nn

from tauflow.errors import ArgumentError
from tauflow.models import SequenceModel
from tauflow.sequence import LTC, CatalogRNN, CfC, SequenceModule, WiredCfC

from .ncps_networks import backbone_options, build_network, cfc_options, copy_weights, ltc_options
from .ncps_wirings import convert_wiring

SUPPORTED = ("LTC", "LTCCell", "CfC", "CfCCell", "WiredCfCCell")
_ACTIVATIONS = {
    "SiLU": "silu",
    "ReLU": "relu",
    "Tanh": "tanh",
    "GELU": "gelu",
    "LeCun": "lecun_tanh",
}


def from_ncps(source: nn.Module) -> SequenceModule | SequenceModel:
    """Convert a network of ``ncps.torch``, with its weights.

    Takes ``LTC``, ``CfC``, ``LTCCell``, ``CfCCell`` and ``WiredCfCCell``, wired or not, with or
    without mixed memory, in any mode. With the same time steps, outputs and states are the same.
    The two parts (h, c) of a mixed-memory state are one tensor here, ``torch.cat([h, c], -1)``.
    Pass time steps as (B, T); ``ncps`` broadcasts them over the wrong axis.

    A state dict alone is loaded by the class of the same name and arguments in
    :mod:`tauflow.compat.ncps.torch`. Of a module of that package the network is copied.

    Args:
        source: the module.

    Returns:
        The sequence module, with the dtype, device and training mode of the source; inside a
        :class:`~tauflow.models.SequenceModel` if the source has a ``proj_size``, since the
        projection of ``ncps`` has a bias. An LTC without implicit constraints becomes one with
        ``constraint="relu"``: it computes with the values as they are, and an optimizer that
        trains it on ends each step with what ``apply_weight_constraints`` does.

    Raises:
        ArgumentError: the source is of a class that is not supported, or is not batch first.
    """
    module: Any = source
    _check_class(module)
    if not getattr(module, "batch_first", True):
        raise ArgumentError(
            "from_ncps: the module has batch_first=False, and modules of tauflow take (B, T, I). "
            "Set its batch_first to True, convert, and transpose your inputs."
        )
    if _is_compatible(module):
        network = copy.deepcopy(module.rnn)
        assert isinstance(network, SequenceModule | SequenceModel)
        return network
    kind, input_size, size, options = _read_cell(getattr(module, "rnn_cell", module))
    with torch.random.fork_rng(devices=[]):  # the initial values are overwritten at once
        network = build_network(
            kind,
            input_size,
            size,
            mixed_memory=getattr(module, "use_mixed", False),
            proj_size=getattr(module, "proj_size", None),
            return_sequences=getattr(module, "return_sequences", True),
            **options,
        )
    like = next(source.parameters())
    network.to(device=like.device, dtype=like.dtype)
    copy_weights(network, source.state_dict())
    return network.train(source.training)


def _is_compatible(source: Any) -> bool:
    """Return whether a module is of the package that has the signatures of ``ncps``."""
    return type(source).__module__ == "tauflow.compat.ncps.torch"


def _check_class(source: Any) -> None:
    """Raise unless a module is of a supported class; a subclass may compute something else."""
    cls = type(source)
    known = cls.__module__.startswith("ncps.torch") or _is_compatible(source)
    if not known or cls.__name__ not in SUPPORTED:
        raise ArgumentError(
            f"from_ncps: cannot convert a {cls.__module__}.{cls.__name__}, only ncps.torch's "
            f"{', '.join(SUPPORTED)}. For a state_dict(), or a subclass that computes the same, "
            "build the class of that name in tauflow.compat.ncps.torch and call its "
            "load_state_dict()."
        )


def _read_cell(cell: Any) -> tuple[type[CatalogRNN], int, Any, dict[str, Any]]:
    """Return the class, input size, neurons or wiring, and options of the network of a cell."""
    if type(cell).__name__ == "LTCCell":
        options = ltc_options(
            cell._input_mapping,
            cell._output_mapping,
            cell._ode_unfolds,
            cell._epsilon,
            cell._implicit_param_constraints,
        )
        return LTC, cell._wiring.input_dim, convert_wiring(cell._wiring), options
    if type(cell).__name__ == "WiredCfCCell":
        wiring = convert_wiring(cell._wiring, layered_output=True)
        return WiredCfC, cell._wiring.input_dim, wiring, cfc_options(cell.layer_0.mode)
    if cell.sparsity_mask is not None:
        raise ArgumentError(
            "from_ncps: a CfCCell with a sparsity_mask has no counterpart in tauflow. "
            "Convert the WiredCfCCell that it belongs to."
        )
    parts = list(cell.backbone or ())
    dropout = next((part.p for part in parts if isinstance(part, nn.Dropout)), 0.0)
    units, activation = (parts[0].out_features, type(parts[1]).__name__) if parts else (0, "LeCun")
    backbone = backbone_options(_ACTIVATIONS[activation], units, cell.backbone_layers, dropout)
    return CfC, cell.input_size, cell.hidden_size, {**cfc_options(cell.mode), **backbone}
