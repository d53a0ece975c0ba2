"""Evaluation mode for a while, of modules that several threads may evaluate at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import nn

from tauflow._internal.fork_safety import make_fork_safe_lock


@dataclass
class _EvaluatedModule:
    """A part of a module that is evaluated.

    Args:
        module: the part.
        training: its mode before the first evaluation began.
        evaluations: those that have not ended.
    """

    module: nn.Module
    training: bool
    evaluations: set[object] = field(default_factory=set)


_evaluated_modules: dict[int, _EvaluatedModule] = {}
_lock = make_fork_safe_lock()


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode for a while.

    Several threads may do so at a time, with one module or with modules that share parts. Each part
    is in the mode of before when the last of them has ended, with an error or without.
    """
    evaluation, parts = object(), [*module.modules()]
    try:
        with _lock:
            for part in parts:
                known = _evaluated_modules.setdefault(
                    id(part), _EvaluatedModule(part, part.training)
                )
                known.evaluations.add(evaluation)
        module.eval()
        yield
    finally:
        with _lock:
            for part in parts:
                there = _evaluated_modules.get(id(part))  # none where an interrupt came before
                if there is not None:
                    there.evaluations.discard(evaluation)
                    if not there.evaluations:
                        part.training = there.training
                        del _evaluated_modules[id(part)]
