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


def test_a_new_process_finds_them():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_a_new_process_reads_a_pickle(tmp_path):
    path = tmp_path / "rnn.pkl"
    path.write_bytes(pickle.dumps(tauflow.CoRNN(3, 4)))
    program = f"import pickle; print(type(pickle.load(open({str(path)!r}, 'rb'))).__name__)"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True, text=True
    )
    assert ran.stdout.split() == ["CoRNN"]


@pytest.mark.parametrize("module", [tauflow, tauflow.cells, tauflow.models, tauflow.sequence])
def test_other_names_are_errors(module):
    with pytest.raises(AttributeError, match=f"'{module.__name__}' has no attribute 'Nonsense'"):
        _ = module.Nonsense
    assert len(set(module.__all__)) == len(module.__all__)


def test_the_error_of_a_name_that_only_the_zoo_has_says_where_it_is():
    with pytest.raises(AttributeError, match=r"The zoo has it: tauflow\.zoo\.BRITS"):
        _ = tauflow.BRITS
