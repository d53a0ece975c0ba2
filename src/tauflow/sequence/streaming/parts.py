"""What a stream runs for each sample: a sequence module and what stands before and after it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from tauflow._internal.module_hooks import FORWARD_HOOKS, has_hooks
from tauflow.errors import StreamError

if TYPE_CHECKING:
    from tauflow.sequence.sequence_module import SequenceModule

Array = NDArray[Any]


class StreamParts(NamedTuple):
    """The modules that a sample passes.

    Args:
        module: the sequence module.
        preprocessor: what turns each sample into the input of ``module``, (B, I).
        postprocessor: what turns outputs, (B, H), into what a step returns.
    """

    module: "SequenceModule"
    preprocessor: nn.Module | None = None
    postprocessor: nn.Module | None = None

    def to_module_list(self) -> nn.ModuleList:
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


def check_parts(source: "SequenceModule | StreamedModel", parts: StreamParts) -> None:
    """Raise :class:`StreamError` if parts cannot run sample by sample on the CPU.

    Args:
        source: what the parts are of, the sequence module itself or a model.
        parts: what is run in its place.
    """
    module, every = parts.module, parts.to_module_list()
    for part in (source, module):
        if isinstance(part, nn.Module) and (reason := find_extra_behaviour(part)) is not None:
            raise StreamError(
                f"{type(part).__name__} has {reason}, which a stream would leave out: it runs the "
                "embedding, cells, projections and head themselves. Move it into one of those, "
                "such as model.head; or give the class a stream_parts() that says what to run."
            )
    if module.bidirectional:
        raise StreamError(
            "a bidirectional module needs the whole sequence before its first output. Stream "
            "one with bidirectional=False."
        )
    if has_active_dropout(every):
        raise StreamError("a stream has no dropout. Call module.eval() first.")
    if any(tensor.device.type != "cpu" for tensor in (*every.parameters(), *every.buffers())):
        raise StreamError("a stream runs on the CPU. Move the module with .to('cpu').")


def is_dropout(part: nn.Module) -> bool:
    """Whether a module drops units when it trains."""
    share = part.p if isinstance(part, _DropoutNd) else getattr(part, "dropout", 0.0)
    return isinstance(share, float | int) and share > 0


def has_active_dropout(module: nn.Module) -> bool:
    """Whether a part of a module drops units now, whatever mode the others are in."""
    return any(part.training and is_dropout(part) for part in module.modules())


def find_extra_behaviour(module: nn.Module) -> str | None:
    """Return what a call of a module does besides running its parts, or ``None``."""
    if has_hooks(module, FORWARD_HOOKS):
        return "forward hooks"
    if any(map(has_hooks, getattr(module, "each_cell", ()))):
        return "a cell with hooks"
    if "forward" in vars(module):
        return "another forward"
    for kind in type(module).__mro__:
        # Who says what a stream runs has thought of it.
        if "stream_parts" in vars(kind) or kind.__module__.startswith("tauflow."):
            break
        if "forward" in vars(kind):
            return "another forward"
    return None


def pack_linear(projection: nn.Module) -> Callable[[Array], Array]:
    """Return a linear map of arrays, by its packed weights if it computes with nothing else."""
    if _is_plain_linear(projection):
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


def _is_plain_linear(module: nn.Module) -> bool:
    """Whether a module is a plain linear layer, without hooks or changed methods."""
    return (
        type(module) is nn.Linear
        and "forward" not in vars(module)
        and not has_hooks(module, FORWARD_HOOKS)
    )
