"""Options of a built cell are followed everywhere when set, or setting them raises an error."""

import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError, TauflowError

pytestmark = pytest.mark.untyped  # values are of wrong types

X = torch.randn(2, 10, 3, generator=torch.Generator().manual_seed(0))
DT = torch.rand(2, 10, generator=torch.Generator().manual_seed(1)) + 0.1
NAMES = sorted(tauflow.cells.MODELS)
OF_THE_DRAW = {"init", "init_gain", "init_std", "constraint"}
"""Options that say how parameters are drawn, and kept in range while they are trained."""


def built(name):
    torch.manual_seed(0)
    size = tauflow.AutoNCP(7, 2) if name in ("ltc", "wired-cfc") else 4
    return tauflow.build(name, 3, size)


def other(value):
    """Return another value than an option has."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 2 * value + 0.25
    return "euler" if isinstance(value, str) else 1.5


def output(rnn, backend):
    """Return outputs, or the error that is tauflow's."""
    rnn.backend = backend
    try:
        with torch.no_grad():
            return rnn(X, dt=DT)[0]
    except TauflowError as error:
        return type(error)


@pytest.mark.parametrize("name", NAMES)
def test_an_option_that_nothing_reads_cannot_be_set(name):
    rnn = built(name)
    output(rnn, "auto")
    for option, value in rnn.cell.options.items():
        if hasattr(rnn.cell, option):
            continue
        with pytest.raises(ArgumentError, match=rf"{option} is fixed when it is built, with "):
            setattr(rnn.cell, option, other(value))
        if not hasattr(rnn, option):
            with pytest.raises(ArgumentError, match=f"{option} is fixed when it is built"):
                setattr(rnn, option, other(value))


@pytest.mark.parametrize("name", NAMES)
def test_a_number_that_is_set_is_followed_by_kernels_and_files(name, tmp_path):
    for option, value in built(name).cell.options.items():
        rnn = built(name)
        kept = getattr(rnn.cell, option, None)
        if type(kept) is not float or option in OF_THE_DRAW:
            continue
        output(rnn, "auto")  # from which a kernel might keep something
        setattr(rnn.cell, option, other(value))
        fast, slow = output(rnn, "auto"), output(rnn, "reference")
        if isinstance(slow, type):
            assert fast is slow, option
            continue
        assert torch.allclose(fast, slow, rtol=1e-4, atol=1e-5), option
        with pytest.raises(ArgumentError, match="not as it was built"):
            tauflow.save(rnn, tmp_path / "m")


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_elastance_of_a_built_cell_cannot_change(backend):
    rnn = tauflow.LRC(3, 4, backend=backend)
    rnn(X, dt=DT)
    rnn.cell.elastance = "symmetric"
    with pytest.raises(ArgumentError, match="elastance is 'symmetric', but the cell was built"):
        rnn(X, dt=DT)
