"""What happens to the parameters at a step: optimizer, learning rate, clipping, penalty, range."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tauflow.errors import ArgumentError

from .recipe import Recipe
from .torch_registry import OPTIMIZERS

_FOREACH_OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd")
"""Optimizers whose steps are the same for all tensors at once as for one after the other."""


def make_optimizer(recipe: Recipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Build the optimizer of a recipe.

    Raises:
        ArgumentError: PyTorch refuses its options, or these parameters.

    Adam and RMSprop divide by ``sqrt(v) + eps``. TensorFlow's Adam adds eps before it corrects the
    bias of v, which differs only where gradients are of the size of eps.
    """
    defaults, options = recipe.get_optimizer_kwargs(), dict(recipe.optimizer_options or {})
    if recipe.optimizer in _FOREACH_OPTIMIZERS and options.keys().isdisjoint(
        ("fused", "differentiable")
    ):
        options.setdefault("foreach", True)  # two thirds of the time on a CPU, the same bits
    make: Callable[..., torch.optim.Optimizer] = OPTIMIZERS[recipe.optimizer]
    try:
        return make(parameters, lr=recipe.lr, **defaults, **options)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"optimizer={recipe.optimizer!r} does not take {defaults | options}: {error}. Give "
            "other optimizer_options, or another optimizer."
        ) from error


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def clip_gradients(
    parameters: Sequence[nn.Parameter],
    recipe: Recipe,
    packed: Mapping[nn.Parameter, Sequence[int]] | None = None,
) -> None:
    """Scale gradients down to the recipe's ``clip_norm``, in place.

    Args:
        parameters: those whose gradients count.
        recipe: says how.
        packed: rows of the tensors that a parameter packs, which ``clip="per_tensor"`` clips each
            on its own (:func:`packed_parts`).
    """
    if recipe.clip_norm is None:
        return
    if recipe.clip == "norm":
        nn.utils.clip_grad_norm_(parameters, recipe.clip_norm)
        return
    for parameter in parameters:
        if parameter.grad is not None:
            rows = (packed or {}).get(parameter)
            for part in parameter.grad.split(list(rows)) if rows else (parameter.grad,):
                norm = torch.linalg.vector_norm(part)
                part.mul_(recipe.clip_norm / norm.clamp(min=recipe.clip_norm))


def packed_parts(model: nn.Module) -> dict[nn.Parameter, tuple[int, ...]]:
    """Return the rows of the tensors that a model's parameters pack.

    A module whose parameter holds several tensors of the published model, one below the other, says
    so in a method ``packed_parts()`` that returns, by name of the parameter, how many rows each
    has. What is done tensor by tensor, such as clipping, then does not depend on the packing.
    """
    return {
        parameter: tuple(rows)
        for module in model.modules()
        if callable(method := getattr(module, "packed_parts", None))
        for name, rows in method().items()
        if isinstance(parameter := getattr(module, name), nn.Parameter)
    }


def l2_penalty(model: nn.Module) -> Tensor:
    """Return the sum of squares of what the model's modules list in ``l2_parameters()``.

    A tensor that several modules list counts once.

    Raises:
        ArgumentError: no module lists any tensor.
    """
    listed = {
        id(tensor): tensor
        for module in model.modules()
        if callable(method := getattr(module, "l2_parameters", None))
        for tensor in method()
    }
    if not listed:
        raise ArgumentError(
            "the recipe has l2 > 0, but no module of the model lists tensors in l2_parameters(). "
            "Define that method on a module, or use weight_decay."
        )
    return torch.stack([tensor.square().sum() for tensor in listed.values()]).sum()


def attach_constraints(model: nn.Module, optimizer: torch.optim.Optimizer) -> RemovableHandle:
    """Keep parameters in their admissible range while ``optimizer`` trains ``model``.

    Calls ``project_()`` of every module that has it after each ``optimizer.step()``, without
    recording gradients. :func:`tauflow.training.train` does so by itself. Cells of this library
    need it no longer: theirs follows every step that moves their parameters. A training loop of
    one's own calls this once, after building the optimizer, for modules of one's own.

    Returns:
        A handle whose ``remove()`` ends it.
    """
    projections: list[Callable[[], None]] = [
        method
        for module in model.modules()
        if callable(method := getattr(module, "project_", None))
    ]

    @torch.no_grad()
    def project(*_: Any) -> None:
        for method in projections:
            method()

    return optimizer.register_step_post_hook(project)
