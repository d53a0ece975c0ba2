"""Every figure at its small size, made once for all tests."""

import csv
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tauflow_papers.figures import FIGURES, make_figure
from tauflow_papers.figures.gnode_flip_flop import ENTRIES

RESULTS = Path(__file__).parents[2] / "results"
NAMES = [
    name for name in FIGURES if name not in {*(entry.name for entry in ENTRIES), "gnode-figure-1"}
]
"""Those of networks that remember pulses are tested in another file."""


class Small:
    """The files of one figure."""

    def __init__(self, name, folder):
        self.entry, self.folder = FIGURES[name], folder
        self.made = make_figure(name, folder, size="small", formats=("svg",), results_dir=RESULTS)
        self.record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        self.findings = self.record["findings"]
        data = folder / f"{name}.npz"
        self.arrays = dict(np.load(data)) if data.is_file() else {}
        table = folder / f"{name}.csv"
        self.rows = []
        if table.is_file():
            with table.open(newline="", encoding="utf-8") as file:
                self.rows = list(csv.DictReader(file))


_FOLDER = TemporaryDirectory(prefix="small-figures-")  # until the process ends


@cache
def small(name):
    folder = Path(_FOLDER.name) / name
    folder.mkdir()
    return Small(name, folder)
