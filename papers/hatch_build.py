"""Put the stored results, and the numbers of the figures, into the wheel."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RESULTS = ("*.jsonl", "*.json", "*.toml", "traced.txt", "CHANGED_*.md", "claims/*.json")
FIGURES = ("*.json", "*.csv")


class StoredResults(BuildHookInterface):  # type: ignore[misc]  # hatchling is there when it builds
    """Adds files that lie beside the package; a wheel that is made from an archive has none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name each file with its place in the wheel."""
        root = Path(self.root)
        for folder, patterns, name in (
            (root / "results", RESULTS, "results"),
            (root.parent / "docs" / "gallery", FIGURES, "figures"),
        ):
            for pattern in patterns:
                for file in sorted(folder.glob(pattern)):
                    place = file.relative_to(folder).as_posix()
                    build_data["force_include"][str(file)] = f"tauflow_papers/stored/{name}/{place}"
