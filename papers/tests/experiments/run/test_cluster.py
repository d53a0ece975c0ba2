"""Tables on the workers of a Dask cluster: the results of one machine, whoever dies."""

import os
import signal
import time
from dataclasses import replace

import matplotlib as mpl
import pytest
import torch
from matplotlib import pyplot as plt
from tiny_experiment import tiny

from tauflow.errors import ArgumentError, TauflowError
from tauflow.runs import dask_workers as module
from tauflow.runs import tune as tuning
from tauflow.runs.run import Run
from tauflow.training import Recipe
from tauflow_papers.experiments import reproduce
from tauflow_papers.experiments.run import result_file, run_in_cluster
from tauflow_papers.experiments.run.run_job import Paths
from tauflow_papers.figures import FIGURES, FigureResult, make_figure
from tauflow_papers.figures import make_figures as making
from tauflow_papers.figures.make_figures import make_figures

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def records_of(places, **options):
    lines = []
    table = tiny()
    reproduce(
        table,
        seeds=6,
        results_dir=places.results,
        runs_dir=places.runs,
        progress=False,
        **{"say": lines.append, **options},
    )
    records, warnings = result_file.read_records(places.results_file("tiny"))
    assert not warnings
    return sorted(records, key=lambda record: record.key), lines


def without_times_of(records):
    """What does not change with the machine: rows, seeds, scores."""
    return [
        (r.row, r.seed, r.config_hash, r.status, r.valid, r.test, r.parameters) for r in records
    ]


@pytest.mark.thorough
@pytest.mark.slow
def test_results_are_those_of_one_process_and_a_killed_worker_is_survived(tmp_path):
    here = Paths(tmp_path / "results", tmp_path / "runs")
    expected, _ = records_of(here)
    assert len(expected) == 12
    killed, lines = [], []

    def say(line):
        lines.append(line)
        if line.startswith("[3/") and not killed:
            victim, *_ = workers_of_this_process()
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    there = Paths(tmp_path / "results there", tmp_path / "runs there")
    records, _ = records_of(there, say=say, cluster="local", jobs=2)
    assert killed
    assert without_times_of(records) == without_times_of(expected)
    assert any(line.startswith("[12/12]") for line in lines)


def workers_of_this_process():
    import psutil  # which distributed needs

    pids = []
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
        except psutil.NoSuchProcess:  # one that ends while it is looked at, or waits to be reaped
            continue
        if "spawn_main" in command:
            pids.append(child.pid)
    return pids


def test_children_that_have_ended_are_not_taken_for_workers():
    import subprocess
    import sys

    import psutil

    ended = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(ended.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert ended.pid not in workers_of_this_process()
    ended.wait()


def test_a_time_limit_is_the_same_moment_elsewhere(tmp_path):
    from tauflow_papers.experiments.run.run_jobs import ExecutionOptions

    effort = ExecutionOptions(budget=50.0, paths=Paths(runs=tmp_path / "runs"))
    arguments = run_in_cluster._make_portable({"places": effort.paths, "deadline": effort.deadline})
    seen = {}
    job = object()

    def look(job, *, deadline, **options):
        seen.update(options, deadline=deadline, job=job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_in_cluster, "run_job", look)
        run_in_cluster._run_job_remotely(job, **arguments)
    assert seen["deadline"].at == pytest.approx(effort.deadline.at, abs=0.5)
    assert seen["places"].runs == (tmp_path / "runs").resolve()
    assert run_in_cluster._make_portable({"places": effort.paths})["deadline"] is None


def test_an_address_where_nobody_answers_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_CONNECT_TIMEOUT", 0.2)
    with pytest.raises(ArgumentError, match=r"no scheduler answers at 'tcp://127.0.0.1:9'"):
        records_of(Paths(tmp_path / "results", tmp_path / "runs"), cluster="tcp://127.0.0.1:9")


class Threads:
    """A cluster as its client shows it."""

    def __init__(self, threads):
        self.threads = threads

    def wait_for_workers(self, count, timeout):
        if not self.threads:
            raise TimeoutError("no worker connected")

    def nthreads(self):
        return self.threads


def test_workers_run_one_job_at_a_time():
    module._check_workers(Threads({"a": 1, "b": 1}), "tcp://head:1")
    with pytest.raises(ArgumentError, match=r"worker b runs 4 jobs at a time.*'--nthreads 1'"):
        module._check_workers(Threads({"a": 1, "b": 4}), "tcp://head:1")
    with pytest.raises(ArgumentError, match=r"at tcp://head:1 has no workers.*dask worker"):
        module._check_workers(Threads({}), "tcp://head:1")


@pytest.fixture(scope="module")
def address():
    threads = torch.get_num_threads()
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address
    torch.set_num_threads(threads)


def test_a_scheduler_is_told_by_its_address(tmp_path, address):
    places = Paths(tmp_path / "results", tmp_path / "runs")
    for _ in range(2):
        grid = reproduce(
            replace(tiny(), seeds=1),
            models=["gru"],
            results_dir=places.results,
            runs_dir=places.runs,
            progress=False,
            cluster=address,
        )
        assert not grid.outcome.failures
    records, _ = result_file.read_records(places.results_file("tiny"))
    assert [record.status for record in records] == ["done"]  # the second call ran nothing


FIGURE = {"size": "full", "seed": 0, "formats": ("svg",)}


@pytest.fixture
def figure(monkeypatch):
    """Name of a figure that takes no time."""

    def compute(job):
        numbers = torch.rand(3)

        def draw():
            picture, ax = plt.subplots()
            ax.plot(numbers)
            return picture

        return FigureResult(draw, {"numbers": numbers})

    entry = replace(FIGURES["gnode-figure-4"], name="quick", compute=compute)
    monkeypatch.setitem(FIGURES._entries, "quick", entry)
    backend = mpl.get_backend()
    yield "quick"
    mpl.use(backend)


def test_figures_come_home_through_the_scheduler(figure, tmp_path, address):
    (there,) = make_figures([figure], tmp_path / "there", **FIGURE, cluster=address)
    here = make_figure(figure, tmp_path / "here", **FIGURE)
    assert [file.name for file in there.files] == [file.name for file in here.files]
    assert {file.suffix for file in here.files} == {".svg", ".npz", ".json"}
    for figure_file, other in zip(there.files, here.files, strict=True):
        assert figure_file.suffix == ".json" or figure_file.read_bytes() == other.read_bytes()


class Unlucky:
    """Workers of which the first dies with its call, and those after it do what they should."""

    size = 1

    def __init__(self, cluster, workers):
        self.lost = 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run_calls(self, calls):
        for key, call in calls:
            self.lost -= 1
            yield key, call() if self.lost < 0 else RuntimeError("killed")


def test_a_figure_that_no_worker_could_make_is_named(figure, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "connect_workers", Unlucky)
    with pytest.raises(TauflowError, match=r"quick: no worker came .* killed"):
        list(make_figures([figure], tmp_path, **FIGURE, cluster="tcp://head:1"))


def tuned(tmp_path, trials, **more):
    vary = {"model.hidden_size": [2, 3]}
    recipe = Recipe(epochs=2, batch_size=200)
    run = Run("pendulum", "elman", recipe=recipe, runs_dir=tmp_path)
    return tuning.tune(run, trials=trials, vary=vary, **more)


def test_a_study_is_tried_by_the_workers_of_a_cluster(tmp_path, address):
    pytest.importorskip("optuna")
    first = tuned(tmp_path, 1, cluster=address)
    again = tuned(tmp_path, 2, cluster=address)
    assert again.trials[:1] == first.trials
    assert [state for _, _, state in again.trials] == ["complete"] * 2
    (settings, score, _) = first.trials[0]
    here = tuned(tmp_path / "here", 1)
    assert here.trials[0][:2] == (settings, pytest.approx(score, rel=1e-5))
    assert (again.directory / tuning.BEST_CONFIG_FILE).exists()
