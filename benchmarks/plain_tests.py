"""Run test functions where pytest is not installed.

What is here of pytest is what the parity tests use: parameters, marks that skip, fixtures of the
same file, ``monkeypatch``.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import isgeneratorfunction, signature
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch


class Skipped(Exception):
    """A test that cannot run here, and why."""


class Parameters(NamedTuple):
    """What ``pytest.param`` returns."""

    values: tuple[Any, ...]
    marks: tuple["Mark", ...]
    id: str | None


class Mark:
    """What ``pytest.mark.name`` returns: a decorator, with or without arguments."""

    def __init__(self, name: str, *arguments: Any, **options: Any) -> None:
        self.name, self.arguments, self.options = name, arguments, options

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Mark a function, or take arguments."""
        if len(arguments) == 1 and not options and callable(arguments[0]):
            (function,) = arguments
            function.marks = [self, *getattr(function, "marks", [])]
            return function
        return Mark(self.name, *arguments, **options)


class _Marks:
    def __getattr__(self, name: str) -> Mark:
        return Mark(name)


class MonkeyPatch:
    """Sets attributes, and sets them back."""

    def __init__(self) -> None:
        self._undo = ExitStack()

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute that is there."""
        self._undo.callback(setattr, target, name, getattr(target, name))
        setattr(target, name, value)

    @classmethod
    @contextmanager
    def context(cls) -> Iterator["MonkeyPatch"]:
        """Set everything back at the end."""
        patch = cls()
        with patch._undo:
            yield patch


class Test(NamedTuple):
    """A test function with its parameters.

    Args:
        function: its name.
        name: that of the parameters.
        on_gpu: whether it needs one.
        run: raises what it finds wrong, or :class:`Skipped`.
    """

    function: str
    name: str
    on_gpu: bool
    run: Callable[[], None]


def tests_of(path: Path) -> list[Test]:
    """Return the tests of a file, in order."""
    module = _imported(path)
    tests = []
    for function, test in vars(module).items():
        if function.startswith("test_"):
            for name, values, marks in _calls(module, test):
                on_gpu = any(mark.name == "gpu" for mark in marks)
                tests.append(Test(function, name, on_gpu, _runner(module, test, values, marks)))
    return tests


def _imported(path: Path) -> ModuleType:
    """Import a test file with this module in the place of pytest, whether that is there or not."""
    pytest: Any = ModuleType("pytest")
    pytest.mark, pytest.param, pytest.fixture = _Marks(), _param, _fixture
    pytest.skip, pytest.importorskip, pytest.MonkeyPatch = _skip, _import_or_skip, MonkeyPatch
    before = sys.modules.get("pytest")
    sys.modules["pytest"] = pytest
    sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(path.stem)
    finally:
        sys.path.remove(str(path.parent))
        if before is not None:
            sys.modules["pytest"] = before


def _param(*values: Any, marks: Any = (), id: str | None = None) -> Parameters:
    return Parameters(values, tuple(marks) if isinstance(marks, list | tuple) else (marks,), id)


def _fixture(function: Any = None, *, autouse: bool = False) -> Any:
    def decorate(function: Any) -> Any:
        function.autouse = autouse
        return function

    return decorate if function is None else decorate(function)


def _skip(reason: str = "") -> None:
    raise Skipped(reason)


def _import_or_skip(name: str, reason: str = "") -> ModuleType:
    return importlib.import_module(name)


def _calls(
    module: ModuleType, test: Callable[..., None]
) -> Iterator[tuple[str, dict[str, Any], list[Mark]]]:
    """Yield each call of a test: its name, its arguments and its marks."""
    outer = getattr(module, "pytestmark", [])
    marks = [*(outer if isinstance(outer, list) else [outer]), *getattr(test, "marks", [])]
    axes = [mark for mark in marks if mark.name == "parametrize"]
    for chosen in product(*(mark.arguments[1] for mark in axes)):
        values, names, all_marks = {}, [], list(marks)
        for mark, value in zip(axes, chosen, strict=True):
            asked = mark.arguments[0]
            keys = [asked] if isinstance(asked, str) else list(asked)
            parameters = value if isinstance(value, Parameters) else None
            parts = (
                parameters.values if parameters else [value] if isinstance(asked, str) else value
            )
            values.update(zip(keys, parts, strict=True))
            all_marks += parameters.marks if parameters else ()
            ids = mark.options.get("ids")
            plain = parameters.id if parameters and parameters.id else "-".join(map(str, parts))
            names.append(ids(value) if callable(ids) and parameters is None else plain)
        yield "-".join(names), values, all_marks


def _runner(
    module: ModuleType, test: Callable[..., None], values: dict[str, Any], marks: list[Mark]
) -> Callable[[], None]:
    fixtures = {n: f for n, f in vars(module).items() if hasattr(f, "autouse")}

    def run() -> None:
        for mark in marks:
            if mark.name == "skipif" and mark.arguments[0]:
                raise Skipped(mark.options.get("reason", ""))
        torch.manual_seed(0)
        with ExitStack() as after:
            known = dict(values)

            def argument(name: str) -> Any:
                if name not in known:
                    known[name] = (
                        after.enter_context(MonkeyPatch.context())
                        if name == "monkeypatch"
                        else _value(fixtures[name], argument, after)
                    )
                return known[name]

            for name, fixture in fixtures.items():
                if fixture.autouse:
                    argument(name)
            test(**{name: argument(name) for name in signature(test).parameters})

    return run


def _value(fixture: Any, argument: Callable[[str], Any], after: ExitStack) -> Any:
    arguments = {name: argument(name) for name in signature(fixture).parameters}
    if isgeneratorfunction(fixture):
        return after.enter_context(contextmanager(fixture)(**arguments))
    return fixture(**arguments)
