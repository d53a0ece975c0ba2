"""``tauflow leaderboards``: rank the models of a comparison over its tasks."""

from pathlib import Path

from tauflow.cli.output import print_line, print_wrapped
from tauflow.errors import ArgumentError
from tauflow_papers.experiments.report.ranks import make_rank_table, rank_models
from tauflow_papers.experiments.report.ranks_page import describe_ranking, write_rank_pages
from tauflow_papers.experiments.report.results_summary import summarize_table
from tauflow_papers.experiments.spec.load import load_experiment


def print_ranking(table: str, results: Path, page: Path | None, summary: Path | None) -> None:
    """Print mean ranks, and write pages if wanted.

    Args:
        table: name or file of the comparison.
        results: folder of results.
        page: file to write in Markdown.
        summary: another page with marks for a short version.

    Raises:
        ArgumentError: too few tasks are complete, or a summary is wanted without its page.
    """
    if summary is not None and page is None:
        raise ArgumentError("--summary refers to the page with all models: give --page, too.")
    summary_of_table = summarize_table(load_experiment(table), results)
    ranking = rank_models(summary_of_table)
    for line in make_rank_table(ranking).splitlines():
        print_line(line)
    print_wrapped(describe_ranking(ranking))
    if page is not None:
        for path in write_rank_pages(summary_of_table, ranking, page, summary):
            print_line(f"Written: {path}")
