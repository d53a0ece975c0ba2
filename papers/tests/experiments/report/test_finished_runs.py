"""What reports say of where runs were made."""

from tauflow.runs.results import RunRecord
from tauflow_papers.experiments.report.finished_runs import describe_environment


def test_long_revisions_are_cut_and_short_ones_kept():
    records = [
        RunRecord("t", "gru", 0, {}, "", "done", "mse", "", commit=commit)
        for commit in ("0123456789" * 4, "0123456789" * 4 + "-dirty", "e74264a8", None)
    ]
    text = describe_environment(records)
    assert "revision 0123456789; 0123456789-dirty; e74264a8" in text
