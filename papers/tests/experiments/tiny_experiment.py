"""A table that runs in a second: what the tests of this folder reproduce."""

from dataclasses import asdict

from tauflow.runs.toml_files import tomllib  # Python 3.10 has it under another name
from tauflow_papers.experiments.spec.experiment import Experiment
from tauflow_papers.experiments.spec.parse import experiment_from_dict

TINY = """
name = "tiny"
title = "A tiny pendulum"
source = "Doe 2020, Table 0"
loss = "mse"
metric = "mse"
seeds = 2
notes = ["Invented."]

[[part]]
name = ""
dataset = "pendulum"
options = { sizes = [12, 6, 6], steps = 5 }

[model]
hidden_size = 3

[recipe]
lr = 0.01
epochs = 2
batch_size = 6

[[row]]
name = "gru"
title = "GRU"
model = { cell = "gru" }
published = { mean = 0.5, std = 0.1, n = 5 }

[[row]]
name = "elman"
title = "Elman <b>"
model = { cell = "elman" }
published = { mean = 0.7, quoted = "Somebody 2019" }
recipe = { lr = 0.02 }

[[row]]
name = "future"
title = "Model of the future"
planned = "not-yet"
published = { mean = 0.1 }
"""


def parsed() -> dict:
    return tomllib.loads(TINY)


def tiny(**changes) -> Experiment:
    return experiment_from_dict({**parsed(), **changes}, "tiny.toml")


def without_times(record) -> dict:
    """All of a record that two runs of the same job must agree in, exactly."""
    timed = dict.fromkeys(("seconds", "seconds_per_epoch", "processor_seconds"), 0.0)
    comparable = {**asdict(record), "started": "", "command": "", **timed}
    comparable["history"] = [{**row, "seconds": 0.0} for row in record.history]
    return comparable
