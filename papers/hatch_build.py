"""Put the stored results, and the numbers of the figures, into the wheel."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RESULTS = ("*.jsonl", "*.json", "*.toml", "traced.txt", "CHANGED_*.md", "claims/*.json")
FIGURES = ("*.json", "*.csv")


class StoredResults(BuildHookInterface):  # type: ignore[misc]  # hatchling is there when it builds
    """Adds files that lie beside the package; the archive takes the figures for its wheel along."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name each file with its place in the wheel or in the archive."""
        root = Path(self.root)
        in_archive = root / "figures"
        figures = in_archive if in_archive.is_dir() else root.parent / "docs" / "gallery"
        is_wheel = self.target_name == "wheel"
        for folder, patterns, name in (
            (root / "results", RESULTS, "results"),
            (figures, FIGURES, "figures"),
        ):
            if not is_wheel and folder.parent == root:  # the archive has it as it is
                continue
            target = f"tauflow_papers/stored/{name}" if is_wheel else name
            for pattern in patterns:
                for file in sorted(folder.glob(pattern)):
                    place = file.relative_to(folder).as_posix()
                    build_data["force_include"][str(file)] = f"{target}/{place}"
