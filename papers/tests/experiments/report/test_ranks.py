"""Mean ranks over tasks, critical differences, and the pages that show them."""

import copy
import re
from pathlib import Path

import pytest
from tiny_experiment import parsed

from tauflow.errors import ArgumentError
from tauflow.runs.job import make_record_header
from tauflow.runs.results import RunRecord
from tauflow_papers.experiments.report.ranks import (
    compute_critical_difference,
    draw_critical_difference,
    find_cliques,
    make_score_table,
    rank_models,
)
from tauflow_papers.experiments.report.ranks_page import (
    BEGIN,
    END,
    describe_divergence,
    make_rank_page,
    make_rank_summary,
    write_rank_pages,
)
from tauflow_papers.experiments.report.results_summary import summarize_table
from tauflow_papers.experiments.run import result_file
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.spec.load import load_experiment
from tauflow_papers.experiments.spec.parse import experiment_from_dict

ROOT = Path(__file__).parents[4]
SCORES = {
    "gru": {"a": (0.1, 0.3), "b": (1.0, 1.0), "c": (5.0, 7.0)},
    "elman": {"a": (0.2, 0.2), "b": (2.0, 4.0), "c": (8.0, 8.0)},
    "naive": {"a": (0.9, 0.9), "b": (9.0, 9.0), "c": (9.0, 9.0)},
}
"""Test errors by model, task and split; the means of the first two on task a are equal."""


@pytest.fixture
def comparison(tmp_path):
    """Return a comparison of three models on three tasks, with stored results."""
    options = {"sizes": [12, 6, 6], "steps": 5}
    made = copy.deepcopy(parsed())
    made["part"] = [{"name": name, "dataset": "pendulum", "options": options} for name in "abc"]
    made["row"] = [
        {"name": n, "title": n.title(), "model": {"cell": n}, "published": {"absent": "ours"}}
        for n in SCORES
    ]
    made["split_option"] = "seed"
    experiment = experiment_from_dict(made, "tiny.toml")

    def store(without=()):
        path = tmp_path / "tiny.jsonl"
        path.unlink(missing_ok=True)
        for row in experiment.rows:
            model, task = row.name.split("/")
            for seed, test in enumerate(SCORES[model][task]):
                if (row.name, seed) in without:
                    continue
                header = make_record_header(make_job(experiment, row, seed), "2026-01-01")
                record = RunRecord(
                    **header, status="done", test=test, epochs=2, parameters=7, seconds=3.0
                )
                result_file.append_record(path, record)
        return summarize_table(experiment, tmp_path)

    return store


def test_page_names_scores_that_spread_more_than_their_mean(comparison, monkeypatch):
    assert describe_divergence(rank_models(comparison())) == []
    monkeypatch.setitem(SCORES["elman"], "b", (2.0, 400.0))
    (text,) = describe_divergence(rank_models(comparison()))
    assert text.endswith("says little: Elman on b (median 201).")


def test_ranks_are_those_of_mean_scores(comparison):
    ranking = rank_models(comparison())
    assert [(standing.title, standing.mean_rank) for standing in ranking.standings] == [
        ("Gru", pytest.approx((1.5 + 1 + 1) / 3)),
        ("Elman", pytest.approx((1.5 + 2 + 2) / 3)),
        ("Naive", 3.0),
    ]
    first = ranking.standings[0]
    assert (first.parameters, first.seconds) == (7, 3.0)
    assert first.scores["a"].mean == pytest.approx(0.2)
    assert first.scores["a"].std == pytest.approx(0.2 / 2**0.5)
    assert first.scores["a"].error == pytest.approx(0.1)
    # Friedman's statistic with its correction for ties, by hand: 12 pairs less one tie of two.
    sums = [standing.mean_rank * 3 for standing in ranking.standings]
    k, n = 3, 3
    statistic = 12 / (n * k * (k + 1)) * sum(s * s for s in sums) - 3 * n * (k + 1)
    statistic /= 1 - (2**3 - 2) / (n * (k**3 - k))
    assert ranking.p_value == pytest.approx(2.718281828 ** (-statistic / 2), rel=1e-6)


def test_critical_differences_are_the_published_ones():
    """Demsar 2006, Section 3.2.2: four classifiers on 14 data sets, 1.25."""
    assert compute_critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)
    assert compute_critical_difference(10, 1) == pytest.approx(3.164 * (110 / 6) ** 0.5, rel=1e-3)


def test_cliques_are_the_largest_groups_nearer_than_the_difference():
    assert find_cliques([1.0, 1.5, 3.0, 3.2, 5.0], 1.6) == [(0, 1), (1, 2), (2, 3)]
    assert find_cliques([1.0, 1.5, 3.0, 3.2, 5.0], 1.75) == [(0, 1), (1, 3)]
    assert find_cliques([1.0, 9.0], 1.0) == []


def test_a_task_without_a_run_is_left_out(comparison):
    ranking = rank_models(comparison(without=[("elman/b", 1)]))
    assert ranking.incomplete == ("b",)
    assert set(ranking.metrics) == {"a", "c"}
    with pytest.raises(ArgumentError, match="tiny: 1 task of 3 and 3 models have all"):
        rank_models(comparison(without=[("elman/b", 1), ("gru/c", 0)]))


def test_pages_show_ranks_scores_and_the_picture(comparison, tmp_path):
    summary = comparison()
    ranking = rank_models(summary)
    choosing = tmp_path / "choosing.md"
    choosing.write_text(f"# Choosing\n\n{BEGIN}\nold\n{END}\n\nend\n", encoding="utf-8")
    paths = write_rank_pages(summary, ranking, tmp_path / "ranks.md", choosing)
    assert [path.name for path in paths] == ["ranks.md", "choosing.md", "critical-difference.svg"]
    page, short, picture = (path.read_text(encoding="utf-8") for path in paths)
    assert "| Gru | 1.2 | 2 | 7 | 3 |" in page
    assert "| Naive | 0.900 ± 0.000 |" in page
    assert "Gru has the best mean rank (1.2)" in page
    assert short.startswith(f"# Choosing\n\n{BEGIN}\n\n3 models on 3 tasks")
    assert short.endswith(f"{END}\n\nend\n")
    assert "old" not in short
    assert "Elman" in picture
    assert draw_critical_difference(ranking) == draw_critical_difference(ranking)
    choosing.write_text("no marks", encoding="utf-8")
    with pytest.raises(ArgumentError, match="needs the marks"):
        write_rank_pages(summary, ranking, tmp_path / "ranks.md", choosing)
    assert re.search(r"\*\*1\.000 ± 0\.000\*\*", make_score_table(ranking))


def test_the_command_prints_ranks(call, tmp_path):
    message = call("leaderboards", "--results", tmp_path, code=1).stderr
    assert "ranks need two tasks and three models" in " ".join(message.split())


def test_the_pages_of_the_documentation_are_those_of_the_results():
    summary = summarize_table(load_experiment("leaderboards"), ROOT / "papers" / "results")
    ranking = rank_models(summary)
    assert len(ranking.metrics) >= 8
    assert len(ranking.standings) >= 14
    assert make_rank_page(summary, ranking) == (ROOT / "docs" / "leaderboards.md").read_text(
        "utf-8"
    )
    short = make_rank_summary(ranking, "leaderboards.md")
    assert short in (ROOT / "docs" / "choosing.md").read_text("utf-8")
