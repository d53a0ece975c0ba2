"""What the code of a function reads beside its arguments, and whether it does more than compute."""

import builtins
import dis
from functools import cache, lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any, NamedTuple

import torch
from torch.overrides import get_testing_overrides

_PURE_BUILTINS = {
    *("abs", "all", "any", "bool", "callable", "complex", "dict", "divmod", "enumerate"),
    *("filter", "float", "frozenset", "int", "isinstance", "issubclass", "len", "list", "map"),
    *("max", "min", "object", "pow", "range", "reversed", "round", "set", "slice", "sorted"),
    *("str", "sum", "super", "tuple", "type", "zip"),
}
_PURE_MODULES = {"math", "_operator", "operator", "cmath"}
_PURE_TORCH_FUNCTIONS = {
    *("zeros", "ones", "full", "arange", "eye", "tensor", "as_tensor", "linspace", "logspace"),
    *("scalar_tensor", "promote_types", "broadcast_shapes", "is_tensor", "is_floating_point"),
}
"""Functions that take no tensor, and look at no setting but the default dtype."""

_READS_OF_VALUES_OR_STATE = {
    *("item", "tolist", "numpy", "data_ptr", "storage", "untyped_storage", "stride"),
    *("is_contiguous", "storage_offset", "grad", "grad_fn", "is_leaf", "retain_grad", "backward"),
    *("register_hook", "requires_grad", "data", "resolve_conj", "share_memory_", "pin_memory"),
    *("f_globals", "gi_frame", "cr_frame", "_version", "_base", "_is_view", "dim_order"),
}
"""Attributes of tensors that tell numbers, or how the tensor came about."""

_FORBIDDEN_OPCODES = {
    "STORE_ATTR": "sets the attribute {}",
    "DELETE_ATTR": "deletes the attribute {}",
    "STORE_GLOBAL": "sets the global {}",
    "DELETE_GLOBAL": "deletes the global {}",
    "IMPORT_NAME": "imports {}",
    "LOAD_BUILD_CLASS": "defines a class",
    "LOAD_NAME": "reads {} by name",
    "GET_AWAITABLE": "waits",
}


class CodeReads(NamedTuple):
    """What a function reads, of its own code and that of functions inside it.

    Args:
        global_names: names of globals, each with the attributes that are read of it.
        attributes: all names of attributes that are read of anything.
        problem: what shows that it does more than compute; ``""`` if nothing does.
    """

    global_names: frozenset[tuple[str, ...]]
    attributes: frozenset[str]
    problem: str


@lru_cache(maxsize=1024)
def read_code(code: CodeType) -> CodeReads:
    """Return what a function with this code reads."""
    names: set[tuple[str, ...]] = set()
    attributes: set[str] = set()
    problem = ""
    outer = set(code.co_freevars)
    for inner in _iter_codes(code):
        chain: list[str] | None = None
        for instruction in dis.get_instructions(inner):
            kind, value = instruction.opname, instruction.argval
            if kind in _FORBIDDEN_OPCODES:
                problem = problem or _FORBIDDEN_OPCODES[kind].format(value)
            if kind in ("STORE_DEREF", "DELETE_DEREF") and value in outer:
                problem = problem or f"sets {value}, which is outside of it"
            if kind in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD"):
                attributes.add(value)
                problem = problem or _attribute_problem(value)
                if chain is not None:
                    chain.append(value)
                continue
            if kind in ("PUSH_NULL", "CACHE", "EXTENDED_ARG", "NOP"):
                continue
            if chain is not None:
                names.add(tuple(chain))
            chain = [value] if kind == "LOAD_GLOBAL" else None
        if chain is not None:
            names.add(tuple(chain))
    return CodeReads(frozenset(names), frozenset(attributes), problem)


def _iter_codes(code: CodeType) -> list[CodeType]:
    found = [code]
    for one in found:  # which grows
        found += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
    return found


def _attribute_problem(name: str) -> str:
    if name in _READS_OF_VALUES_OR_STATE:
        return f"reads {name} of something, which is not among the operations of a trace"
    if name.startswith("__") and name not in ("__class__", "__name__"):
        return f"reads {name} of something"
    return ""


def is_pure_builtin(value: Any) -> bool:
    """Whether an object of Python does nothing but compute, and reads no object's identity."""
    name = getattr(value, "__name__", "")
    if getattr(builtins, name, None) is value:
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        return is_error or name in _PURE_BUILTINS
    owner = getattr(value, "__self__", None)
    is_function = isinstance(value, BuiltinFunctionType) and isinstance(owner, ModuleType)
    return is_function and value.__module__ in _PURE_MODULES


@cache
def _overridable_functions() -> frozenset[Any]:
    """Return the functions of PyTorch that take tensors, and are passed to modes."""
    return frozenset(get_testing_overrides())


def is_pure_torch_function(value: Any) -> bool:
    """Whether a function is of this library, or of those of PyTorch that take or make tensors.

    What such a function does is among the operations of a trace; one that draws numbers, or reads
    them, is refused when the step is traced.
    """
    if str(getattr(value, "__module__", "")).partition(".")[0] == "tauflow":
        return isinstance(value, FunctionType)
    name = getattr(value, "__name__", "")
    if name in _PURE_TORCH_FUNCTIONS:
        return getattr(torch, name, None) is value
    callables = (BuiltinFunctionType, FunctionType, MethodDescriptorType)
    return isinstance(value, callables) and value in _overridable_functions()
