"""The page of the leaderboards, and what the page on choosing a model takes of it."""

import re
from collections.abc import Mapping
from pathlib import Path

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.sanitize import format_count
from tauflow.data.registry import DATASETS
from tauflow.errors import ArgumentError
from tauflow_papers.experiments.run.provenance import UNTRACED_NOTE

from .ranks import LEVEL, Ranking, draw_critical_difference, make_rank_table, make_score_table
from .results_summary import TableSummary

PICTURE = Path("_static") / "critical-difference.svg"
"""Of the picture, beside the page."""
BEGIN, END = "<!-- leaderboards: begin -->", "<!-- leaderboards: end -->"
_SHOWN = 8
"""Models in the short table."""
_PICTURE_TEXT = "Mean ranks of the models; bars join those that do not differ significantly"


def write_rank_pages(
    summary_of_table: TableSummary, ranking: Ranking, page: Path, summary: Path | None = None
) -> list[Path]:
    """Write the page and its picture.

    Args:
        one: the comparison.
        ranking: of its models.
        page: file in Markdown.
        summary: another page, in which what is between two marks is replaced by a short version.

    Returns:
        The files.

    Raises:
        ArgumentError: the other page has no marks.
    """
    picture = page.parent / PICTURE
    texts = {page: make_rank_page(summary_of_table, ranking)}
    if summary is not None:
        texts[summary] = _replace_summary(summary, make_rank_summary(ranking, page.name))
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(picture, draw_critical_difference(ranking))
    for path, text in texts.items():
        write_atomically(path, text.encode())
    return [*texts, picture]


def make_rank_page(summary: TableSummary, ranking: Ranking) -> str:
    """Return the whole page in Markdown."""
    name = summary.experiment.name
    blocks = [
        "# Leaderboards",
        f"{summary.experiment.title}. Made by `tauflow leaderboards {name} --page FILE` from runs "
        f"of `tauflow reproduce {name}`.",
        describe_ranking(ranking),
        f"![{_PICTURE_TEXT}]({PICTURE.as_posix()})",
        make_rank_table(ranking),
        "Training times are those of one shared core, accurate to a factor of two. Parameters and "
        "times are medians over tasks.",
        "## Test scores",
        f"Mean ± standard deviation over {format_count(ranking.splits, 'split')}.",
        make_score_table(ranking),
        *describe_divergence(ranking),
        "## Tasks",
        "\n".join(f"- {text}" for text in _describe_tasks(summary, ranking).values()),
        "## Protocol",
        "\n".join(f"- {note}" for note in summary.experiment.notes),
    ]
    return "\n\n".join(blocks) + "\n"


def make_rank_summary(ranking: Ranking, page: str) -> str:
    """Return the short version: a picture, a table and a few sentences."""
    blocks = [
        describe_ranking(ranking),
        f"![{_PICTURE_TEXT}]({PICTURE.as_posix()})",
        make_rank_table(ranking, _SHOWN),
        f"[Leaderboards]({page}) has all models, scores and tasks.",
    ]
    return "\n\n".join(blocks)


def describe_ranking(ranking: Ranking) -> str:
    """Say which model has the best mean rank, and how many differ from it."""
    first, *others = ranking.standings
    alike = [
        other.title
        for other in others
        if other.mean_rank - first.mean_rank <= ranking.critical_difference
    ]
    tasks = format_count(len(ranking.metrics), "task")
    differ = "differ" if ranking.p_value < LEVEL else "do not differ significantly"
    text = (
        f"{format_count(len(ranking.standings), 'model')} on {tasks} with "
        f"{format_count(ranking.splits, 'split')} each. {first.title} has the best mean rank "
        f"({first.mean_rank:.1f}). Mean ranks {differ} (Friedman test, p = "
        f"{ranking.p_value:.2g}). Two models differ significantly if their mean ranks are more "
        f"than {ranking.critical_difference:.1f} apart (Nemenyi test, level {LEVEL:g}); "
        f"of the other {len(others)}, {len(alike)} do not differ from {first.title}."
    )
    if ranking.incomplete:
        text += f" Tasks with missing runs are left out: {', '.join(ranking.incomplete)}."
    return text + f" {UNTRACED_NOTE} Here: {ranking.untraced} runs." * bool(ranking.untraced)


def describe_divergence(ranking: Ranking) -> list[str]:
    """Name the scores whose standard deviation exceeds their mean, with the median, if any."""
    diverged = [
        f"{standing.title} on {task} (median {score.median:.3g})"
        for standing in ranking.standings
        for task, score in standing.scores.items()
        if score.std > abs(score.mean)
    ]
    text = "Networks of some splits diverged on the test part, so that their mean says little: "
    return [text + ", ".join(diverged) + "."] if diverged else []


def _describe_tasks(summary: TableSummary, ranking: Ranking) -> Mapping[str, str]:
    descriptions = {}
    for row in summary.experiment.rows:
        name = row.part.name
        if name in ranking.metrics and name not in descriptions:
            card = DATASETS[row.part.dataset]
            sizes = "/".join(map(str, card.sizes))
            descriptions[name] = (
                f"**{name}** (`{card.name}`, sequences {sizes}): {card.notes[0]} Source: "
                f"{card.source}."
            )
    return descriptions


def _replace_summary(path: Path, text: str) -> str:
    page_text = path.read_text("utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(page_text)) != 1:
        raise ArgumentError(
            f"{path} needs the marks {BEGIN} and {END}, once each, between which the short version "
            "goes."
        )
    return pattern.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page_text)
