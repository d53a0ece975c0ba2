"""Real tables become the same batches, bit for bit, and saved files answer as they did."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sources import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks.freeze.tables import ESTIMATORS, FROZEN, PREDICTORS, answer, describe

TABLES = Path(os.environ.get("TAUFLOW_DATA", "data")) / "tables"
SAID = json.loads((FROZEN / "tables.json").read_text("utf-8"))

pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason="the real tables are not here")


@pytest.mark.parametrize("name", SAID)
def test_batches_are_the_same_to_the_last_bit(name):
    digests = describe(TABLES / f"{SAID[name]['table']}.csv.gz", SAID[name]["options"])
    assert json.loads(json.dumps(digests)) == SAID[name]["digests"]


@pytest.mark.parametrize("name", [*PREDICTORS, *ESTIMATORS])
def test_saved_files_answer_alike(name):
    expected = load_file(FROZEN / "tables" / "expected.safetensors")[name]
    answers = torch.from_numpy(answer(TABLES, name, SAID, FROZEN / "tables"))
    torch.testing.assert_close(answers, expected, rtol=1e-5, atol=1e-6)
