"""Networks of ``ncps`` as networks of tauflow, with the same weights and outputs.

``ncps`` itself is neither needed nor imported: its classes are recognised by name.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tauflow.cells import AbstractCell, CfCCell, LTCCell, MixedMemoryCell, WiredCfCCell
from tauflow.cells.cfc_heads import ClosedFormHeads
from tauflow.errors import ArgumentError
from tauflow.models import SequenceModel
from tauflow.sequence import LTC, CatalogRNN, CfC, MixedMemory, SequenceModule, WiredCfC
from tauflow.wirings import AbstractWiring

from .ncps_source import NcpsSettings, NcpsTensors, read_module_settings, resolve_state_settings
from .ncps_wirings import convert_wiring, infer_cfc_wiring, infer_ltc_wiring

_MODULES: dict[str, type[CatalogRNN]] = {"ltc": LTC, "cfc": CfC, "wired-cfc": WiredCfC}
_KEY_TENSORS = {"ltc": "gleak", "cfc": "ff1.weight", "wired-cfc": "layer_0.ff1.weight"}
_INIT = {"init": "torch", "init_gain": 1.0}
_LTC_NAMES = {
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
}
_LTC_MAPS = {"a_in": "input_w", "b_in": "input_b", "a_out": "output_w", "b_out": "output_b"}


def from_ncps(
    source: nn.Module | Mapping[str, Tensor],
    *,
    wiring: Any = None,
    mode: str | None = None,
    backbone_activation: str | None = None,
    backbone_dropout: float | None = None,
    ode_unfolds: int | None = None,
    epsilon: float | None = None,
    implicit_param_constraints: bool | None = None,
    return_sequences: bool | None = None,
) -> SequenceModule | SequenceModel:
    """Convert a network of ``ncps.torch``, with its weights.

    Takes ``LTC``, ``CfC``, ``LTCCell``, ``CfCCell`` and ``WiredCfCCell``, wired or not, with or
    without mixed memory, in any mode. With the same gaps, outputs and states are the same. The
    two parts (h, c) of a mixed-memory state are one tensor here, ``torch.cat([h, c], -1)``. Pass
    gaps as (B, T); ``ncps`` broadcasts them over the wrong axis.

    Everything is read from a module. From a state dict, the kind, sizes, number of backbone layers,
    mappings, connections and the mode ``"pure"`` are inferred; the keywords tell the rest, and
    default to what ``ncps`` defaults to. They are for state dicts only.

    Args:
        source: the module, or its state dict.
        wiring: of an LTC or a wired CfC, of tauflow or of ``ncps``. By default the connections are
            those of the state dict, the polarities the signs of the reversal potentials (all
            excitatory for a CfC, which has none), and the outputs as many as the output mapping
            has, or all.
        mode: ``"default"`` or ``"no_gate"``, whose tensors are alike; default ``"default"``.
        backbone_activation: default ``"lecun_tanh"``.
        backbone_dropout: default 0.
        ode_unfolds: default 6.
        epsilon: default 1e-8.
        implicit_param_constraints: default true for an ``LTC``, false for an ``LTCCell``.
        return_sequences: default true.

    Returns:
        The sequence module, with the dtype, device and training mode of the source; inside a
        :class:`~tauflow.models.SequenceModel` if the source has a ``proj_size``, since the
        projection of ``ncps`` has a bias. An LTC without implicit constraints becomes one with
        ``constraint="relu"``: it computes with the values as they are, and an optimizer that
        trains it on ends each step with what ``apply_weight_constraints`` does.

    Raises:
        ArgumentError: the source is neither, is a class that is not supported, is not batch first,
            or a keyword or the wiring contradicts it.
    """
    given = {
        "wiring": wiring,
        "mode": mode,
        "backbone_activation": backbone_activation,
        "backbone_dropout": backbone_dropout,
        "ode_unfolds": ode_unfolds,
        "epsilon": epsilon,
        "implicit_param_constraints": implicit_param_constraints,
        "return_sequences": return_sequences,
    }
    tensors, settings = _read_source(source, {k: v for k, v in given.items() if v is not None})
    with torch.random.fork_rng(devices=[]):  # the initial values are overwritten at once
        target = _build(tensors, settings)
    any_tensor = tensors.peek(_KEY_TENSORS[tensors.kind])
    target.to(device=any_tensor.device, dtype=any_tensor.dtype)
    if isinstance(target, SequenceModel):
        _copy_tensor(target.head.weight, tensors.take("fc.weight"), "fc.weight")
        _copy_tensor(target.head.bias, tensors.take("fc.bias"), "fc.bias")
    body = target.rnn if isinstance(target, SequenceModel) else target
    assert isinstance(body, SequenceModule)
    _copy_cell(body.cell, tensors)
    tensors.finish()
    if isinstance(source, nn.Module):
        target.train(source.training)
    return target


def _read_source(source: Any, overrides: dict[str, Any]) -> tuple[NcpsTensors, NcpsSettings]:
    if isinstance(source, nn.Module):
        settings = read_module_settings(source)
        if overrides:
            raise ArgumentError(
                f"from_ncps: {', '.join(overrides)} is read from the module. Leave it out, or pass "
                "the module's state_dict()."
            )
        return NcpsTensors(source.state_dict()), settings
    if isinstance(source, Mapping) and all(isinstance(v, Tensor) for v in source.values()):
        tensors = NcpsTensors(source)
        return tensors, resolve_state_settings(tensors, overrides)
    raise ArgumentError(
        "from_ncps: source must be an ncps.torch module or its state dict, got "
        f"{type(source).__name__}. Pass the module itself, or module.state_dict()."
    )


def _build(tensors: NcpsTensors, settings: NcpsSettings) -> SequenceModule | SequenceModel:
    """Build the network that the tensors fit, with fresh weights."""
    input_size, units, options = _ARGUMENTS[tensors.kind](tensors, settings)
    module = _MODULES[tensors.kind]
    if "lstm.input_map.weight" in tensors:
        module = MixedMemory
        options |= {"core": tensors.kind, "form": "state", "forget_bias": 1.0}
    rnn = module(input_size, units, return_sequences=settings.return_sequences, **options)
    if "fc.weight" not in tensors:
        return rnn
    return SequenceModel(rnn, tensors.peek("fc.weight").shape[0])


def _ltc_arguments(
    tensors: NcpsTensors, settings: NcpsSettings
) -> tuple[int, AbstractWiring, dict[str, Any]]:
    if settings.wiring is None:
        wiring = infer_ltc_wiring(tensors)
    else:
        wiring = convert_wiring(settings.wiring)
    constraint = "softplus-raw" if settings.implicit_param_constraints else "relu"
    options = {
        "substeps": settings.ode_unfolds,
        "epsilon": settings.epsilon,
        "constraint": constraint,
        "input_mapping": _infer_mapping("input", tensors),
        "output_mapping": _infer_mapping("output", tensors),
    }
    return tensors.peek("sensory_w").shape[0], wiring, options


def _cfc_arguments(tensors: NcpsTensors, settings: NcpsSettings) -> tuple[int, int, dict[str, Any]]:
    units, features = tensors.peek("ff1.weight").shape
    options: dict[str, Any] = {"backbone_layers": 0}
    if layers := tensors.numbered_prefixes("backbone."):
        backbone_units, features = tensors.peek(f"{layers[0]}.weight").shape
        options = {
            "backbone_layers": len(layers),
            "backbone_units": backbone_units,
            "backbone_activation": settings.backbone_activation,
            "backbone_dropout": settings.backbone_dropout,
            "dropout_first": False,
        }
    return features - units, units, options | _head_options(settings)


def _wired_cfc_arguments(
    tensors: NcpsTensors, settings: NcpsSettings
) -> tuple[int, AbstractWiring, dict[str, Any]]:
    if settings.wiring is None:
        wiring = infer_cfc_wiring(tensors)
    else:
        wiring = convert_wiring(settings.wiring, layered_output=True)
    units, features = tensors.peek("layer_0.ff1.weight").shape
    return features - units, wiring, _head_options(settings)


def _head_options(settings: NcpsSettings) -> dict[str, Any]:
    gate = {} if settings.mode == "pure" else {"activation": "tanh", "time_sign": 1}
    return {"mode": settings.mode, **gate, **_INIT}


_ARGUMENTS: dict[str, Callable[[NcpsTensors, NcpsSettings], tuple[int, Any, dict[str, Any]]]] = {
    "ltc": _ltc_arguments,
    "cfc": _cfc_arguments,
    "wired-cfc": _wired_cfc_arguments,
}


def _infer_mapping(side: str, tensors: NcpsTensors) -> str:
    if f"{side}_w" not in tensors:
        return "none"
    return "affine" if f"{side}_b" in tensors else "linear"


def _copy_cell(cell: AbstractCell, tensors: NcpsTensors) -> None:
    """Copy the tensors into a cell, whatever its kind."""
    match cell:
        case MixedMemoryCell():
            _copy_memory(cell, tensors)
            _copy_cell(cell.core, tensors)
        case LTCCell():
            _copy_ltc(cell, tensors)
        case CfCCell():
            for number, name in enumerate(tensors.numbered_prefixes("backbone.")):
                for kind in ("weight", "bias"):
                    ours = cell.backbone.get_parameter(f"layers.{number}.{kind}")
                    _copy_tensor(ours, tensors.take(f"{name}.{kind}"), f"{name}.{kind}")
            _copy_heads(cell.heads, tensors, "")
        case WiredCfCCell():
            for number, heads in enumerate(cell.layers):
                assert isinstance(heads, ClosedFormHeads)
                _copy_heads(heads, tensors, f"layer_{number}.")


def _copy_memory(cell: MixedMemoryCell, tensors: NcpsTensors) -> None:
    for ours, name in (
        (cell.W_x, "lstm.input_map.weight"),
        (cell.W_h, "lstm.recurrent_map.weight"),
        (cell.b, "lstm.input_map.bias"),
    ):
        g, i, f, o = tensors.take(name).chunk(4)  # ncps puts the candidate before the gates
        _copy_tensor(ours, torch.cat([i, f, g, o]), name)


def _copy_ltc(cell: LTCCell, tensors: NcpsTensors) -> None:
    for ours, name in (("synapses", "sparsity_mask"), ("synapses_x", "sensory_sparsity_mask")):
        _check_same_mask(cell.get_buffer(ours), tensors.take(name), name)
    for ours, name in (_LTC_NAMES | _LTC_MAPS).items():
        parameter = getattr(cell, ours)
        if parameter is not None:
            _copy_tensor(parameter, tensors.take(name), name)


def _copy_heads(heads: ClosedFormHeads, tensors: NcpsTensors, prefix: str) -> None:
    if heads.synapses is not None:
        name = f"{prefix}sparsity_mask"
        _check_same_mask(heads.synapses[: heads.hidden_size], tensors.take(name), name)
    pure = heads.mode == "pure"
    names = [prefix + name for name in (["ff1"] if pure else ["ff1", "ff2", "time_a", "time_b"])]
    for ours, kind in ((heads.weight, "weight"), (heads.bias, "bias")):
        joined = torch.cat([tensors.take(f"{name}.{kind}") for name in names])
        _copy_tensor(ours, joined, f"{prefix}ff1.{kind}")
    if pure:
        _copy_tensor(heads.w_tau, tensors.take(f"{prefix}w_tau").squeeze(0), f"{prefix}w_tau")
        _copy_tensor(heads.A, tensors.take(f"{prefix}A").squeeze(0), f"{prefix}A")


@torch.no_grad()
def _copy_tensor(target: Tensor, source: Tensor, name: str) -> None:
    if target.shape != source.shape:  # copy_ would broadcast silently
        raise ArgumentError(
            f"from_ncps: {name} has shape {tuple(source.shape)}, expected {tuple(target.shape)} "
            "from "
            "the other tensors and the wiring. Pass one module's state_dict() and its own wiring."
        )
    target.copy_(source)


def _check_same_mask(target: Tensor, source: Tensor, name: str) -> None:
    if not torch.equal(target, source.to(target.dtype)):
        raise ArgumentError(
            f"from_ncps: the wiring does not have the synapses of {name}. Pass the wiring that "
            "the module was built with, or leave it out to take the synapses as they are."
        )
