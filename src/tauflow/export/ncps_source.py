"""What an ``ncps`` module or state dict holds, read without importing ``ncps``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tauflow.errors import ArgumentError

SUPPORTED = ("LTC", "LTCCell", "CfC", "CfCCell", "WiredCfCCell")

_ACTIVATION_CLASSES = {
    "SiLU": "silu",
    "ReLU": "relu",
    "Tanh": "tanh",
    "GELU": "gelu",
    "LeCun": "lecun_tanh",
}
_SETTING_NAMES = {
    "ltc": {
        "wiring",
        "ode_unfolds",
        "epsilon",
        "implicit_param_constraints",
        "return_sequences",
    },
    "cfc": {"mode", "backbone_activation", "backbone_dropout", "return_sequences"},
    "wired-cfc": {"wiring", "mode", "return_sequences"},
}


@dataclass(frozen=True)
class NcpsSettings:
    """What the tensors do not tell; the defaults are those of ``ncps``."""

    wiring: Any = None
    mode: str = "default"
    backbone_activation: str = "lecun_tanh"
    backbone_dropout: float = 0.0
    ode_unfolds: int = 6
    epsilon: float = 1e-8
    implicit_param_constraints: bool = False
    return_sequences: bool = True


class NcpsTensors:
    """The tensors of an ``ncps`` state dict, each taken once, and what can be inferred from them.

    A cell's tensors go by the same names whether it stood alone or inside a sequence module.

    Args:
        state: the state dict of one of :data:`SUPPORTED`.

    Raises:
        ArgumentError: the keys are those of something else.
    """

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self.is_sequence = any(key.startswith("rnn_cell.") for key in state)
        self._rest = {key.removeprefix("rnn_cell."): value for key, value in state.items()}
        self.kind = self._infer_kind()
        self.is_pure = any(key.endswith("w_tau") for key in state)

    def __contains__(self, name: str) -> bool:
        """Whether there is a tensor of that name which is not taken yet."""
        return name in self._rest

    def peek(self, name: str) -> Tensor:
        """Return a tensor, leaving it to be taken."""
        if name not in self._rest:
            raise ArgumentError(
                f"from_ncps: the state dict has no {name!r}, which this {self.kind} of ncps has. "
                "Pass the whole state_dict() of the module."
            )
        return self._rest[name].detach()

    def take(self, name: str) -> Tensor:
        """Remove and return a tensor."""
        value = self.peek(name)
        del self._rest[name]
        return value

    def numbered_prefixes(self, prefix: str) -> list[str]:
        """Return ``prefix`` with each number that follows it in a name, in order."""
        rests = (key[len(prefix) :] for key in self._rest if key.startswith(prefix))
        return [f"{prefix}{number}" for number in sorted({int(r.split(".")[0]) for r in rests})]

    def finish(self) -> None:
        """Raise if a tensor was not taken."""
        if self._rest:
            raise ArgumentError(
                f"from_ncps: the state dict has tensors that this {self.kind} of ncps has not: "
                f"{', '.join(sorted(self._rest))}. Pass the state_dict() of that module alone, "
                "and check mode and wiring."
            )

    def _infer_kind(self) -> str:
        if "gleak" in self:
            return "ltc"
        if "layer_0.ff1.weight" in self:
            return "wired-cfc"
        if "ff1.weight" not in self:
            raise ArgumentError(
                "from_ncps: the keys are not those of an ncps.torch module "
                f"({', '.join(SUPPORTED)}): {', '.join(sorted(self._rest)[:5])}, ... "
                "Pass the state_dict() of that module alone, without prefixes before its keys."
            )
        if "sparsity_mask" in self:
            raise ArgumentError(
                "from_ncps: a CfCCell with a sparsity_mask of its own has no counterpart in "
                "tauflow. Convert the WiredCfCCell that it belongs to."
            )
        return "cfc"


def resolve_state_settings(tensors: NcpsTensors, overrides: Mapping[str, Any]) -> NcpsSettings:
    """Return the caller's settings for a bare state dict, with the defaults of ``ncps``.

    Raises:
        ArgumentError: a setting makes no sense for this kind, or contradicts the tensors.
    """
    known = _SETTING_NAMES[tensors.kind]
    for name in overrides:
        if name not in known:
            raise ArgumentError(
                f"from_ncps: {name} has no meaning for the state dict of a {tensors.kind}. "
                f"Leave it out; the settings are: {', '.join(sorted(known))}."
            )
    if not tensors.is_sequence and "return_sequences" in overrides:
        raise ArgumentError("from_ncps: a cell has no return_sequences. Leave it out.")
    values = dict(overrides)
    if tensors.is_pure and values.setdefault("mode", "pure") != "pure":
        raise ArgumentError(
            f"from_ncps: mode={values['mode']!r}, but the state dict has w_tau, which only the "
            "mode 'pure' has. Leave mode out."
        )
    # ncps.torch.LTC keeps its parameters positive with softplus, the bare LTCCell by clipping.
    values.setdefault("implicit_param_constraints", tensors.is_sequence)
    return NcpsSettings(**values)


def read_module_settings(module: nn.Module) -> NcpsSettings:
    """Read the settings off an ``ncps.torch`` module.

    Raises:
        ArgumentError: the module is not one of :data:`SUPPORTED`, or its axes are time first.
    """
    name = _class_name(module)
    source: Any = module
    cell = source.rnn_cell if name in ("LTC", "CfC") else source
    if not getattr(source, "batch_first", True):
        raise ArgumentError(
            "from_ncps: the module has batch_first=False, and modules of tauflow take (B, T, I). "
            "Set its batch_first to True, convert, and transpose your inputs."
        )
    values: dict[str, Any] = {"return_sequences": getattr(source, "return_sequences", True)}
    values |= _READERS[_class_name(cell)](cell)
    return NcpsSettings(**values)


def _class_name(module: Any) -> str:
    """Return the class of a module of ``ncps.torch``; a subclass may compute something else."""
    cls = type(module)
    if not cls.__module__.startswith("ncps.torch") or cls.__name__ not in SUPPORTED:
        raise ArgumentError(
            f"from_ncps: cannot convert a {cls.__module__}.{cls.__name__}, only ncps.torch's "
            f"{', '.join(SUPPORTED)}. For a subclass that computes the same, pass its state_dict()."
        )
    return cls.__name__


def _read_ltc(cell: Any) -> dict[str, Any]:
    return {
        "wiring": cell._wiring,
        "ode_unfolds": cell._ode_unfolds,
        "epsilon": cell._epsilon,
        "implicit_param_constraints": cell._implicit_param_constraints,
    }


def _read_cfc(cell: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"mode": cell.mode}
    for part in cell.backbone or ():
        if isinstance(part, nn.Dropout):
            values["backbone_dropout"] = part.p
        elif type(part).__name__ in _ACTIVATION_CLASSES:
            values["backbone_activation"] = _ACTIVATION_CLASSES[type(part).__name__]
    return values


def _read_wired_cfc(cell: Any) -> dict[str, Any]:
    return {"wiring": cell._wiring, "mode": cell.layer_0.mode}


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "LTCCell": _read_ltc,
    "CfCCell": _read_cfc,
    "WiredCfCCell": _read_wired_cfc,
}
