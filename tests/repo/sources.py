"""Where the sources are, for the tests about the repository itself."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tauflow"
PAPERS = ROOT / "papers" / "src" / "tauflow_papers"
MODULES = sorted(PACKAGE.rglob("*.py"))
ALL_MODULES = [*MODULES, *sorted(PAPERS.rglob("*.py"))]


def tracked_text_files() -> list[Path]:
    """Return the files that git knows, or will know, and that hold text."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    paths = [ROOT / name for name in listed]
    return [p for p in paths if p.is_file() and b"\0" not in p.read_bytes()[:4096]]
