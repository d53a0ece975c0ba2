"""What every method takes beside X to know its times and its rows."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor

from tauflow._internal.registry import suggest_name
from tauflow.errors import OptionError
from tauflow.tabular.sequence_tables import TABLE_ARGUMENTS


class InputKwargs(TypedDict, total=False):
    """The arguments of :data:`INPUT_KWARGS`, for checkers of types and editors."""

    dt: Any
    t: Any
    lengths: Any
    id: str | None
    time: str | None
    long: Sequence[str] | None
    static: Sequence[str] | None
    duplicates: str | None


_KWARGS_DOC = """
dt: time since the sample before: a number, or in the shape of X without its last axis.
t: instead of it, times of the samples: numbers, or dates for time steps in seconds, all with a
    time zone or all without. Without either all time steps are 1.
lengths: (B,), steps of each sequence of a padded array.
id: column of a data frame that says which sequence a row belongs to; known after ``fit``.
time: its column of times: numbers, or dates for time steps in seconds; known after ``fit``.
long: its columns of the variable and of its value, if each row holds one value. Each variable
    becomes a feature, missing at times at which it was not measured; known after ``fit``.
static: its columns, or variables of ``long``, with one value per id, such as the age, even if only
    one row of the id holds it; known after ``fit``.
duplicates: several values at one time of an id: ``"error"``, the default; their ``"mean"``; or the
    ``"last"`` one; known after ``fit``.
""".strip()
ARRAY_KWARGS = ("dt", "t", "lengths")
TABLE_KWARGS = TABLE_ARGUMENTS
INPUT_KWARGS = (*ARRAY_KWARGS, *TABLE_KWARGS)
F = TypeVar("F", bound=Callable[..., Any])


def with_input_kwargs(method: F) -> F:
    """Show :data:`INPUT_KWARGS` in the signature of a method that takes them as ``**given``.

    scikit-learn routes metadata by the names in a signature. In the docstring they stand for
    ``{given}``.
    """
    parameters = list(inspect.signature(method).parameters.values())[:-1]
    more = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in INPUT_KWARGS
    ]
    known = {*INPUT_KWARGS, *(parameter.name for parameter in parameters)}

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() - known:
            what = type(self).__name__ if method.__name__ == "__init__" else method.__name__
            advice = suggest_name(name, known)
            if name == "target" and "y" in known:
                advice = " It is y here: an array, or the name of a column."
            raise OptionError(
                f"{what} takes no argument {name!r}.{advice} It takes: "
                f"{', '.join(parameter.name for parameter in [*parameters, *more][1:])}."
            )
        plain = {name: _to_arrays(value) for name, value in kwargs.items()}
        return method(self, *map(_to_arrays, args), **plain)

    call.__signature__ = inspect.Signature([*parameters, *more])  # type: ignore[attr-defined]
    if method.__doc__:  # python -OO leaves none
        about = _KWARGS_DOC.replace("\n", "\n            ")
        call.__doc__ = method.__doc__.replace("{given}", about)
    return call  # type: ignore[return-value]


def _to_arrays(value: Any) -> Any:
    """Return arrays for tensors, also those in a list or a mapping, and other things as they are.

    Tensors may require a gradient and be on any device: no gradient flows through an estimator.
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if type(value) in (list, tuple) and any(isinstance(item, Tensor) for item in value):
        return type(value)(map(_to_arrays, value))
    if type(value) is dict:
        return {name: _to_arrays(item) for name, item in value.items()}
    return value
