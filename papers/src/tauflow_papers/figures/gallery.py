"""A page in Markdown that shows every figure, beside what was written for it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tauflow._internal.atomic_write import write_atomically
from tauflow_papers.experiments.run.provenance import UNTRACED_MARK

from .catalog import FIGURES
from .paper_figure import PaperFigure

INDEX = "README.md"
_PAPERS = {
    "ltc": "Liquid time-constant networks",
    "cfc": "Closed-form continuous-time networks",
    "ode-lstm": "ODE-LSTM",
    "gnode": "Gated neural ODEs",
}
_OTHER_PAPERS = "Others"
_QUESTIONS = {
    "What does a network remember, and how?": (
        *("gnode-figure-1", "gnode-figure-2", "gnode-figure-6", "gnode-figure-7"),
        *("gnode-figure-8", "gnode-figure-9", "gnode-figure-10", "gnode-capacity"),
    ),
    "What can a network express?": (
        *("ltc-theorem-3", "gnode-figure-3", "gnode-figure-11", "gnode-figure-12"),
        *("gnode-figure-13", "gnode-figure-14"),
    ),
    "How long are latent trajectories?": (
        *(
            "ltc-figure-1",
            "ltc-figure-3",
            "ltc-figure-4",
            "ltc-figure-4-text",
            "ltc-figure-5",
            "ltc-figure-s2",
            "ltc-theorems-4-5",
        ),
    ),
    "When are dynamics slow or chaotic, and when do gradients vanish?": (
        *("gnode-figure-4", "gnode-figure-5", "ode-lstm-figure-1", "ode-lstm-figure-3"),
    ),
    "How accurate are solvers, gradients and closed forms?": (
        *("ltc-figure-2", "ltc-table-1", "ltc-table-2-depth", "ltc-theorems-1-2"),
        *("cfc-figure-2", "cfc-figure-3", "cfc-closed-form-half-cheetah"),
    ),
    "What does a network see, and where does it look?": ("cfc-figure-5", "ode-lstm-figure-s1"),
}
_OTHER_QUESTIONS = "Others"
_COLUMNS = 4
_DATA_SUFFIXES = ("svg", "pdf", "npz", "csv", "json")
_HEAD = """\
# Gallery

Figures and tables of the papers, computed again with `tauflow figure`. The plotted numbers, the
settings and the versions are stored with each picture. `tauflow figure` lists the names, and
`tauflow figure NAME --out DIR` makes one (`--size small` takes seconds). Figures of stored runs
read them from the folder that `--results` names.

<!-- written by `tauflow figure --page --out docs/gallery`; do not edit -->
"""


def gallery_pages(directory: str | Path) -> dict[str, str]:
    """Return the pages on all figures with the files of a directory, in Markdown, by file name.

    An index of small pictures by question, and a page per paper. A figure without files in the
    directory is listed with the command that makes it.
    """
    folder = Path(directory)
    papers: dict[str, list[PaperFigure]] = {}
    for entry in sorted(FIGURES.values(), key=_make_sort_key):
        papers.setdefault(_get_page_name(entry), []).append(entry)
    pages = {INDEX: _make_index(folder)}
    for name, entries in papers.items():
        head = f"# {get_paper_title(entries[0])}\n\nAll figures: [gallery]({INDEX}).\n"
        parts = [head, *(_make_section(entry, folder) for entry in entries)]
        pages[name] = "\n".join(parts).rstrip() + "\n"
    return pages


def write_gallery(directory: str | Path) -> Path:
    """Write the pages of a directory of figures, and return the path of the index."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in gallery_pages(folder).items():
        write_atomically(folder / name, text.encode())
    return folder / INDEX


def _make_index(folder: Path) -> str:
    questions = {question: list(names) for question, names in _QUESTIONS.items()}
    known = {name for names in _QUESTIONS.values() for name in names}
    if others := [name for name in FIGURES if name not in known]:
        questions[_OTHER_QUESTIONS] = others
    parts = [_HEAD]
    for question, names in questions.items():
        cells = [_make_thumbnail(FIGURES[name], folder) for name in names if name in FIGURES]
        cells += [""] * (-len(cells) % _COLUMNS)
        rows = [cells[i : i + _COLUMNS] for i in range(0, len(cells), _COLUMNS)]
        table = [[""] * _COLUMNS, ["---"] * _COLUMNS, *rows]
        parts.append(f"## {question}\n")
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in table) + "\n")
    return "\n".join(parts).rstrip() + "\n"


def _make_thumbnail(entry: PaperFigure, folder: Path) -> str:
    target = f"{_get_page_name(entry)}#{entry.name}"
    link = f"[{entry.title}]({target})"
    if not (folder / f"{entry.name}.png").is_file():
        return f"{link}: no picture yet, it takes about {entry.minutes:.0f} min"
    return f"[![{entry.title}]({entry.name}.png)]({target}) {link}"


def _get_page_name(entry: PaperFigure) -> str:
    prefix = next((p for p in _PAPERS if entry.name.startswith(f"{p}-")), "others")
    return f"{prefix}.md"


def get_paper_title(entry: PaperFigure) -> str:
    """Return the title of a figure's paper, which its name begins with."""
    for start, title in _PAPERS.items():
        if entry.name.startswith(f"{start}-"):
            return title
    return _OTHER_PAPERS


def _make_sort_key(entry: PaperFigure) -> list[tuple[int, str]]:
    """Return a key that sorts figure 10 behind figure 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in entry.name.split("-")]


def _make_section(entry: PaperFigure, folder: Path) -> str:
    record = _read_metadata(entry, folder)
    lines = [f'<a id="{entry.name}"></a>\n## {entry.title}\n', f"{entry.source}.\n"]
    if (folder / f"{entry.name}.png").is_file():
        lines.append(f"![{entry.title}]({entry.name}.png)\n")
    lines.append(f"{entry.caption}\n")
    if (folder / f"{entry.name}.md").is_file():
        lines.append((folder / f"{entry.name}.md").read_text(encoding="utf-8"))
    if record.get("findings"):
        findings = "; ".join(
            f"{name}: {_format_value(v)}" for name, v in record["findings"].items()
        )
        lines.append(f"**Found.** {findings}.\n")
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
        results = " --results RESULTS" if entry.table else ""
        makes = f"`tauflow figure {entry.name} --out DIR{results}`"
        table = f" `tauflow show {entry.table}` prints its table." if entry.table else ""
        return f"No picture yet: {makes} takes about {entry.minutes:.0f} min.{table}"
    size = record.get("size", "full")
    spent = record.get("seconds", {}).get("all", 0.0)
    settings = ", ".join(
        f"{name} = {_format_value(v)}" for name, v in record.get("settings", {}).items()
    )
    text = f"{' '.join(files)} · {' = '.join(names)}, size {size}, seed {record.get('seed', 0)}"
    text += f", {_format_seconds(spent)}" + (f" · {settings}" if settings else "")
    text += " · times depend on the machine" * entry.measures_time
    commit = record.get("commit")
    return text + (f" · commit {commit[:12]}" if commit else f" · {UNTRACED_MARK} commit not known")


def _read_metadata(entry: PaperFigure, folder: Path) -> dict[str, Any]:
    path = folder / f"{entry.name}.json"
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return stored


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
