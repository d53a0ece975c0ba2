"""``tauflow info``: one model, its equations, options and results."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any

import typer

from .latex_to_text import latex_to_text

_CAUSAL = "Causal: its output depends only on the current and earlier samples."
_NON_CAUSAL = "Looks ahead: its output depends on later samples too."
_MATH = re.compile(r"^\.\. math::\s*\n((?:[ ]+.*\n?|\n)*)", re.MULTILINE)
# A line that is not put together with the one before: of arguments, lists, and sources.
_ITEM = re.compile(r"\s+\w[\w, ]*: |\s*[-*] |[A-Z][\w ]{0,30}:( |$)")


def info(
    model: Annotated[str, typer.Argument(help="A model; see 'tauflow models'.")],
    results: Annotated[Path, typer.Option(help="Folder of results.")] = Path("results"),
) -> None:
    """Say what a model computes, where it is from, which options it has, and how well it did."""
    from tauflow.cells.registry import ModelEntry
    from tauflow.models.registry import get_model_entry, get_model_info

    from .output import get_line_width, print_line, print_table, print_wrapped

    source, ahead = get_model_entry(model), get_model_info(model).looks_ahead({})
    own = source.cell if isinstance(source, ModelEntry) else source.model
    width = get_line_width() or 80
    print_wrapped(f"{source.title} ({model}): {source.paper or 'in no paper'}\n", width=width)
    for indent, text in _iter_paragraphs(inspect.getdoc(own) or ""):
        print_wrapped(text, indent, f"{indent}    " if indent else "", width)
    print_wrapped(_NON_CAUSAL if ahead else _CAUSAL, width=width)
    rows = list(_list_options(own, source.options))
    if rows:
        print_line("")
        print_table(("option", "default"), rows, title=f"Options of {own.__name__}", whole=(0,))
    scores = _list_scores(model, results)
    if scores:
        there = results.is_dir()
        title = "Published, and measured here" if there else f"Published; no folder {results} here"
        columns = ("table", "row", "published", "ours")[: 4 if there else 3]
        print_table(columns, [row[: len(columns)] for row in scores], title=title)


def _iter_paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the paragraphs of a docstring as plain text, with the indent of each.

    Formulas keep their lines.
    """
    for number, part in enumerate(_MATH.split(text.strip())):
        if number % 2:
            for line in latex_to_text(dedent(part).strip()).splitlines():
                yield "    " if line.strip() else "", line.rstrip()
            yield "", ""
            continue
        part = re.sub(r":math:`([^`]*)`", lambda match: latex_to_text(match[1]), part)
        part = re.sub(r":[\w:]+:`~?\.?([^`]*)`", r"\1", part).replace("``", "")
        for block in re.split(r"\n\s*\n", part.strip("\n")):
            found: list[str] = []
            for line in block.splitlines():
                if found and not _ITEM.match(line):
                    found[-1] += f" {line.strip()}"
                else:
                    found.append(line.rstrip())
            for one in found:
                yield one[: len(one) - len(one.lstrip())], one.lstrip()
            yield "", ""


def _list_options(model_class: Any, fixed: dict[str, Any]) -> list[tuple[str, str]]:
    parameters = inspect.signature(model_class.__init__).parameters.values()
    return [
        (p.name, repr(fixed.get(p.name, p.default)))
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is not inspect.Parameter.empty
    ]


def _list_scores(model: str, results: Path) -> list[tuple[str, str, str, str]]:
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
                for row, line, wanted in zip(
                    experiment.rows, table.make_lines(grid), rows, strict=True
                )
                if wanted and (experiment.published or grid.get_runs(row))
            ]
    return found
