import re

from tauflow.cells import MODELS
from tauflow.kernels import KERNELS
from tauflow.sequence.precompile import _default_models, precompile


def test_kernels_are_compiled_and_kept(call):
    output = call("precompile", "ct-rnn").output
    assert re.search(r"^ct-rnn: \d+\.\d s$", output, re.MULTILINE)
    assert "Kernels are kept in " in output
    assert "Did you mean 'cfc'" in call("precompile", "cfd", code=1).output


def test_models_are_compiled_when_called_and_named_as_they_are_done():
    done = []
    seconds = precompile("elman", "ct-rnn", done=lambda *pair: done.append(pair))
    assert list(seconds) == ["elman", "ct-rnn"]
    assert done == list(seconds.items())


def test_by_default_every_compiled_cell_has_its_turn():
    cells = [MODELS[name].cell for name in _default_models()]
    assert len(cells) == len(set(cells))
    compiled = {row.cell for row in KERNELS if row.backend == "numba" and row.device is None}
    assert set(cells) > compiled
    assert len(cells) == len(compiled) + 1  # which stands for all whose steps are recorded
