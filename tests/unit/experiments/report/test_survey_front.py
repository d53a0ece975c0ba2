"""The first screen of a report on all results."""

import pytest
from test_survey import TINY, add

from tauflow.experiments.report.survey import survey
from tauflow.experiments.report.survey_front import by_paper, by_task, fronts
from tauflow.experiments.report.survey_page import survey_markdown, survey_page


@pytest.fixture
def found(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    add(folder, "gru", seed=0, test=0.5)
    add(folder, "gru", seed=1, test=0.7)
    add(folder, "elman", test=0.61)
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    return survey(folder, [tmp_path / "tiny.toml"])


def test_papers_are_counted_whole(found):
    papers = {row[0]: row[1:] for row in by_paper(found).rows}
    assert len(papers) == 5  # the four of the packaged tables, and the tiny one's
    # Of three rows one has no model yet; nothing is judged of one without a deviation.
    assert papers["Nobody 2020"][:3] == ("1 of 1", "2 of 3", "1")
    assert papers["Nobody 2020"][-2:] == ("3", "18.0 s")
    others = [row for paper, row in papers.items() if paper != "Nobody 2020"]
    assert all(row[0].startswith("0 of ") and row[1].startswith("0 of ") for row in others)


def test_the_best_model_is_that_of_the_best_mean(found):
    ((task, model, table, score, models, parameters, pace),) = by_task(found).rows
    assert task == "pendulum (sizes=…, steps=5)"
    # The mean of 0.5 and 0.7 is below 0.61, and smaller errors are better.
    assert (model, table, models) == ("GRU", "tiny", "2")
    assert score.startswith("0.600 ± ")
    assert score.endswith(" † (mean squared error)")
    assert (parameters, pace) == ("–", "3 s")


def test_both_reports_begin_with_it(found):
    page, text = survey_page(found), survey_markdown(found)
    for front in fronts(found):
        assert f"<h2>{front.title}</h2>" in page
        assert text.index(f"## {front.title}") < text.index("## tiny")
    assert "| GRU | tiny | 0.600" in text
