"""The results that come with the package, and which folder of results a command reads."""

from pathlib import Path

RESULTS = Path("results")
"""Where commands write results, and look for them first."""
_PACKAGE = Path(__file__).parents[2]
_IN_WHEEL = _PACKAGE / "stored"


def get_stored_results() -> Path:
    """Return the folder of the results that come with the package."""
    inside = _IN_WHEEL / "results"
    return inside if inside.is_dir() else _PACKAGE.parents[1] / "results"


def get_stored_figures() -> Path:
    """Return the folder of the numbers of the figures that come with the package."""
    inside = _IN_WHEEL / "figures"
    return inside if inside.is_dir() else _PACKAGE.parents[2] / "docs" / "gallery"


def choose_results(folder: Path | None, table: str | None = None) -> Path:
    """Return the folder of results that a command reads.

    Args:
        given: what ``--results`` says; it is taken as it is.
        table: name of the table that is wanted; by default any.

    Returns:
        ``results`` in the current folder, if it has results of the table; else the folder that
        comes with the package, if that has some; else ``results``.
    """
    if folder is not None:
        return folder
    stored = get_stored_results()
    return RESULTS if _has_results(RESULTS, table) or not _has_results(stored, table) else stored


def _has_results(folder: Path, table: str | None) -> bool:
    return any(folder.glob("*.jsonl")) if table is None else (folder / f"{table}.jsonl").is_file()
