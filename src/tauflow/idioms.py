"""Words of ``torch.nn`` and ``ncps`` that are other ones here, named where they are refused."""

import inspect
from collections.abc import Callable, Iterable

from tauflow.errors import OptionError

_AFTERWARDS = "build the module, then move it with .to(device, dtype)"
_HERE = {
    "units": "write hidden_size=",
    "timespans": "write dt=",
    "mixed_memory": "use tauflow.MixedMemory(input_size, hidden_size, core='cfc'), or core='ltc'",
    "ode_unfolds": "write substeps=",
    "implicit_param_constraints": "write constraint='softplus-raw' for True, 'relu' for False",
    "device": _AFTERWARDS,
    "dtype": _AFTERWARDS,
    "inter_neurons": "write inter=",
    "command_neurons": "write command=",
    "motor_neurons": "write motor=",
    "output_dim": "write output_size=",
    "sparsity_level": "write sparsity=",
    "random_seed": "write seed=",
    "erev_init_seed": "write seed=",
}


def in_our_words(name: str) -> str:
    """Return what to write instead of a word of other libraries, as a sentence, or ``""``."""
    return f" In tauflow {_HERE[name]}." if name in _HERE else ""


def refuse_idioms(
    where: str, given: Iterable[str], called: Callable[..., object] | None = None
) -> None:
    """Raise if an argument goes by a name that other libraries give it.

    Args:
        where: who is called, for messages.
        given: names of arguments.
        called: takes the arguments that are right by these names.

    Raises:
        OptionError: one does.
    """
    for name in given:
        if not (advice := in_our_words(name)):
            continue
        if called is None or name not in inspect.signature(called).parameters:
            raise OptionError(f"{where} has no option {name!r}.{advice}")
