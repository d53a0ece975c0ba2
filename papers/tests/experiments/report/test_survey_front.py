"""The first screen of a report on all results."""

import json
import random

import pytest
from scipy.stats import spearmanr
from test_survey import TINY, add

from tauflow_papers.experiments.report.comparison import (
    find_pareto_front,
    format_rank_correlation,
    plot_trade_offs,
    rank_candidates,
    tabulate_validation_choices,
)
from tauflow_papers.experiments.report.results_summary import summarize_results
from tauflow_papers.experiments.report.summary_header import (
    make_summary_tables,
    tabulate_headlines,
    tabulate_papers,
    tabulate_tasks,
)
from tauflow_papers.experiments.report.summary_page import make_summary_markdown, make_summary_page
from tauflow_papers.experiments.spec.load import list_experiments, load_experiment


@pytest.fixture
def summary(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    add(folder, "gru", seed=0, test=0.5)
    add(folder, "gru", seed=1, test=0.7)
    add(folder, "elman", test=0.61)
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    return summarize_results(folder, [tmp_path / "tiny.toml"])


def test_papers_are_counted_whole(summary):
    papers = {row[0]: row[1:] for row in tabulate_papers(summary).rows}
    assert len(papers) == 5  # the four of the packaged tables, and the tiny one's
    # Of three rows one has no model yet; the others have too few seeds for a verdict.
    assert papers["Doe 2020"][:3] == ("1 of 1", "2 of 3", "0")
    assert papers["Doe 2020"][-2:] == ("3", "18.0 s")
    others = [row for paper, row in papers.items() if paper != "Doe 2020"]
    assert all(row[0].startswith("0 of ") and row[1].startswith("0 of ") for row in others)


def test_the_best_model_is_that_of_the_best_mean(summary):
    ((task, model, table, unit, score, models, parameters, pace),) = tabulate_tasks(summary).rows
    assert task == "pendulum (sizes=…, steps=5)"
    # The mean of 0.5 and 0.7 is below 0.61, and smaller errors are better.
    assert (model, table, models) == ("GRU", "tiny", "2")
    assert score.startswith("0.600 ± ")
    assert score.endswith(" †")
    assert unit == "mean squared error"
    assert (parameters, pace) == ("–", "3 s")


def test_what_a_paper_leads_with_is_shown_measured_or_not(tmp_path):
    folder, specification = tmp_path / "results", tmp_path / "tiny.toml"
    folder.mkdir()
    add(folder, "gru", test=0.5)
    text = TINY.replace("seeds = 2", 'seeds = 2\nheadlines = ["gru", "elman"]')
    assert text != TINY
    specification.write_text(text, encoding="utf-8")
    rows = tabulate_headlines(summarize_results(folder, [specification])).rows
    elman, gru = (row for row in rows if row[0] == "tiny")
    assert gru[:4] == ("tiny", "pendulum", "GRU", "mean squared error")
    assert gru[4:] == ("not measured", "0.500 ± 0.100", "0.500 †", "1 of 5")
    assert elman[4:] == ("–", "0.700", "–", "–")
    others = {row[0]: row[4:] for row in rows if row[0] != "tiny"}  # tables without any result
    assert others["ltc-table-6"] == ("–", "2.308 ± 0.015", "–", "–")


def test_the_papers_each_lead_with_something():
    named = [load_experiment(name) for name in list_experiments()]
    leading = {row.name.split("-table")[0].split("-figure")[0] for row in named if row.headlines}
    assert leading == {"ltc", "cfc", "gnode", "ode-lstm"}


def test_both_reports_begin_with_it(summary):
    page, text = make_summary_page(summary), make_summary_markdown(summary)
    for front in make_summary_tables(summary):
        assert f"<h2>{front.title}</h2>" in page
        assert text.index(f"## {front.title}") < text.index("## tiny")
    assert "| GRU | tiny | mean squared error | 0.600" in text


OURS = """
name = "ours"
title = "A comparison"
source = "Doe, beyond the papers"
loss = "mse"
metric = "mse"
seeds = 2
dataset = "pendulum"

[published]
absent = "not in a paper"

[model]
hidden_size = 3

[recipe]
epochs = 2

[search.recipe]
lr = [0.01, 0.1]

[[row]]
name = "gru"
title = "GRU"
published = {}
model = { cell = "gru" }

[[row]]
name = "lstm"
title = "LSTM"
published = {}
model = { cell = "lstm" }

[[row]]
name = "elman"
title = "Elman"
published = {}
model = { cell = "elman" }
"""


@pytest.fixture
def compared(tmp_path):
    folder, specification = tmp_path / "results", tmp_path / "ours.toml"
    folder.mkdir()
    specification.write_text(OURS, encoding="utf-8")
    ours = load_experiment(specification)
    #        validation and test of each learning rate
    scores = {"gru": [(0.5, 0.6), (0.3, 0.9)], "lstm": [(0.4, 0.2), (0.6, 0.1)]}
    for row, pairs in scores.items():
        for setting, (valid, test) in zip(ours.row(row).search, pairs, strict=True):
            add(folder, row, valid=valid, test=test, setting=setting, experiment=ours, file="ours")
    half = ours.row("elman").search[0]  # one of its two settings only
    add(folder, "elman", valid=0.1, test=0.1, setting=half, experiment=ours, file="ours")
    return summarize_results(folder, [specification])


def test_validation_chooses_setting_and_network(compared):
    ((task, network, others, unit, test, best, place, agree, *_),) = tabulate_validation_choices(
        compared
    ).rows
    # The GRU's second setting has the best validation score of those that had their whole budget.
    assert (task, network, others, place) == ("ours", "GRU", "LSTM", "2 of 2")
    assert (unit, test) == ("mean squared error", "0.900 †")
    assert agree == "-1.00"  # the better of two on validation data is the worse on test data
    assert best == "0.200"


def test_networks_that_look_ahead_are_marked_and_not_called_causal(compared, tmp_path):
    assert (
        "From ours: causal networks that had the same budget"
        in tabulate_validation_choices(compared).caption
    )
    text = OURS.replace('{ cell = "lstm" }', '{ cell = "lstm", bidirectional = true }')
    (tmp_path / "ours.toml").write_text(text, encoding="utf-8")
    ours = load_experiment(tmp_path / "ours.toml")
    for setting in ours.row("lstm").search:
        options = {"setting": setting, "experiment": ours, "file": "ours"}
        add(tmp_path / "results", "lstm", valid=0.2, test=0.2, **options)
    front = tabulate_validation_choices(survey_again(tmp_path))
    assert front.rows[0][1] == "LSTM (looks ahead)"
    assert "From ours: networks that had the same budget" in front.caption


def test_agreement_of_ranks_is_that_of_scipy():
    draw = random.Random(0)
    for _ in range(50):
        pairs = [(draw.randrange(4), draw.randrange(4)) for _ in range(draw.randrange(5, 12))]
        expected = spearmanr(*zip(*pairs, strict=True)).statistic
        assert float(format_rank_correlation(pairs)) == pytest.approx(expected, abs=0.006)
    assert format_rank_correlation([(1.0, 2.0), (1.0, 3.0)]) == "–"


def test_a_setting_that_failed_was_tried(compared, tmp_path):
    ours = load_experiment(tmp_path / "ours.toml")
    other = ours.row("elman").search[1]
    add(tmp_path / "results", "elman", error="nan", setting=other, experiment=ours, file="ours")
    ((_, network, others, *_),) = tabulate_validation_choices(survey_again(tmp_path)).rows
    assert (network, others) == ("Elman", "GRU, LSTM")


def test_shorter_training_and_scores_that_are_not_finite_are_left_out(compared, tmp_path):
    ours, folder = load_experiment(tmp_path / "ours.toml"), tmp_path / "results"
    for row, epochs, valid in (("elman", 1, 0.0), ("lstm", None, float("nan"))):
        path = folder / "ours.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines()
        other_lines = [line for line in lines if json.loads(line)["row"] != row]
        path.write_text("".join(f"{line}\n" for line in other_lines), encoding="utf-8")
        for setting in ours.row(row).search:
            more = {"setting": setting, "epochs": epochs, "experiment": ours, "file": "ours"}
            add(folder, row, valid=valid, test=0.0, **more)
    summary = survey_again(tmp_path)
    (networks,) = rank_candidates(summary.comparisons[0]).values()
    assert [network.entry.row.name for network in networks] == ["gru"]
    assert tabulate_validation_choices(summary) is None


def survey_again(folder):
    return summarize_results(folder / "results", [folder / "ours.toml"])


def test_comparisons_are_not_counted_among_the_papers(compared):
    assert [comparison.experiment.name for comparison in compared.comparisons] == ["ours"]
    assert not compared.published
    assert not tabulate_tasks(compared).rows
    text = make_summary_markdown(compared)
    assert "- tables with results: 0 of " in text
    assert "- runs of our own comparisons: 5, 30.0 s" in text
    assert "ours" not in compared.without
    assert "one-budget" not in compared.without


def test_what_a_score_costs_is_drawn(compared):
    picture = plot_trade_offs(compared.tables)
    assert picture is not None
    assert picture.uri in make_summary_page(compared)
    assert plot_trade_offs(()) is None


@pytest.mark.parametrize(
    ("costs", "losses", "front"),
    [
        ([1, 2, 3], [3, 2, 1], {0, 1, 2}),
        ([1, 2, 3], [1, 2, 3], {0}),
        ([3, 1, 2], [1, 2, 2], {0, 1}),
        ([1, 1], [2, 1], {1}),
        ([], [], set()),
    ],
)
def test_the_front_is_what_nothing_beats_at_less_cost(costs, losses, front):
    assert find_pareto_front(costs, losses) == front
