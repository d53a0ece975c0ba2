"""Networks of tauflow with the arguments of ``ncps.torch``, and the weights of its state dicts."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tauflow.cells import AbstractCell, CfCCell, LTCCell, MixedMemoryCell, WiredCfCCell
from tauflow.cells.cfc_heads import ClosedFormHeads
from tauflow.errors import ArgumentError
from tauflow.models import SequenceModel
from tauflow.sequence import LTC, CatalogRNN, CfC, MixedMemory, SequenceModule, WiredCfC

_CORES: dict[type[CatalogRNN], str] = {LTC: "ltc", CfC: "cfc", WiredCfC: "wired-cfc"}
_LTC_TENSORS = {
    "w": "w",
    "mu": "mu",
    "sigma": "sigma",
    "E": "erev",
    "w_x": "sensory_w",
    "mu_x": "sensory_mu",
    "sigma_x": "sensory_sigma",
    "E_x": "sensory_erev",
    "g_l": "gleak",
    "V_l": "vleak",
    "C": "cm",
    "a_in": "input_w",
    "b_in": "input_b",
    "a_out": "output_w",
    "b_out": "output_b",
}


def ltc_options(
    input_mapping: str | None,
    output_mapping: str | None,
    ode_unfolds: int,
    epsilon: float,
    implicit_param_constraints: bool,
) -> dict[str, Any]:
    """Return the options of an LTC for the arguments of ``ncps.torch.LTC``."""
    return {
        "substeps": ode_unfolds,
        "epsilon": epsilon,
        "constraint": "softplus-raw" if implicit_param_constraints else "relu",
        "input_mapping": input_mapping or "none",
        "output_mapping": output_mapping or "none",
    }


def cfc_options(mode: str) -> dict[str, Any]:
    """Return the options of a CfC, wired or not, in a mode of ``ncps.torch.CfC``."""
    gate = {} if mode == "pure" else {"activation": "tanh", "time_sign": 1}
    return {"mode": mode, **gate, "init": "torch", "init_gain": 1.0}


def backbone_options(
    activation: str, units: int | None, layers: int | None, dropout: float | None
) -> dict[str, Any]:
    """Return the options of a CfC's backbone for the arguments of ``ncps.torch.CfC``."""
    depth = 1 if layers is None else layers
    if not depth:
        return {"backbone_layers": 0}
    return {
        "backbone_layers": depth,
        "backbone_units": 128 if units is None else units,
        "backbone_activation": activation,
        "backbone_dropout": (dropout or 0.0) if depth > 1 else 0.0,  # which spares the first
        "dropout_first": False,
    }


def build_network(
    kind: type[CatalogRNN],
    input_size: int,
    size: Any,
    *,
    mixed_memory: bool = False,
    proj_size: int | None = None,
    **options: Any,
) -> SequenceModule | SequenceModel:
    """Return the network that a module of ``ncps.torch`` is.

    Args:
        kind: :class:`tauflow.LTC`, ``CfC`` or ``WiredCfC``.
        input_size: features per time point.
        size: neurons, or a wiring.
        mixed_memory: whether a memory stands beside the state.
        proj_size: width of a dense layer, with a bias, on the outputs.
        **options: of the module.
    """
    if mixed_memory:
        options |= {"core": _CORES[kind], "form": "state"}
        kind = MixedMemory
    rnn = kind(input_size, size, **options)
    return rnn if proj_size is None else SequenceModel(rnn, proj_size)


class _NcpsTensors(dict[str, Tensor]):
    """The tensors of a state dict, each taken once."""

    def take(self, name: str) -> Tensor:
        """Remove and return a tensor."""
        if name not in self:
            raise ArgumentError(
                f"the state dict of ncps has no {name!r}, which this network needs. Pass the whole "
                "state_dict() of a module that was built with the same arguments."
            )
        return self.pop(name).detach()

    def numbered_prefixes(self, prefix: str) -> list[str]:
        """Return ``prefix`` with each number that follows it in a name, in order."""
        rests = (key[len(prefix) :] for key in self if key.startswith(prefix))
        return [f"{prefix}{number}" for number in sorted({int(r.split(".")[0]) for r in rests})]


def copy_weights(network: SequenceModule | SequenceModel, state: Mapping[str, Tensor]) -> None:
    """Copy the tensors of an ``ncps.torch`` module into the network that was built for it.

    Args:
        network: of :func:`build_network`.
        state: the state dict of the module, or of its cell alone.

    Raises:
        ArgumentError: a tensor is missing, too many or of another shape, or the module has other
            synapses than the network.
    """
    tensors = _NcpsTensors({key.removeprefix("rnn_cell."): value for key, value in state.items()})
    body: Any = network
    if isinstance(network, SequenceModel):
        body = network.rnn
        _copy(network.head.weight, tensors.take("fc.weight"), "fc.weight")
        _copy(network.head.bias, tensors.take("fc.bias"), "fc.bias")
    _copy_cell(body.cell, tensors)
    if tensors:
        raise ArgumentError(
            "the state dict of ncps has tensors that this network has not: "
            f"{', '.join(sorted(tensors))}. Pass the state_dict() of one module alone, without "
            "prefixes before its keys, that was built with the same arguments."
        )


def _copy_cell(cell: AbstractCell, tensors: _NcpsTensors) -> None:
    """Copy the tensors into a cell, whatever its kind."""
    match cell:
        case MixedMemoryCell():
            for ours, name in (
                (cell.W_x, "lstm.input_map.weight"),
                (cell.W_h, "lstm.recurrent_map.weight"),
                (cell.b, "lstm.input_map.bias"),
            ):
                g, i, f, o = tensors.take(name).chunk(4)  # ncps puts the candidate before the gates
                _copy(ours, torch.cat([i, f, g, o]), name)
            _copy_cell(cell.core, tensors)
        case LTCCell():
            _check_synapses(cell.synapses, tensors.take("sparsity_mask"))
            _check_synapses(cell.synapses_x, tensors.take("sensory_sparsity_mask"))
            for attribute, name in _LTC_TENSORS.items():
                if (parameter := getattr(cell, attribute)) is not None:
                    _copy(parameter, tensors.take(name), name)
        case CfCCell():
            layers, names = cell.backbone.dense(), tensors.numbered_prefixes("backbone.")
            names += [f"backbone.{2 * number}" for number in range(len(names), len(layers))]
            for layer, name in zip(layers, names, strict=False):
                _copy(layer.weight, tensors.take(f"{name}.weight"), f"{name}.weight")
                _copy(layer.bias, tensors.take(f"{name}.bias"), f"{name}.bias")
            _copy_heads(cell.heads, tensors, "")
        case WiredCfCCell():
            for number, heads in enumerate(cell.layers):
                assert isinstance(heads, ClosedFormHeads)
                _copy_heads(heads, tensors, f"layer_{number}.")


def _copy_heads(heads: ClosedFormHeads, tensors: _NcpsTensors, prefix: str) -> None:
    if heads.synapses is not None:
        _check_synapses(heads.synapses[: heads.hidden_size], tensors.take(f"{prefix}sparsity_mask"))
    pure = heads.mode == "pure"
    names = [prefix + name for name in (["ff1"] if pure else ["ff1", "ff2", "time_a", "time_b"])]
    for parameter, kind in ((heads.weight, "weight"), (heads.bias, "bias")):
        joined = torch.cat([tensors.take(f"{name}.{kind}") for name in names])
        _copy(parameter, joined, f"{prefix}ff1.{kind}")
    if pure:
        _copy(heads.w_tau, tensors.take(f"{prefix}w_tau").squeeze(0), f"{prefix}w_tau")
        _copy(heads.A, tensors.take(f"{prefix}A").squeeze(0), f"{prefix}A")


@torch.no_grad()
def _copy(target: Tensor, source: Tensor, name: str) -> None:
    if target.shape != source.shape:  # copy_ would broadcast silently
        raise ArgumentError(
            f"{name} of ncps has shape {tuple(source.shape)}, expected {tuple(target.shape)}. Pass "
            "the state_dict() of a module that was built with the same arguments."
        )
    target.copy_(source)


def _check_synapses(target: Tensor, source: Tensor) -> None:
    if target.shape != source.shape or not torch.equal(target, source.to(target)):
        raise ArgumentError(
            "the module of ncps has other synapses than this network. Build it with the wiring of "
            "that module."
        )
