"""Torch's older reparametrisations, which count on every part of a module being called."""

from torch import nn
from torch.nn.utils import remove_spectral_norm, remove_weight_norm
from torch.nn.utils.prune import BasePruningMethod, remove
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from tauflow.cells.built import REPARAMETRISATIONS


def recompute_parameters(module: nn.Module) -> None:
    """Compute what pruning, ``spectral_norm`` and ``weight_norm`` make of the parts' parameters.

    They do so in a hook before a part's ``forward``, which nothing calls: kernels and steps read
    the parameters themselves. Those of ``torch.nn.utils.parametrizations`` need no help.
    """
    for part in module._modules.values():  # as every forward pass looks, not by modules()
        if part is None:
            continue
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, REPARAMETRISATIONS):
                hook(part, ())
        if part._modules:
            recompute_parameters(part)


def recompute_own_parameters(module: nn.Module) -> None:
    """Do the same of a module that may be no part of another, as a cell by itself is none."""
    recompute_parameters(nn.ModuleList([module]))


def make_permanent(module: nn.Module) -> None:
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
