"""What every report is made with: its files, its templates, and where its runs were made."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.sanitize import replace_control_characters
from tauflow.runs.results import RunRecord

if TYPE_CHECKING:
    from jinja2 import Template

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Listing:
    """A small table of a report.

    Args:
        title: its heading.
        headers: of the columns, of which the first holds names.
        rows: their texts.
        caption: what they mean.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str


def write_report(path: Path, text: str) -> Path:
    """Write a report, in one step; return its path."""
    write_atomically(path, replace_control_characters(text).encode())
    return path


def render_template(template: str, *, package: str = "tauflow.runs.report", **content: Any) -> str:
    """Return a template, filled in: a page that needs nothing else.

    Args:
        template: its file.
        package: where it is; it may include the templates of this package.
        content: what it is filled with.
    """
    return _template(template, package).render(**content)


@cache
def _template(name: str, package: str) -> "Template":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in (package, __package__)]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def collect_environment(records: Sequence[RunRecord]) -> Pairs:
    """Say where runs were made; several values of one fact are all named."""
    entries: dict[str, list[str]] = {}
    for record in records:
        cores, threads = record.machine.get("cores"), record.machine.get("threads")
        values_by_key = {
            "tauflow": record.versions.get("tauflow"),
            "revision": record.commit,
            "PyTorch": record.versions.get("torch"),
            "NumPy": record.versions.get("numpy"),
            "Python": record.versions.get("python"),
            "processor": record.machine.get("cpu"),
            "cores": None if cores is None else f"{cores}, {threads} used by a run",
            "device": record.machine.get("device"),
            "platform": record.machine.get("platform"),
            "date": record.started[:10],
        }
        for key, value in values_by_key.items():
            values = entries.setdefault(key, [])
            if value and str(value) not in values:
                values.append(str(value))
    return [(key, "; ".join(values)) for key, values in entries.items() if values]
