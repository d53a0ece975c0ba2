"""What stands in for packages that a machine with PyTorch, Triton and NumPy alone does not have."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAMED = ("jaxtyping", "safetensors", "safetensors.torch")
"""Named by modules that benchmarks import, in annotations or for files that they do not write."""


class Absent:
    """Whatever a package that is not there would have: it may be named, and not be used."""

    def __init__(self, *_: object, **__: object) -> None:
        raise ModuleNotFoundError(f"this needs one of {', '.join(NAMED)}, which is not installed")

    def __class_getitem__(cls, item: object) -> Any:
        return Any


def stand_in() -> None:
    """Let tauflow be imported from the source tree, if need be without what it only names."""
    if importlib.util.find_spec("tauflow") is None:
        sys.path.insert(0, str(ROOT / "src"))
    absent = {name for name in NAMED if "." not in name and importlib.util.find_spec(name) is None}
    for name in NAMED:
        if name.partition(".")[0] in absent:
            module = ModuleType(name)
            module.__spec__, module.__path__ = ModuleSpec(name, None), []
            module.__getattr__ = _named  # type: ignore[method-assign]
            sys.modules[name] = module


def _named(name: str) -> type[Absent]:
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent
