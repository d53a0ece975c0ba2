"""What a stream runs for each sample: a sequence module and what stands before and after it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import nn

from tauflow.cells.built import REPARAMETRISATIONS
from tauflow.errors import StreamError

if TYPE_CHECKING:
    from .layers import SequenceModule

Array = NDArray[Any]


class StreamParts(NamedTuple):
    """The modules that a sample passes.

    Args:
        module: the sequence module.
        before: what turns each sample into the input of ``module``, (B, I).
        after: what turns outputs, (B, H), into what a step returns.
    """

    module: "SequenceModule"
    before: nn.Module | None = None
    after: nn.Module | None = None

    def as_list(self) -> nn.ModuleList:
        """Return those that there are."""
        return nn.ModuleList(part for part in self if part is not None)


@runtime_checkable
class StreamedModel(Protocol):
    """A module that is made of such parts, which may be replaced by others."""

    def stream_parts(self) -> StreamParts:
        """Return the present parts."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """Yield the model and all its parts, as every ``torch.nn.Module`` does."""
        ...


def check_parts(parts: StreamParts) -> None:
    """Raise :class:`StreamError` if parts cannot run sample by sample on the CPU."""
    module, every = parts.module, parts.as_list()
    if module.bidirectional:
        raise StreamError(
            "a bidirectional module needs the whole sequence before its first output. Stream "
            "one with bidirectional=False."
        )
    if module.training and any(map(drops, every.modules())):
        raise StreamError("a stream has no dropout. Call module.eval() first.")
    if any(tensor.device.type != "cpu" for tensor in (*every.parameters(), *every.buffers())):
        raise StreamError("a stream runs on the CPU. Move the module with .to('cpu').")


def drops(part: nn.Module) -> bool:
    """Whether a module drops units when it trains."""
    share = part.p if isinstance(part, nn.Dropout) else getattr(part, "dropout", 0.0)
    return isinstance(share, float | int) and share > 0


def packed(projection: nn.Module) -> Callable[[Array], Array]:
    """Return a linear map of arrays, by its packed weights if they are all that it computes with.

    Those that pruning and its kin compute are to be up to date.
    """
    if _says_all_in_its_weights(projection):
        assert isinstance(projection, nn.Linear)
        weight = projection.weight.detach().numpy().copy()
        if projection.bias is None:
            return lambda y: y @ weight.T
        bias = projection.bias.detach().numpy().copy()
        return lambda y: y @ weight.T + bias

    def call(y: Array) -> Array:
        with torch.no_grad():
            out: Array = projection(torch.from_numpy(y)).numpy()
        return out

    return call


def _says_all_in_its_weights(module: nn.Module) -> bool:
    """Whether a module is a linear layer that nobody taught to compute something else."""
    hooks = module._forward_pre_hooks.values()
    return (
        type(module) is nn.Linear
        and "forward" not in vars(module)
        and not module._forward_hooks
        and all(isinstance(hook, REPARAMETRISATIONS) for hook in hooks)
    )
