"""Source of kernels as functions of Triton, which reads the source of a function from its file."""

import hashlib
import linecache
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=256)
def compile_source(source: str) -> dict[str, Any]:
    """Return the kernels of a source by name; Triton compiles them at the first launch."""
    import triton
    import triton.language as tl

    from . import math

    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    name = f"tauflow-traced-{digest}.py"
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = len(source), None, lines, name  # without a time it is never dropped
    scope: dict[str, Any] = {"__name__": f"tauflow_traced_{digest}", "triton": triton, "tl": tl}
    scope |= {helper: getattr(math, helper) for helper in math.__all__}
    exec(compile(source, name, "exec"), scope)
    return {kernel: scope[kernel] for kernel in ("before", "loop", "after") if kernel in scope}
