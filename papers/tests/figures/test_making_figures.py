"""Names, files and the page, apart from what the figures show."""

import io
import json
import re
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from PIL import Image
from small_figures import NAMES, small

from tauflow.errors import ArgumentError, UnknownNameError
from tauflow_papers.figures import (
    FIGURES,
    FigureJob,
    FigureResult,
    FigureTable,
    find_figure,
    gallery_pages,
    make_figure,
    write_gallery,
)
from tauflow_papers.figures.make_figures import (
    _rasterise_dense,
    _reduce_colours,
    _render_figure,
    _simplify_log_axes,
    to_markdown_table,
)

CHEAP = "cfc-figure-5"
LINES = "gnode-figure-4"


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def test_names():
    assert find_figure("ltc-aaai-figure-2") is FIGURES["ltc-figure-4"]
    with pytest.raises(UnknownNameError, match="Did you mean 'cfc-figure-3'"):
        find_figure("cfc-figur-3")
    aliases = [alias for entry in FIGURES.values() for alias in entry.aliases]
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(FIGURES)
    for paper, numbers in {"ltc": (1, 2, 3, 4, 5), "cfc": (3, 5), "ode-lstm": (1, 3)}.items():
        assert {f"{paper}-figure-{number}" for number in numbers} <= set(FIGURES)
    for entry in FIGURES.values():
        assert entry.caption.endswith(".")
        assert all(sentence.endswith(".") for sentence in entry.differences)


@pytest.mark.parametrize("size", ["small", "full"])
def test_a_quick_look_says_in_the_picture_that_it_is_one(size):
    figure, _ = plt.subplots(layout="constrained")
    contents = _render_figure(FigureResult(lambda: figure, {}), ("png", "svg"), size)
    assert contents.keys() == {"png", "svg"}
    assert figure.get_supxlabel() == ("small: not the paper's settings" if size == "small" else "")


def test_bad_arguments(tmp_path):
    with pytest.raises(ArgumentError, match="formats is empty"):
        make_figure(CHEAP, tmp_path, size="small", formats=())
    with pytest.raises(UnknownNameError, match="png"):
        make_figure(CHEAP, tmp_path, size="small", formats=("pmg",))
    with pytest.raises(UnknownNameError, match="small"):
        make_figure(CHEAP, tmp_path, size="smal")
    with pytest.raises(ArgumentError, match="seed"):
        make_figure(CHEAP, tmp_path, size="small", seed=-1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(tmp_path):
    def made(name, folder, seed, formats=("svg",)):
        files = make_figure(name, tmp_path / folder, size="small", seed=seed, formats=formats).files
        return {path.suffix: path.read_bytes() for path in files if path.suffix != ".json"}

    name = "cfc-figure-3"
    first, again = (made(name, folder, 0, ("png", "svg")) for folder in "ab")
    other = made(name, "c", 1)
    assert first == again
    assert all(first[suffix] != other[suffix] for suffix in other)
    assert first[".png"].startswith(b"\x89PNG")


@pytest.mark.parametrize(("colours", "mode"), [(200, "P"), (60_000, "RGB")])
def test_a_palette_replaces_colours_only_where_nobody_sees_it(colours, mode):
    generator = np.random.default_rng(0)
    every = generator.integers(0, 256, (colours, 3), dtype=np.uint8)
    pixels = every[generator.integers(0, colours, (300, 400))]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="png")
    with Image.open(io.BytesIO(_reduce_colours(file, 80))) as made:
        assert made.mode == mode
        off = np.asarray(made.convert("RGB")).astype(int) - pixels
    assert np.abs(off).max() <= 12


@pytest.mark.thorough
@pytest.mark.slow
def test_the_lines_drawn_are_the_numbers_beside_them():
    arrays = small(LINES).arrays
    result = find_figure(LINES).compute(FigureJob("small"))
    lines = result.plot().axes[0].lines
    assert [line.get_label() for line in lines] == ["L = 2", "L = 3"]
    for line in lines:
        np.testing.assert_allclose(line.get_xdata(), arrays[f"sigma_w, {line.get_label()}"])
        np.testing.assert_allclose(line.get_ydata(), arrays["sigma_b"])


def test_a_failed_figure_leaves_the_old_files(tmp_path, monkeypatch):
    entry = replace(FIGURES[CHEAP], name="broken", compute=lambda job: FigureResult(1 / 0))
    monkeypatch.setitem(FIGURES._entries, "broken", entry)
    old = tmp_path / "broken.png"
    old.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        make_figure("broken", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["broken.png"]
    assert old.read_bytes() == b"old"


def test_tables_in_markdown():
    table = FigureTable(
        ("name", "value", "left out"), [("a", 0.123456, 1), ("b", float("nan"), 2)], (0, 1)
    )
    assert to_markdown_table(table) == (
        "| name | value |\n| --- | ---: |\n| a | 0.1235 |\n| b | – |\n"
    )


def test_dense_lines_become_pixels_and_log_axes_plain_numbers():
    figure, ax = plt.subplots()
    (few,) = ax.plot(range(10), range(1, 11))
    (many,) = ax.plot(np.linspace(0, 9, 5000), np.ones(5000))
    scattered = ax.scatter(np.zeros(5000), np.ones(5000))
    ax.set_yscale("log")
    _rasterise_dense(figure)
    _simplify_log_axes(figure)
    assert [bool(a.get_rasterized()) for a in (few, many, scattered)] == [False, True, True]
    assert ax.yaxis.get_major_formatter()(20, 0) == "20"


@pytest.mark.slow
def test_the_pages_list_all_figures(tmp_path):
    empty = gallery_pages(tmp_path)
    index, sections = empty.pop("README.md"), "".join(empty.values())
    for name, entry in FIGURES.items():
        assert f'<a id="{name}"></a>' in sections
        assert entry.caption in sections
        assert f"tauflow figure {name} --out" in sections
        assert index.count(f".md#{name})") == 1
    assert "![" not in index + sections
    made = make_figure(CHEAP, tmp_path, size="small")
    thumbnail = f"![{FIGURES[CHEAP].title}]({CHEAP}.png)"
    assert thumbnail in write_gallery(tmp_path).read_text(encoding="utf-8")
    page = (tmp_path / "cfc.md").read_text(encoding="utf-8")
    assert thumbnail in page
    assert f"`{CHEAP}`, size small, seed 0" in page
    assert f"tauflow figure {CHEAP} --out" not in page
    links = re.findall(r"\]\(([^#)]+)\)", page)
    assert set(links) == {path.name for path in made.files} | {"README.md"}


@pytest.mark.thorough
def test_the_record_says_how_to_repeat_it():
    record = small(LINES).record
    assert record["settings"] == {"layers": [2, 3], "points": 3}
    assert set(record["versions"]) == {"python", "tauflow", "torch", "numpy", "matplotlib"}
    assert record["seconds"]["all"] >= record["seconds"]["drawing"] > 0
    assert "NaN" not in json.dumps(record)


def test_figures_of_other_tests_are_among_all():
    assert set(NAMES) < set(FIGURES)
