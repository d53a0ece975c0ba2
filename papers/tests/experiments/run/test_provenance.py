"""Stored results come from a clean commit of main, and say so."""

import shutil
import subprocess
from dataclasses import replace

import pytest
from tiny_experiment import tiny

from tauflow.errors import ArgumentError
from tauflow.runs import results
from tauflow.runs.job import make_record_header, train_job
from tauflow.runs.results import RunRecord
from tauflow_papers.experiments import reproduce
from tauflow_papers.experiments.run import provenance
from tauflow_papers.experiments.run.provenance import (
    check_can_store,
    check_origin,
    find_untraced,
    list_commits,
    update_traced,
)
from tauflow_papers.experiments.run.row_jobs import load_job_data, make_job
from tauflow_papers.experiments.run.run_job import Paths, run_job

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Clone:
    """A repository with sources, a protocol, results, and a folder that git ignores."""

    def __init__(self, root):
        self.root = root
        self.module = root / "src/tauflow/runs/results.py"
        self.results = root / "papers/results"
        for path, text in {
            self.module: "1\n",
            root / "papers/src/one.py": "1\n",
            root / "papers/PROTOCOL.md": "# Protocol\n",
            self.results / "REPORT.md": "# Results\n",
            root / ".gitignore": "/runs/\n",
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("init", "-b", "main")
        self.commit()

    def git(self, *words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        answer = subprocess.run(
            ["git", *who, *words], cwd=self.root, check=True, capture_output=True, text=True
        )
        results.get_commit.cache_clear()
        return answer.stdout.strip()

    def commit(self):
        self.git("add", ".")
        self.git("commit", "-m", "all")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path, monkeypatch):
    repository = Clone(tmp_path)
    monkeypatch.setattr(results, "__file__", str(repository.module))
    yield repository
    results.get_commit.cache_clear()


def test_a_clean_commit_of_main_may_store(clone):
    check_can_store(clone.results)
    (clone.results / "REPORT.md").write_text("other results\n")
    check_can_store(clone.results / "claims")


@pytest.mark.parametrize("planted", ["src/tauflow/runs/results.py", "papers/src/new.py"])
def test_a_planted_change_is_refused(clone, planted):
    (clone.root / planted).write_text("2\n")
    with pytest.raises(ArgumentError, match=r"uncommitted changes.*Commit and merge the changes"):
        check_can_store(clone.results)
    check_can_store(clone.root / "runs")  # which git ignores
    with pytest.raises(ArgumentError, match="only from a clean commit of main"):
        reproduce(
            tiny(), models=["gru"], seeds=1, results_dir=clone.results, runs_dir=clone.root / "runs"
        )
    assert not (clone.results / "tiny.jsonl").exists()


def test_a_commit_of_another_branch_is_refused(clone):
    clone.git("checkout", "-b", "side")
    clone.module.write_text("2\n")
    commit = clone.commit()
    with pytest.raises(ArgumentError, match=f"commit {commit[:12]} is no ancestor of main"):
        check_can_store(clone.results)
    clone.git("checkout", "main")
    clone.git("merge", "side")
    check_can_store(clone.results)


def test_an_installed_package_stores_nothing_there(clone, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("site") / "src/tauflow/runs/results.py"
    monkeypatch.setattr(results, "__file__", str(elsewhere))
    results.get_commit.cache_clear()
    with pytest.raises(ArgumentError, match="no clone of the repository"):
        check_can_store(clone.results)


def test_runs_that_cannot_be_traced_are_found(clone):
    first = clone.git("rev-parse", "HEAD")
    header = make_record_header(make_job(tiny(), tiny().row("gru"), 0), "2026-01-01T00:00:00+00:00")
    traced = RunRecord(**{**header, "commit": first[:9]}, status="done")
    others = [replace(traced, commit=commit) for commit in (f"{first}-dirty", "0123456789", None)]
    assert find_untraced([traced, *others], clone.results) == []  # nothing is known
    update_traced(clone.results, [record.commit for record in (traced, *others)])
    assert find_untraced([traced, *others], clone.results) == others
    check_origin(traced, clone.results)
    for other in others:
        with pytest.raises(ArgumentError, match="no clean ancestor of main"):
            check_origin(other, clone.results)


def test_commits_of_studies_and_figures_are_among_those_that_can_be_traced(clone):
    first = clone.git("rev-parse", "HEAD")
    for folder in (clone.results / "claims", clone.root / "docs/gallery"):
        folder.mkdir(parents=True)
        (folder / "one.json").write_text(f'{{"commit": "{first}"}}')
        (folder / "two.json").write_text("{}")
        commits = list_commits(clone.results)
        assert commits == {first, None}
        shutil.rmtree(folder)
    update_traced(clone.results, commits)
    assert (clone.results / provenance.TRACED_FILE).read_text() == f"{first}\n"


def test_a_command_names_no_folder_of_the_machine(monkeypatch):
    monkeypatch.setattr(
        "sys.argv", ["/usr/bin/tauflow", "reproduce", "/data/a b.toml", "--seeds", "1"]
    )
    assert provenance.get_command() == "tauflow reproduce 'a b.toml' --seeds 1"


def test_all_parts_of_a_run_count(clone, monkeypatch):
    def run(epochs):
        experiment = tiny().with_epochs(epochs)
        places = Paths(clone.root / "out", clone.root / "runs")
        return run_job(make_job(experiment, experiment.row("gru"), 0), places=places)

    first = clone.git("rev-parse", "HEAD")
    clone.module.write_text("2\n")
    results.get_commit.cache_clear()
    assert run(1).commit == f"{first}-dirty"
    second = clone.commit()
    continued = run(2)  # begins where the shorter one ended
    assert (continued.commit, continued.epochs) == (f"{first}-dirty+{second}", 2)
    clone.module.write_text("3\n")
    third = clone.commit()
    trained = run(3)
    assert trained.commit == f"{first}-dirty+{second}+{third}"
    with pytest.raises(ArgumentError, match="no clean ancestor of main"):
        check_origin(trained, clone.results)
    check_origin(replace(trained, commit=f"{second}+{third}"), clone.results)


def test_the_commit_is_that_of_the_beginning(clone):
    first = clone.git("rev-parse", "HEAD")

    def merge(row):
        clone.module.write_text(f"epoch {row['epoch']}\n")
        clone.commit()

    job = make_job(tiny(), tiny().row("gru"), 0)
    data = load_job_data(job, None)
    record, _ = train_job(job, data, progress=False, callbacks=[merge])
    assert record.commit == first
