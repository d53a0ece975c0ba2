"""``tauflow figure``: list the figures, make some, write the page that shows them."""

from pathlib import Path

from tauflow.figures import FIGURES, find_figure, make_figure, write_gallery

from .output import print_table, say

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
        "figure,\nprinted twice. 'tauflow figure all' makes every one.",
        numbers=(2,),
        whole=(0,),
    )


def make(
    name: str | None, out: Path, *, size: str, seed: int, formats: tuple[str, ...], page: bool
) -> None:
    """Make one figure or all of them, and the page if wanted; without a name, only the page."""
    entries = [] if name is None else [find_figure(name)] if name != ALL else FIGURES.values()
    for entry in entries:
        made = make_figure(entry.name, out, size=size, seed=seed, formats=formats)
        say(f"{entry.name}: {entry.title} ({made.seconds:.1f} s)")
        for path in made.files:
            say(f"  {path}")
    if page:
        say(f"Page: {write_gallery(out)}")
