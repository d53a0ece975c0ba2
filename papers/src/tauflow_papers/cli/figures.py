"""``tauflow figure``: list the figures, make some, write the page that shows them."""

from pathlib import Path
from typing import Any

from tauflow.cli.output import print_line, print_table
from tauflow_papers.figures import FIGURES, write_gallery
from tauflow_papers.figures.make_figures import make_figures

ALL = "all"


def print_figures() -> None:
    """Print the figures that can be made again."""
    print_table(
        ("name", "shows", "minutes"),
        [
            ("\n".join((entry.name, *entry.aliases)), entry.title, f"{entry.minutes:g}")
            for entry in FIGURES.values()
        ],
        caption="Minutes of one core at full size; --size small takes seconds. Two names: the same "
        "figure, printed twice. 'tauflow figure all' makes every one.",
        numbers=(2,),
        no_wrap=(0,),
    )


def write_figures(name: str | None, out: Path, *, page: bool, **options: Any) -> None:
    """Make one figure or all of them, and the page if wanted; without a name, only the page.

    Args:
        name: of the figure, or ``"all"``.
        out: folder to write to.
        page: whether to write the page.
        options: of :func:`tauflow_papers.figures.make_figures.make_figures`.
    """
    names = [] if name is None else [name] if name != ALL else list(FIGURES)
    for made in make_figures(names, out, **options) if names else ():
        print_line(f"{made.entry.name}: {made.entry.title} ({made.seconds:.1f} s)")
        for path in made.files:
            print_line(f"  {path}")
    if page:
        print_line(f"Page: {write_gallery(out)}")
