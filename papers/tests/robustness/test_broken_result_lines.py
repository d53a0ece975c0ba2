"""Results files that are whole are shown."""

from functools import cache

from tauflow.runs.report.page import make_run_page
from tauflow.runs.results import DONE, RunRecord
from tauflow_papers.experiments.report import table
from tauflow_papers.experiments.report.grid_page import make_grid_markdown
from tauflow_papers.experiments.report.results_summary import describe_verdicts
from tauflow_papers.experiments.run.reproduce import collect
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.spec.load import load_experiment

_NAME = "ltc-table-6"


@cache
def experiment():
    return load_experiment(_NAME)


@cache
def records():
    """Return finished runs of a published table, as they would have been written."""
    all_records = []
    for row in experiment().rows:
        if row.model is None:
            continue
        for seed in range(2):
            job = make_job(experiment().with_epochs(3), row, seed)
            history = tuple(
                {
                    "epoch": epoch,
                    "step": 7 * epoch,
                    "lr": 1e-3,
                    "train_loss": 1.5 / epoch,
                    "valid": 0.4 / epoch,
                    "test": 0.5 / epoch,
                    "seconds": 0.25,
                }
                for epoch in (1, 2, 3)
            )
            all_records.append(
                RunRecord(
                    experiment=_NAME,
                    row=row.name,
                    seed=seed,
                    config=job.config,
                    config_hash=job.hash,
                    status=DONE,
                    metric=row.metric,
                    started="2024-05-31T14:30:00+00:00",
                    valid=0.13,
                    test=0.17,
                    last_test=0.17,
                    best_epoch=3,
                    epochs=3,
                    parameters=1234,
                    seconds=0.75,
                    seconds_per_epoch=0.25,
                    history=history,
                    versions={"tauflow": "0", "torch": "2"},
                    machine={"cpu": "x", "cores": 2, "threads": 1, "platform": "y"},
                )
            )
    return all_records


def shown(folder):
    """Read a results file and make of it what commands print."""
    grid = collect(experiment(), epochs=3, results_dir=folder)
    cells = table.tabulate_lines(table.make_lines(grid), describe_verdicts(grid))
    return cells[1], make_grid_markdown(grid)


def test_what_is_damaged_is_shown_when_whole(tmp_path):
    path = tmp_path / f"{_NAME}.jsonl"
    path.write_text("".join(record.to_json() + "\n" for record in records()))
    rows, markdown = shown(tmp_path)
    assert any("0.170 ± 0.000 (2)" in cell or "17.00" in cell for row in rows for cell in row)
    assert "Measured with tauflow 0" in markdown
    page = make_run_page(records()[0], title="", source="", baselines=(), pictures=())
    assert page.rows
