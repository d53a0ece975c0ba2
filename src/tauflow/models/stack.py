"""Networks of one shape with weights of their own, as one module."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tauflow._internal.module_hooks import HOOKS
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError
from tauflow.sequence.stacked import StackedSequence, plan_stack

from .sequence_model import SequenceModel


class ModuleStack(nn.Module):
    """Modules of one shape that are called as one; created by :func:`stack_modules`.

    Args:
        modules: what is stacked.

    Attributes:
        module: a copy of the first module whose parameters and buffers have an axis of networks in
            front, (n, ...).
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        if reason := find_stacking_obstacle(modules):
            raise ArgumentError(f"stack_modules: {reason}.")
        self.num_modules = len(modules)
        self.module = deepcopy(modules[0])
        with torch.no_grad():
            _stack_tensors(self.module, modules)
        self._plan = _plan_model(self.module, modules[0])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call every module with its own slice of every tensor.

        Args:
            *args: as for one module; every tensor with an axis of networks in front, such as x of
                (n, B, T, I). What all networks share is given by ``x.expand(n, *x.shape)``, which
                takes no memory. Numbers, and whatever is no tensor, are passed on.
            **kwargs: likewise.

        Returns:
            What one module returns, with the axis of networks in front of every tensor.

        Raises:
            ArgumentError: a tensor has no axis of n networks in front.
        """
        for value in (*args, *kwargs.values()):
            if isinstance(value, Tensor) and value.shape[:1] != (self.num_modules,):
                raise ArgumentError(
                    f"{type(self).__name__}.forward: a tensor of shape {tuple(value.shape)} has no "
                    f"axis of {format_count(self.num_modules, 'network')} in front. Give what all "
                    "of them share as "
                    f"tensor.expand({self.num_modules}, *tensor.shape)."
                )
        if self._plan is not None and (args or "x" in kwargs) and len(args) <= 2:
            found = self._plan.run(self.num_modules, *args, **kwargs)
            if found is not None:
                return found
        names = list(kwargs)
        axes = tuple(
            0 if isinstance(value, Tensor) else None for value in (*args, *kwargs.values())
        )

        def call_one(state: dict[str, Tensor], *values: Any) -> Any:
            given, named = values[: len(args)], dict(zip(names, values[len(args) :], strict=True))
            return torch.func.functional_call(self.module, state, given, named)

        state = dict(named_tensors(self.module))
        run = torch.func.vmap(call_one, in_dims=(0, *axes), randomness="different")
        return run(state, *args, *kwargs.values())

    @torch.no_grad()
    def unstack(self) -> list[nn.Module]:
        """Return the modules as they are now, each with parameters of its own."""
        modules = []
        for i in range(self.num_modules):
            one = deepcopy(self.module)
            _replace_tensors(one, {n: tensor[i].clone() for n, tensor in named_tensors(one)})
            modules.append(one)
        return modules

    def extra_repr(self) -> str:
        """Show the number of networks."""
        return f"num_modules={self.num_modules}"


class _StackedModel(NamedTuple):
    """A sequence model whose parameters have an axis of networks in front."""

    model: SequenceModel
    body: StackedSequence

    def run(self, count: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor] | None:
        """Return predictions and states; see :meth:`StackedSequence.run`."""
        model, head = self.model, self.model.head
        if type(model) is not SequenceModel or type(head) is not nn.Linear:
            return None
        if any(vars(part).get(name) for part in (model, head) for name in ("forward", *HOOKS)):
            return None
        if head.bias is None:
            return None
        found = self.body.run(count, *args, **kwargs)
        if found is None:
            return None
        y, h = found
        rows = y.reshape(count, -1, y.shape[-1])
        out = torch.baddbmm(head.bias.unsqueeze(1), rows, head.weight.mT)
        return out.view(*y.shape[:-1], -1), h


def _plan_model(module: nn.Module, one: nn.Module) -> StackedSequence | _StackedModel | None:
    """Return how to run a stack without ``torch.vmap``, if it is one of a known kind."""
    if type(module) is not SequenceModel or module.embedding is not None:
        return plan_stack(module, one)
    assert isinstance(one, SequenceModel)
    body = plan_stack(module.rnn, one.rnn)
    return None if body is None else _StackedModel(module, body)


def stack_modules(modules: Sequence[nn.Module]) -> ModuleStack:
    """Return modules of one shape, each with its own weights, as one module.

    Small networks cost more for the call than for their numbers: a stack pays for the call once. On
    the CPU a CfC's compiled loops take all networks together; other cells with a kernel run
    one network after the other inside the one call; what has no kernel is vectorised by
    ``torch.vmap``.

    Named after :func:`torch.func.stack_module_state`, which stacks the parameters and leaves it to
    the caller to write the ``vmap`` and the ``functional_call``; this is a module with all three.

    One optimizer trains all networks, with the steps that one for each would take, if it is
    elementwise (``SGD``, ``Adam``, ``AdamW``, ``RMSprop``), and the loss is the sum of the
    networks' losses::

        stack = tauflow.stack_modules([tauflow.CfC(8, 32) for _ in range(5)])
        optimizer = torch.optim.Adam(stack.parameters())
        y, h = stack(x)  # x (5, B, T, 8), y (5, B, T, 32)

    Args:
        modules: of one class and options, with parameters of the same names, shapes, dtypes and
            devices, all in training mode or none. They are copied.

    Raises:
        ArgumentError: they are no such modules.
    """
    return ModuleStack(modules)


def find_stacking_obstacle(modules: Sequence[nn.Module]) -> str | None:
    """Return why modules cannot be stacked, or ``None``."""
    if not len(modules):
        return "there are no modules"
    first = modules[0]
    for number, module in enumerate(modules[1:], start=1):
        other = f"module {number}"
        if type(module) is not type(first):
            return f"{other} is a {type(module).__name__}, the first a {type(first).__name__}"
        if str(module) != str(first):
            return f"{other} has other options than the first"
        if [m.training for m in module.modules()] != [m.training for m in first.modules()]:
            return f"{other} is in another mode than the first, training or evaluation"
        for one, its in zip(first.modules(), module.modules(), strict=True):
            if name := _find_different_attribute(one, its):
                return f"{other} has another {name} than the first"
        facts = [
            [(name, t.shape, t.dtype, t.device, t.requires_grad) for name, t in named_tensors(m)]
            for m in (first, module)
        ]
        if facts[0] != facts[1]:
            return f"{other} has other parameters or buffers than the first"
    return None


def _find_different_attribute(one: nn.Module, other: nn.Module) -> str | None:
    """Return the name of a number, text or the like that differs between two modules."""
    for name in vars(one).keys() | vars(other).keys():
        values = [vars(module).get(name, _MISSING) for module in (one, other)]
        if any(isinstance(value, _PLAIN_TYPES) for value in values) and values[0] != values[1]:
            return name
    return None


_PLAIN_TYPES = (int, float, complex, str, bytes, type(None))
_MISSING = object()


def named_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return parameters and buffers by name, each once."""
    return [*module.named_parameters(), *module.named_buffers()]


def _stack_tensors(module: nn.Module, modules: Sequence[nn.Module]) -> None:
    """Give a module the parameters and buffers of all modules, stacked."""
    stacked = {}
    for tensors in zip(*map(named_tensors, modules), strict=True):
        name, _ = tensors[0]
        stacked[name] = torch.stack([tensor.detach() for _, tensor in tensors])
    _replace_tensors(module, stacked)


def _replace_tensors(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Replace parameters and buffers by name; those that are tied stay so."""
    new = {}
    for name, old in named_tensors(module):
        tensor = tensors[name]
        if isinstance(old, nn.Parameter):
            tensor = nn.Parameter(tensor, requires_grad=old.requires_grad)
        new[id(old)] = tensor
    for part in module.modules():
        holders: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
        for holder in holders:
            for name, value in holder.items():
                if value is not None:
                    holder[name] = new[id(value)]
