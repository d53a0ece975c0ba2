"""A page in Markdown that shows every figure, beside what was written for it."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tauflow._internal.atomic_write import write_atomically

from .catalog import FIGURES
from .paper_figure import PaperFigure

PAGE = "README.md"
_PAPERS = {
    "ltc": "Liquid time-constant networks",
    "cfc": "Closed-form continuous-time networks",
    "ode-lstm": "ODE-LSTM",
    "gnode": "Gated neural ODEs",
}
_OTHER_PAPERS = "Others"
_DATA_SUFFIXES = ("svg", "pdf", "npz", "csv", "json")
_HEAD = """\
# Gallery

Figures and tables of the papers, made again by `tauflow figure`. Nothing here is copied: every
picture was computed, and the numbers that it shows lie beside it, with the settings and versions
(JSON). `tauflow figure` lists the names, `tauflow figure NAME --out DIR` makes one, with
`--size small` in seconds, and `tauflow figure all --out docs/gallery --page` makes this folder.

This page is written by `tauflow figure --page --out docs/gallery`; do not edit it.
"""


def gallery_page(directory: str | Path) -> str:
    """Return a page on all figures with the files of a directory, in Markdown.

    A figure without files there is listed with the command that makes it.
    """
    folder = Path(directory)
    papers: dict[str, list[PaperFigure]] = {
        title: [] for title in (*_PAPERS.values(), _OTHER_PAPERS)
    }
    for entry in sorted(FIGURES.values(), key=_make_sort_key):
        papers[get_paper_title(entry)].append(entry)
    papers = {title: entries for title, entries in papers.items() if entries}
    parts = [_HEAD]
    for paper, entries in papers.items():
        parts.append(f"- {paper}")
        parts += [
            f"  - [{entry.title}](#{entry.name}): {_get_figure_number(entry)}" for entry in entries
        ]
    for paper, entries in papers.items():
        parts.append(f"\n## {paper}\n")
        parts += [_make_section(entry, folder) for entry in entries]
    return "\n".join(parts).rstrip() + "\n"


def write_gallery(directory: str | Path) -> Path:
    """Write the page of a directory of figures, and return its path."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / PAGE, gallery_page(folder).encode())
    return folder / PAGE


def get_paper_title(entry: PaperFigure) -> str:
    """Return the title of a figure's paper, which its name begins with."""
    for start, title in _PAPERS.items():
        if entry.name.startswith(f"{start}-"):
            return title
    return _OTHER_PAPERS


def _get_figure_number(entry: PaperFigure) -> str:
    """Return the figure's place in the paper."""
    place = re.search(r"(2020 draft|Figure|Table|Theorem|Section|Algorithm).*", entry.source)
    return entry.source if place is None else place[0]


def _make_sort_key(entry: PaperFigure) -> list[tuple[int, str]]:
    """Return a key that sorts figure 10 behind figure 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in entry.name.split("-")]


def _make_section(entry: PaperFigure, folder: Path) -> str:
    record = _read_metadata(entry, folder)
    lines = [f'<a id="{entry.name}"></a>\n### {entry.title}\n', f"{entry.source}.\n"]
    if (folder / f"{entry.name}.png").is_file():
        lines.append(f"![{entry.title}]({entry.name}.png)\n")
    lines.append(f"{entry.caption}\n")
    if (folder / f"{entry.name}.md").is_file():
        lines.append((folder / f"{entry.name}.md").read_text(encoding="utf-8"))
    if record.get("findings"):
        found = "; ".join(f"{name}: {_format_value(v)}" for name, v in record["findings"].items())
        lines.append(f"**Found.** {found}.\n")
    if entry.differences:
        lines.append("**Differs from the published one.**\n")
        lines += [f"- {sentence}" for sentence in entry.differences]
        lines.append("")
    lines.append(_describe_files(entry, record, folder))
    return "\n".join(lines) + "\n"


def _describe_files(entry: PaperFigure, record: dict[str, Any], folder: Path) -> str:
    names = [f"`{name}`" for name in (entry.name, *entry.aliases)]
    files = [
        f"[{suffix.upper()}]({entry.name}.{suffix})"
        for suffix in _DATA_SUFFIXES
        if (folder / f"{entry.name}.{suffix}").is_file()
    ]
    if not files:
        return f"Not in this folder yet: `tauflow figure {entry.name} --out DIR`."
    size = record.get("size", "full")
    spent = record.get("seconds", {}).get("all", 0.0)
    settings = ", ".join(
        f"{name} = {_format_value(v)}" for name, v in record.get("settings", {}).items()
    )
    text = f"{' '.join(files)} · {' = '.join(names)}, size {size}, seed {record.get('seed', 0)}"
    text += f", {_format_seconds(spent)}" + (f" · {settings}" if settings else "")
    return text + (" · times depend on the machine" if entry.measures_time else "")


def _read_metadata(entry: PaperFigure, folder: Path) -> dict[str, Any]:
    path = folder / f"{entry.name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def _format_value(value: Any) -> str:
    """Return a value in a few words."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(_format_value, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format_value(item)}" for key, item in value.items())
    return str(value)


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
