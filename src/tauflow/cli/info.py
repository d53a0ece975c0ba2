"""``tauflow info``: one model, its equations and options."""

import inspect
from typing import Annotated, Any

import typer

_CAUSAL = "Causal: its output depends only on the current and earlier samples."
_NON_CAUSAL = "Non-causal: its output depends on later samples too."


def info(
    model: Annotated[str, typer.Argument(help="A model; see 'tauflow models'.")],
) -> None:
    """Say what a model computes, where it is from and which options it has."""
    print_model_info(model)


def print_model_info(model: str) -> None:
    """Print what a model computes, its source and its options."""
    from tauflow.cells.registry import ModelEntry
    from tauflow.models.registry import get_model_entry, get_model_info

    from .output import print_line, print_table

    source, is_causal = get_model_entry(model), get_model_info(model).is_causal({})
    kind = source.cell if isinstance(source, ModelEntry) else source.model
    print_line(f"{source.title} ({model}): {source.paper or 'in no paper'}\n")
    print_line(f"{inspect.getdoc(kind) or ''}\n")
    print_line(_CAUSAL if is_causal else _NON_CAUSAL)
    rows = list(_list_options(kind, source.options))
    if rows:
        print_line("")
        print_table(("option", "default"), rows, title=f"Options of {kind.__name__}", no_wrap=(0,))


def _list_options(model_class: Any, fixed: dict[str, Any]) -> list[tuple[str, str]]:
    parameters = inspect.signature(model_class.__init__).parameters.values()
    return [
        (p.name, repr(fixed.get(p.name, p.default)))
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is not inspect.Parameter.empty
    ]
