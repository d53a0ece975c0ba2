"""Lists of what there is: models, data sets."""

import re
from collections.abc import Sequence

from tauflow._internal.sanitize import format_markdown_table
from tauflow.cells.registry import ModelEntry
from tauflow.data import registry
from tauflow.models import ModelSummary, summarise_models
from tauflow.models.registry import get_model_entry

from .output import print_line, print_table, print_wrapped

_INPUTS, _NEURONS = 18, 64
_ABBREVIATIONS = {
    "missing features": "missing",
    "one output per sequence": "one output",
}
_DATA_LEGEND = """\
by option: an option of the loader decides. A data set that is not on this machine is fetched by \
'tauflow data get NAME', or by the first run that needs it."""
_LEGEND = """\
I: input features. N: neurons, or latent dimensions. takes: with default options; missing: \
features marked by observed; wiring: in place of N; one output: per sequence, none per step; \
queries only: forecasts, of data that asks for inputs at times; \
non-causal: outputs depend on later samples too, which is true of no other model.
A cell is built with tauflow.build(name, I, N), a whole model with \
tauflow.models.WHOLE_MODELS[name].build(I, N); 'tauflow run --model name' trains either."""


def print_models(*, markdown: bool = False, find: str = "") -> None:
    """Print the catalogs of cells and of whole models, in Markdown if asked.

    Args:
        markdown: print tables for a document.
        find: words, all of which a model's line or description must have.
    """
    cells, models = (
        tuple(summary for summary in kind if _matches_words(summary, find))
        for kind in summarise_models(_INPUTS, _NEURONS)
    )
    if not cells + models:
        print_line(f"No model speaks of {find!r}. 'tauflow models' lists all.")
        return
    if markdown:
        _print_markdown("cell", cells)
        print_line("")
        _print_markdown("whole model", models)
        return
    for kind, summaries in (("cell", cells), ("whole model", models)):
        if not summaries:
            continue
        print_table(
            ("name", kind, "published in", f"parameters\nI={_INPUTS}, N={_NEURONS}", "takes"),
            [
                (
                    f.name,
                    f.title,
                    _shorten_paper(f.paper),
                    f"{f.parameters:,}",
                    _abbreviate_capabilities(f),
                )
                for f in summaries
            ],
            numbers=(3,),
            no_wrap=(0, 3),
        )
    print_wrapped(_LEGEND)


def _matches_words(summary: ModelSummary, words: str) -> bool:
    entry = get_model_entry(summary.name)
    kind = entry.cell if isinstance(entry, ModelEntry) else entry.model
    text = " ".join(
        [summary.name, summary.title, summary.paper, *summary.capabilities, kind.__doc__ or ""]
    )
    text = " ".join(text.lower().split())
    return all(word in text for word in words.lower().split())


def _print_markdown(kind: str, summaries: Sequence[ModelSummary]) -> None:
    count = f"parameters (I = {_INPUTS}, N = {_NEURONS})"
    rows = [
        (f"`{f.name}`", f.title, f.paper, f"{f.parameters:,}", ", ".join(f.capabilities) or "–")
        for f in summaries
    ]
    for line in format_markdown_table(
        ("name", kind, "published in", count, "takes"), rows, numeric_columns=(3,)
    ):
        print_line(line)


def _abbreviate_capabilities(summary: ModelSummary) -> str:
    """Return what a model takes in words that fit a terminal of 100 columns."""
    return ", ".join(_ABBREVIATIONS.get(word, word) for word in summary.capabilities) or "–"


def _shorten_paper(paper: str) -> str:
    """Return authors and years alone: whatever ends before the first title."""
    return re.sub(r"(\d{4}), [^;]*", r"\1", paper)


def print_data() -> None:
    """Print the catalog of data sets, and which can be loaded without the network."""
    rows = [
        (name, card.title, _format_sizes(card.sizes), card.licence, _format_local_size(name))
        for name, card in registry.DATASETS.items()
    ]
    print_table(
        ("name", "data set", "sequences:\ntrain/valid/test", "licence", "on this\nmachine"),
        rows,
        numbers=(2, 4),
        no_wrap=(0, 2, 4),
    )
    print_wrapped(_DATA_LEGEND)


def _format_sizes(sizes: tuple[int, int, int]) -> str:
    """Return the sizes of the parts; those of a set with several protocols depend on the option."""
    return "/".join(map(str, sizes)) if any(sizes) else "by option"


def _format_local_size(name: str) -> str:
    """Say whether a data set is here, and how large its files are."""
    size = registry.get_local_size(name)
    if size is None:
        return "no"
    if not registry.DATASETS[name].files:
        return "generated"
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"


def fetch_data(name: str) -> None:
    """Fetch a data set."""
    place = registry.fetch_dataset(name)
    print_line(
        f"{name} is here: {place}" if place is not None else f"{name} is generated, not fetched."
    )
