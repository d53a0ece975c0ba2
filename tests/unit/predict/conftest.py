from dataclasses import replace

import numpy as np
import pandas
import pytest

from tauflow.data import TableOptions
from tauflow.runs.run import DEFAULT_RECIPE, CsvFile, Run
from tauflow.runs.task import run_task

SAID = {"id": "patient", "time": "hours"}
TASKS = {
    "classification": {"target": "died", "features": ("a", "b")},
    "regression": {"target": "level", "features": ("a", "b")},
    "next-step": {"features": ("a", "b")},
}


def visits():
    """Return 20 patients with irregular times; a misses some values, b tells who dies."""
    rng = np.random.default_rng(0)
    rows = []
    for patient in range(20):
        side = patient % 2
        for hour in rng.exponential(1.0, rng.integers(3, 6)).cumsum():
            a = rng.normal() if rng.random() > 0.2 else float("nan")
            b = side + 0.1 * rng.normal()
            rows.append((patient, round(hour, 3), a, b, "yes" if side else "no", 50 + 20 * b))
    return pandas.DataFrame(rows, columns=["patient", "hours", "a", "b", "died", "level"])


@pytest.fixture(scope="session")
def table():
    return visits()


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Train a model for each task; return the runs by the task, and the folder of all."""
    folder = tmp_path_factory.mktemp("predictors")
    file = folder / "visits.csv"
    visits().to_csv(file, index=False)
    return {
        task: run_task(
            Run(
                CsvFile(file, TableOptions(**SAID, **options)),
                "gru",
                hidden_size=3,
                recipe=replace(DEFAULT_RECIPE, epochs=2, batch_size=8),
                runs_dir=folder / "runs",
                progress=False,
            )
        )
        for task, options in TASKS.items()
    }
