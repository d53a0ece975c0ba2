from pathlib import Path

import pytest

from tauflow.cli.table_options import resolve_source
from tauflow.data import load_task, write_task


@pytest.fixture
def folder(tmp_path):
    data = load_task("pendulum", sizes=(40, 10, 10), steps=6)
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    return write_task(tmp_path / "swing", data.card, **parts)


def test_a_name_of_the_catalog_goes_first(call, folder):
    folder.rename(folder.with_name("xor-dense"))
    assert resolve_source("xor-dense", None, {}) == "xor-dense"
    assert resolve_source("./xor-dense", None, {}) == Path("xor-dense")
