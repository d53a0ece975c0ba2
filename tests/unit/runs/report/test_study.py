"""The report on a search for settings."""

import re

import pytest

from tauflow.runs.report.study_report import write_study_report
from tauflow.runs.tune import TuningResult


@pytest.mark.parametrize(("metric", "best"), [("accuracy", 4), ("mse", 1)])
def test_the_best_trials_come_first(tmp_path, metric, best):
    scores = (0.25, 0.5, None, 0.75)
    trials = tuple(
        ({"recipe.lr": 0.01 * n, "model.mode": "pure"}, score, state)
        for n, (score, state) in enumerate(
            zip(scores, ("complete", "pruned", "pruned", "complete"), strict=True), 1
        )
    )
    settings, score, _ = trials[best - 1]
    importance = {"recipe.lr": 0.8, "model.mode": 0.2}
    (tmp_path / "tune-x").mkdir()
    page = write_study_report(
        TuningResult(settings, score, metric, importance, trials, tmp_path / "tune-x")
    )
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r'<tr[^>]*><td class="number">(\d+)</td><td class="number">([^<]*)', text)
    worst = 5 - best
    assert rows == [(str(best), str(score)), (str(worst), str(scores[worst - 1]))]
    assert text.count("data:image/svg+xml") == 3
    assert "Importance" in text
    assert "<b>2</b><span>pruned or diverged</span>" in text
    assert "best.toml" in text
