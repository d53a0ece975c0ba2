"""The gallery is small, complete, and says what its files are."""

import csv
import json
import math
import re

import pytest
from sources import ROOT

from tauflow_papers.figures import FIGURES, gallery_pages

GALLERY = ROOT / "docs" / "gallery"
MOST_BYTES = 5_000_000

pytestmark = pytest.mark.skipif(
    not GALLERY.is_dir(), reason="source distributions come without the gallery"
)


def test_the_gallery_is_small():
    sizes = {path.name: path.stat().st_size for path in GALLERY.iterdir()}
    assert sum(sizes.values()) < MOST_BYTES
    assert max(sizes.values()) < 400_000, max(sizes, key=sizes.get)


def test_the_pages_are_those_of_its_files():
    for name, text in gallery_pages(GALLERY).items():
        page = (GALLERY / name).read_text(encoding="utf-8")
        assert page == text, "run tauflow figure --page --out docs/gallery"
        for link in re.findall(r"\]\(([^#)]+)(?:#[^)]*)?\)", page):
            assert (GALLERY / link).is_file(), link


def test_every_file_belongs_to_a_figure_at_full_size():
    records = sorted(GALLERY.glob("*.json"))
    assert records
    known = set(gallery_pages(GALLERY))
    for path in records:
        record = json.loads(path.read_text(encoding="utf-8"))
        assert record["figure"] in FIGURES
        assert record["size"] == "full"
        known |= {path.name, *record["files"]}
    assert {path.name for path in GALLERY.iterdir()} == known


def test_tables_show_the_numbers_of_their_files():
    tables = [path for path in GALLERY.glob("*-*.md") if path.with_suffix(".csv").is_file()]
    assert tables
    for path in tables:
        with path.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
            stored = list(csv.DictReader(file))
        head, _, *lines = (
            line.strip("| ").split(" | ") for line in path.read_text("utf-8").splitlines()
        )
        assert len(lines) == len(stored), path.name
        for cells, entry in zip(lines, stored, strict=True):
            for name, cell in zip(head, cells, strict=True):
                if cell != "–":
                    assert cell in (entry[name], f"{_as_number(entry[name]):.4g}"), path.name


def _as_number(text):
    try:
        return float(text)
    except ValueError:
        return math.nan
