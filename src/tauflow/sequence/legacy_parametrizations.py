"""Torch's older reparametrisations, which count on every part of a module being called."""

from torch import nn
from torch.nn.utils import remove_spectral_norm, remove_weight_norm
from torch.nn.utils.prune import BasePruningMethod, remove
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from tauflow._internal.module_hooks import PARAMETRIZATION_HOOKS


def recompute_parameters(module: nn.Module) -> None:
    """Compute what pruning, ``spectral_norm`` and ``weight_norm`` make of the parts' parameters.

    They do so in a hook before a part's ``forward``, which nothing calls: kernels and steps read
    the parameters themselves. Those of ``torch.nn.utils.parametrizations`` need no help.
    """
    for part in module._modules.values():  # as every forward pass looks, not by modules()
        if part is None:
            continue
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, PARAMETRIZATION_HOOKS):
                hook(part, ())
        if part._modules:
            recompute_parameters(part)


def recompute_all_parameters(module: nn.Module) -> None:
    """Do the same of a module that may be no part of another, as a cell by itself is none."""
    recompute_parameters(nn.ModuleList([module]))


class ComputedParameters:
    """What they have computed of the parameters of a module for one call, with its graph.

    A later call, and a part that is called, put other tensors in its place, perhaps without a
    graph. Steps that are run once more, in the backward pass, read what the call began with.
    """

    def __init__(self, module: nn.Module) -> None:
        self._held = [
            (part, name, getattr(part, name))
            for part in module.modules()
            for hook in part._forward_pre_hooks.values()
            if (name := _parameter_name(hook)) is not None
        ]

    def restore(self) -> None:
        """Let the module have these tensors again."""
        for part, name, tensor in self._held:
            setattr(part, name, tensor)


def _parameter_name(hook: object) -> str | None:
    """Return the parameter that a hook computes, if it is one of these."""
    if isinstance(hook, BasePruningMethod):
        return hook._tensor_name
    return hook.name if isinstance(hook, SpectralNorm | WeightNorm) else None


def remove_legacy_parametrizations(module: nn.Module) -> None:
    """Put what they compute in the place of the parts' parameters, and take them away."""
    for part in module.modules():
        for hook in [*part._forward_pre_hooks.values()]:
            if isinstance(hook, BasePruningMethod):
                assert hook._tensor_name is not None
                remove(part, hook._tensor_name)
            elif isinstance(hook, SpectralNorm):
                remove_spectral_norm(part, hook.name)
            elif isinstance(hook, WeightNorm):
                remove_weight_norm(part, hook.name)
