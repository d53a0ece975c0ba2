"""``tauflow info``: one model, its equations, options and results."""

import inspect
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from .plain_math import plain_math

_CAUSAL = "Causal: what it makes of a sample hangs on that sample and earlier ones alone."
_AHEAD = "Looks ahead: what it makes of a sample hangs on later ones too."


def info(
    model: Annotated[str, typer.Argument(help="A model; see 'tauflow models'.")],
    results: Annotated[Path, typer.Option(help="Folder of results.")] = Path("results"),
) -> None:
    """Say what a model computes, where it is from, which options it has, and how well it did."""
    from tauflow.cells.catalog import ModelEntry
    from tauflow.models.registry import entry_of, model_entry

    from .output import print_table, say

    source, ahead = model_entry(model), entry_of(model).looks_ahead({})
    own = source.cell if isinstance(source, ModelEntry) else source.model
    say(f"{source.title} ({model}): {source.paper or 'in no paper'}\n")
    say(_in_plain_words(inspect.getdoc(own) or ""))
    say(f"\n{_AHEAD if ahead else _CAUSAL}")
    rows = list(_options(own, source.options))
    if rows:
        say("")
        print_table(("option", "default"), rows, title=f"Options of {own.__name__}", whole=(0,))
    scores = _scores(model, results)
    if scores:
        there = results.is_dir()
        title = "Published, and measured here" if there else f"Published; no folder {results} here"
        columns = ("table", "row", "published", "ours")[: 4 if there else 3]
        print_table(columns, [row[: len(columns)] for row in scores], title=title)


def _in_plain_words(text: str) -> str:
    """Return a docstring without what only documentation tools read."""
    block = re.compile(r"^\.\. math::\s*\n((?:[ ]+.*\n?|\n)*)", re.MULTILINE)
    text = block.sub(lambda match: plain_math(match[1].lstrip("\n")), text)
    text = re.sub(r":math:`([^`]*)`", lambda match: plain_math(match[1]), text)
    return re.sub(r":[\w:]+:`~?\.?([^`]*)`", r"\1", text).replace("``", "").strip()


def _options(own: Any, fixed: dict[str, Any]) -> list[tuple[str, str]]:
    parameters = inspect.signature(own.__init__).parameters.values()
    return [
        (p.name, repr(fixed.get(p.name, p.default)))
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is not inspect.Parameter.empty
    ]


def _scores(model: str, results: Path) -> list[tuple[str, str, str, str]]:
    from tauflow.experiments import collect, list_experiments, load_experiment
    from tauflow.experiments.report import table

    found = []
    for name in list_experiments():
        experiment = load_experiment(name)
        rows = [row.model is not None and row.model.cell == model for row in experiment.rows]
        if any(rows):
            grid = collect(experiment, results_dir=results)
            found += [
                (name, line.model, line.published, line.ours)
                for row, line, wanted in zip(experiment.rows, table.lines(grid), rows, strict=True)
                if wanted and (experiment.published or grid.of(row))
            ]
    return found
