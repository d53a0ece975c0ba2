"""Torch's older reparametrisations of layers around cells, which count on these being called."""

from torch import nn
from torch.nn.utils import remove_spectral_norm, remove_weight_norm
from torch.nn.utils.prune import BasePruningMethod, remove
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from tauflow._internal.module_hooks import PARAMETRIZATION_HOOKS


def recompute_parameters(module: nn.Module) -> None:
    """Compute what pruning, ``spectral_norm`` and ``weight_norm`` make of the parts' parameters.

    They do so in a hook before a part's ``forward``, which streams and exports do not call. Cells
    refuse such hooks. Those of ``torch.nn.utils.parametrizations`` need no help.
    """
    for part in module._modules.values():  # as every forward pass looks, not by modules()
        if part is None:
            continue
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, PARAMETRIZATION_HOOKS):
                hook(part, ())
        if part._modules:
            recompute_parameters(part)


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
