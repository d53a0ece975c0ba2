"""Names that the zoo adds to the packages above which it stands."""

import pickle
import subprocess
import sys

import pytest

import tauflow
import tauflow.zoo

PROGRAM = """
import sys
import tauflow
from tauflow import estimators, wirings

assert "tauflow.zoo" not in sys.modules
from tauflow.cells import CoRNNCell
from tauflow.models import kl_coefficient
from tauflow.sequence import CoRNN

assert "tauflow.zoo" in sys.modules
assert tauflow.CoRNN is CoRNN
assert CoRNN.cell_class is CoRNNCell
assert {"CoRNN"} < set(dir(tauflow))
"""
UNPICKLING = """
import pickle, sys
assert type(pickle.load(open(sys.argv[1], "rb"))).__name__ == "CoRNN"
"""


@pytest.mark.parametrize("program", [pytest.param(PROGRAM, marks=pytest.mark.thorough), UNPICKLING])
def test_a_new_process_finds_them(program, tmp_path):
    path = tmp_path / "rnn.pkl"
    path.write_bytes(pickle.dumps(tauflow.CoRNN(3, 4)))
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, path], check=True)


@pytest.mark.parametrize("module", [tauflow, tauflow.cells, tauflow.models, tauflow.sequence])
def test_other_names_are_errors(module):
    with pytest.raises(AttributeError, match=f"'{module.__name__}' has no attribute 'Nonsense'"):
        _ = module.Nonsense
    assert len(set(module.__all__)) == len(module.__all__)


def test_the_error_of_a_name_that_only_the_zoo_has_says_where_it_is():
    with pytest.raises(AttributeError, match=r"The zoo has it: tauflow\.zoo\.BRITS"):
        _ = tauflow.BRITS
