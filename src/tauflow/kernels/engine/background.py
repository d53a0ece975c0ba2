"""Compile kernels in a thread, while cells' own steps serve (``TAUFLOW_COMPILE=background``).

Which of the two computes a result then depends on when it is asked for, and the results differ by
rounding. So calls with gradients wait, and so does all within ``evaluation_mode``: trainings,
evaluations and predictions of the library give the same numbers every time.
"""

import copy
import logging
import threading
from typing import Any

import torch

from tauflow._internal.checks import is_tracing
from tauflow._internal.compile_mode import must_wait_for_kernels
from tauflow._internal.fork_safety import make_fork_safe_lock

from .kernel_spec import KernelCall, KernelSpec, is_under_transform
from .requirements import is_builtin_cell

_log = logging.getLogger("tauflow")
_lock = make_fork_safe_lock()
_threads: dict[Any, threading.Thread] = {}


def is_compiling(spec: KernelSpec, call: KernelCall) -> bool:
    """Return whether a kernel is being compiled for calls like one; begin if nobody has.

    Args:
        spec: the kernel, which supports the call.
        call: the run at hand.
    """
    if is_tracing() or must_wait_for_kernels():  # in this order: a compiler reads no ContextVar
        return False
    if spec.backend != "numba" or torch.is_grad_enabled():
        return False
    if is_under_transform(call) or not is_builtin_cell(call.cell):
        return False
    config = getattr(call.cell, "static_config", lambda: None)()  # which some loops are made for
    key = spec.cell, config, call.mask is None, call.observed is None
    with _lock:
        thread = _threads.get(key)
        if thread is None:
            _log.info("%s is being compiled; its steps serve meanwhile", spec.cell.__name__)
            thread = threading.Thread(target=_compile, args=(spec, _make_example(call)))
            _threads[key] = thread
            thread.start()
    return thread.is_alive()


def _make_example(call: KernelCall) -> KernelCall:
    """Return a small call that runs the same compiled code, with a cell that nobody changes."""
    B, T = min(2, len(call.x)), 16  # short sequences run no compiled code

    def shorten(tensor: Any) -> Any:
        return None if tensor is None else tensor.new_ones(B, T, *tensor.shape[2:])

    return KernelCall(
        copy.deepcopy(call.cell),
        shorten(call.x),
        call.h.new_zeros(B, call.h.shape[1]),
        *map(shorten, (call.dt, call.mask, call.observed)),
    )


def _compile(spec: KernelSpec, call: KernelCall) -> None:
    try:
        with torch.no_grad():
            spec.run(call)
        _log.info("%s is compiled and serves from now on", spec.cell.__name__)
    except Exception:  # the next call runs it, and raises
        _log.debug("%s was not compiled", spec.cell.__name__, exc_info=True)
