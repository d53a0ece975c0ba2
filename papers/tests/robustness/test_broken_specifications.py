"""Specification files that were damaged: refused by name, or an experiment that can be listed."""

import random
from functools import cache
from importlib import resources

import pytest
from mutate import mutate_bytes, mutate_tree
from survive import seeds, survives

from tauflow.errors import TauflowError
from tauflow.runs.toml_files import tomllib
from tauflow_papers.experiments import list_experiments, load_experiment
from tauflow_papers.experiments.report.results_summary import describe_verdicts
from tauflow_papers.experiments.report.table import make_caption, make_lines, tabulate_lines
from tauflow_papers.experiments.run.reproduce import collect
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.spec.parse import experiment_from_dict

PARTS = range(4)


@cache
def texts():
    folder = resources.files("tauflow_papers.experiments.spec") / "tables"
    every = [(folder / f"{name}.toml").read_bytes() for name in list_experiments()]
    return sorted(every, key=len)[:8]  # the small ones; what they say is as varied


def used(experiment, folder):
    """Do with an experiment what needs no training."""
    grid = collect(experiment, results_dir=folder)
    jobs = [make_job(experiment, row, 0).hash for row in experiment.rows if row.model is not None]
    return tabulate_lines(make_lines(grid), describe_verdicts(grid)), make_caption(grid), jobs


@pytest.mark.parametrize("part", PARTS)
def test_damaged_bytes(part, tries, tmp_path):
    path, refused = tmp_path / "damaged.toml", 0
    for seed in seeds(part, tries("specifications, bytes", few=15, full=2500)):
        rng = random.Random(seed)
        path.write_bytes(mutate_bytes(rng.choice(texts()), rng))
        result = survives(
            lambda: used(load_experiment(path), tmp_path), f"specification, bytes, seed {seed}"
        )
        refused += isinstance(result, TauflowError)
    assert refused > 5


@pytest.mark.parametrize("part", PARTS)
def test_absurd_values(part, tries, tmp_path):
    trees = [tomllib.loads(text.decode()) for text in texts()]
    refused = 0
    for seed in seeds(part, tries("specifications, values", few=50, full=7500)):
        rng = random.Random(seed)
        tree = mutate_tree(rng.choice(trees), rng)
        if not isinstance(tree, dict):
            continue
        result = survives(
            lambda tree=tree: used(experiment_from_dict(tree, "damaged.toml"), tmp_path),
            f"specification, values, seed {seed}",
        )
        refused += isinstance(result, TauflowError)
    assert refused > 10
