"""``tauflow info``: one model, its equations and options."""

import inspect
import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Annotated, Any

import typer

from .latex_to_text import latex_to_text

_CAUSAL = "Causal: its output depends only on the current and earlier samples."
_NON_CAUSAL = "Non-causal: its output depends on later samples too."
_MATH = re.compile(r"^\.\. math::\s*\n((?:[ ]+.*\n?|\n)*)", re.MULTILINE)
# A line that is not put together with the one before: of arguments, lists, and sources.
_ITEM = re.compile(r"\s+\w[\w, ]*: |\s*[-*] |[A-Z][\w ]{0,30}:( |$)")


def info(
    model: Annotated[str, typer.Argument(help="A model; see 'tauflow models'.")],
) -> None:
    """Say what a model computes, where it is from and which options it has."""
    print_model_info(model)


def print_model_info(model: str) -> None:
    """Print what a model computes, its source and its options."""
    from tauflow.cells.registry import ModelEntry
    from tauflow.models.registry import get_model_entry, get_model_info

    from .output import get_line_width, print_line, print_table, print_wrapped

    source, is_causal = get_model_entry(model), get_model_info(model).is_causal({})
    kind = source.cell if isinstance(source, ModelEntry) else source.model
    width = get_line_width() or 80
    print_wrapped(f"{source.title} ({model}): {source.paper or 'in no paper'}\n", width=width)
    for indent, text in _iter_paragraphs(inspect.getdoc(kind) or ""):
        print_wrapped(text, indent, f"{indent}    " if indent else "", width)
    print_wrapped(_CAUSAL if is_causal else _NON_CAUSAL, width=width)
    rows = list(_list_options(kind, source.options))
    if rows:
        print_line("")
        print_table(("option", "default"), rows, title=f"Options of {kind.__name__}", no_wrap=(0,))


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
            lines: list[str] = []
            for line in block.splitlines():
                if lines and not _ITEM.match(line):
                    lines[-1] += f" {line.strip()}"
                else:
                    lines.append(line.rstrip())
            for paragraph in lines:
                yield paragraph[: len(paragraph) - len(paragraph.lstrip())], paragraph.lstrip()
            yield "", ""


def _list_options(model_class: Any, fixed: dict[str, Any]) -> list[tuple[str, str]]:
    parameters = inspect.signature(model_class.__init__).parameters.values()
    return [
        (p.name, repr(fixed.get(p.name, p.default)))
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is not inspect.Parameter.empty
    ]
