"""Hashes of the runs of every experiment, by which finished runs are found again."""

from collections.abc import Iterator
from pathlib import Path

from .digests import digest, key, write_part


def list_values(_: Path) -> Iterator[tuple[str, str]]:
    """Yield the hash of every row's runs, of all seeds and of every setting it searches."""
    from tauflow_papers.experiments import list_experiments, load_experiment
    from tauflow_papers.experiments.run.grid_search import make_search_jobs
    from tauflow_papers.experiments.run.row_jobs import make_job

    for name in list_experiments():
        table = load_experiment(name)
        for epochs in (None, 1):
            experiment = table.with_epochs(epochs)
            for row in experiment.rows:
                if row.model is None or row.recipe is None:
                    continue
                for seed in range(experiment.seeds):
                    job = make_job(experiment, row, seed)
                    place = str(job.directory(Path("runs")).as_posix())
                    yield key(name, row.name, f"epochs {epochs}", f"seed {seed}"), job.hash
                    yield key(name, row.name, f"epochs {epochs}", f"seed {seed}", "folder"), place
                jobs = make_search_jobs(experiment, row)
                if jobs:
                    keys = " ".join(f"{job.label} {job.seed} {job.hash}" for job in jobs)
                    yield key(name, row.name, f"epochs {epochs}", "search"), digest(keys)


if __name__ == "__main__":
    write_part("hashes", list_values)
