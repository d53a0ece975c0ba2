"""Rows that average networks and boosting, each trained on several folds."""

from dataclasses import replace
from statistics import fmean

import pytest
from tiny_experiment import parsed, tiny

from tauflow.data.registry import load_task
from tauflow.errors import SpecificationError
from tauflow.evaluation.outputs import predict_split
from tauflow.runs.boosting import fit_boosted_trees
from tauflow.runs.job import train_job
from tauflow_papers.experiments.run.ensemble_rows import make_member_jobs, run_ensemble_job
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.spec.parameter_counts import parameter_counts

MEMBERS = ("gru", "boosting")
ROW = {
    "name": "joined",
    "title": "Ensemble",
    "model": {"cell": "ensemble", "members": list(MEMBERS), "folds": 2},
    "published": {"mean": 0.5},
}


def ensemble(**changes):
    return tiny(row=[*parsed()["row"], {**ROW, "model": {**ROW["model"], **changes}}])


@pytest.fixture
def folds():
    """Return two tasks with one test part, of which one learns from what the other validates."""
    data = load_task("pendulum", sizes=[12, 12, 6], steps=5)
    return [data, replace(data, train=data.valid, valid=data.train)]


def test_the_mean_prediction_of_all_members_is_scored(folds, tmp_path):
    job = make_job(ensemble(), ensemble().row("joined"), 3)
    trained = []

    def train(job, data):
        record, model = train_job(job, data, progress=False)
        trained.append((job, model))
        return record, model

    record = run_ensemble_job(job, lambda job: folds[job.part.options["fold"]], train)
    assert [(job.model.cell, job.seed) for job, _ in trained] == [("gru", 3), ("gru", 103)]
    assert len({job.directory(tmp_path) for job, _ in trained}) == 2
    pairs = [
        (model, fit_boosted_trees(data)) for (_, model), data in zip(trained, folds, strict=True)
    ]

    def score(models, batch):
        mean = sum(predict_split(model.eval(), batch)[0] for model in models) / len(models)
        return float((mean - batch.y).square().mean())

    valid = [score(pair, data.valid) for pair, data in zip(pairs, folds, strict=True)]
    assert record.valid == pytest.approx(fmean(valid), rel=1e-5)
    assert record.test == pytest.approx(score(sum(pairs, ()), folds[0].test), rel=1e-5)
    counts = parameter_counts(ensemble())
    assert record.parameters == counts["joined"] == 2 * counts["gru"]
    assert record.config_hash == job.hash


def test_rows_with_the_same_members_share_their_runs(tmp_path):
    both, alone = ensemble(), ensemble(members=["gru"])
    jobs = [make_member_jobs(make_job(table, table.row("joined"), 0)) for table in (both, alone)]
    of_both, of_alone = ({fold[0].directory(tmp_path) for fold in job} for job in jobs)
    assert of_both == of_alone


def test_seeds_are_trained_on_the_same_parts_with_options():
    options = {"members": ["gru", "cfc"], "seeds": 3, "options": {"init": "keras"}}
    model = {"cell": "ensemble", **options}
    table = tiny(row=[*parsed()["row"], {**ROW, "model": model}])
    jobs = make_member_jobs(make_job(table, table.row("joined"), 1))
    assert [[job.seed for job in each] for each in jobs] == [[3, 3], [4, 4], [5, 5]]
    assert all("fold" not in job.part.options for each in jobs for job in each)
    assert all(job.model.options == {"init": "keras"} for each in jobs for job in each)


@pytest.mark.parametrize("changes", [{"members": []}, {"folds": 0}, {"size": 3}])
def test_members_and_folds_are_needed(changes):
    table = ensemble(**changes)
    with pytest.raises(SpecificationError, match="an ensemble has the options members"):
        parameter_counts(table)
