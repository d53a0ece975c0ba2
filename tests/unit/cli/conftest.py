import pytest
from typer.testing import CliRunner

from tauflow.cli.main import app

TABLE = """
name = "tiny"
title = "A tiny pendulum"
source = "Nobody 2020, Table 0"
loss = "mse"
metric = "mse"
seeds = 2
recipe = { epochs = 2, batch_size = 6 }

[[part]]
name = ""
dataset = "pendulum"
options = { sizes = [12, 6, 6], steps = 5 }

[[row]]
name = "gru"
title = "GRU"
model = { cell = "gru", hidden_size = 3 }
published = { mean = 0.5, std = 0.1, n = 5 }

[[row]]
name = "future"
title = "Model of the future"
planned = "not-yet"
published = { mean = 0.1 }
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def invoke(*words, code=0):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(TABLE, encoding="utf-8")
    return file
