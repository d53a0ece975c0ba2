"""The list of verdicts that are not those of an earlier report."""

from test_survey import PRECISE, add_seeds

from tauflow_papers.experiments.report.results_summary import summarize_results
from tauflow_papers.experiments.report.summary_page import make_summary_markdown
from tauflow_papers.experiments.report.verdict_changes import read_verdicts, write_changes


def test_rows_with_another_verdict_are_listed(tmp_path):
    results, before = tmp_path / "results", tmp_path / "before"
    results.mkdir()
    before.mkdir()
    specification = tmp_path / "tiny.toml"
    specification.write_text(PRECISE, encoding="utf-8")
    add_seeds(results, [0.9])
    first = make_summary_markdown(summarize_results(results, [specification]))
    assert read_verdicts(first)["tiny", "GRU"] == "not measured"
    (before / "REPORT.md").write_text(
        first.replace("| not measured |", "| worse |"), encoding="utf-8"
    )
    text = write_changes(before, summarize_results(results, [specification]), tmp_path).read_text()
    assert "1 row: 1 worse -> not measured." in text
    assert "| tiny | GRU | worse | not measured | 1 of 3 seeds |" in text
    (before / "REPORT.md").write_text(first, encoding="utf-8")
    text = write_changes(before, summarize_results(results, [specification]), tmp_path).read_text()
    assert "0 rows: ." in text
