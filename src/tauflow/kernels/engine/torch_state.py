"""What torch tells of its state only in private: all of it is asked for here.

Another version of torch may move any of these, which ``tests/unit/kernels/test_torch_state.py``
notices.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tauflow._internal.module_hooks import has_global_hooks

Function = TypeVar("Function", bound=Callable[..., Any])


def assume_constant_result(function: Function) -> Function:
    """Let compilers take what a function of constants returns as it is, without a look inside.

    ``torch.compiler.assume_constant_result`` sets the same mark, but imports the compiler, which
    takes longer than the whole library.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@assume_constant_result  # the compiler of torch 2.11 does not know the question
def is_autocast_available(device: str) -> bool:
    """Whether there is mixed precision on a kind of device."""
    return torch.amp.is_autocast_available(device)


@assume_constant_result  # the compiler of torch 2.11 answers yes for itself
def is_exporting() -> bool:
    """Whether ``torch.export`` makes a program of what runs; torch 2.6 does not say."""
    return bool(_is_exporting())


_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", bool)


@assume_constant_result  # a compiler enters transforms while it traces them, and guards on them
def is_under_transform_or_forward_mode() -> bool:
    """Whether ``torch.func`` transforms what runs, or tangents are carried forward."""
    return torch._C._functorch.peek_interpreter_stack() is not None or is_forward_mode()


def is_forward_mode() -> bool:
    """Whether tangents are carried forward."""
    return forward_ad._current_level >= 0


_get_tracing_state = torch._C._get_tracing_state
_is_function_mode_enabled = torch._C._is_torch_function_mode_enabled
_count_dispatch_modes = torch._C._len_torch_dispatch_stack
_peek_transform = torch._C._functorch.peek_interpreter_stack


def is_followed() -> bool:
    """Whether something follows what runs: a compiler, transforms, autocast, modes, hooks."""
    return (
        torch.compiler.is_compiling()
        or _peek_transform() is not None
        or forward_ad._current_level >= 0
        or torch.is_autocast_enabled("cpu")
        or _count_dispatch_modes() > 0
        or _is_function_mode_enabled()
        or _get_tracing_state() is not None
        or has_global_hooks()
    )


def has_storage(tensor: Tensor) -> bool:
    """Whether numbers stand where the tensor says: not so in fake, distributed and other kinds."""
    return type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__


def has_functorch_tensor(tensors: Iterable[Tensor]) -> bool:
    """Whether ``torch.func`` (vmap, grad, jacrev, ...) wraps one of the tensors."""
    return any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors))


def is_batched_gradient(tensor: Tensor) -> bool:
    """Whether an incoming gradient stands for many, as ``is_grads_batched=True`` asks."""
    return torch._C._functorch.is_legacy_batchedtensor(tensor)


def clear_cublas_workspaces() -> None:
    """Let the next products on a GPU take new workspaces, and no stream keep its last one.

    A product that is recorded goes on writing to the workspace of its stream, which must therefore
    lie among the memory of the recording, and serve nothing else.
    """
    forget: Callable[[], None] | None = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if forget is not None:  # not in builds for CPUs
        forget()


_AUTOGRAD_KEYS = ("AutogradCPU", "AutogradOther", "ADInplaceOrView")


@contextmanager
def record_gradients() -> Iterator[None]:
    """Let autograd record what runs within an operator, which it otherwise does not see."""
    key_set, excluded = torch._C.DispatchKeySet, torch._C._dispatch_tls_local_exclude_set()
    for name in _AUTOGRAD_KEYS:
        excluded = excluded - key_set(getattr(torch._C.DispatchKey, name))
    included = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch.enable_grad():
        yield
