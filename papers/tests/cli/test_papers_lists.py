import contextlib
import io
import re
from collections import Counter

import pytest

import tauflow
from tauflow.cli.lists import print_data
from tauflow.data.registry import DATASETS
from tauflow.models import WHOLE_MODELS


def test_lists(call):
    models = call("models").output
    for name in (*tauflow.cells.MODELS, *WHOLE_MODELS):
        assert re.search(rf"^{name} +\S.* +[\d,]+  \S", models, re.MULTILINE), name
    assert re.search(r"^lstm +LSTM +Hochreiter & Schmidhuber 1997 +21,248  –$", models, re.M)
    data = call("data", "list").output
    assert re.search(r"walker2d .*9684/1272/1937", data)
    tables = call("reproduce").output
    assert "ltc-table-6" in tables
    assert re.search(r"ltc-table-6 .* \d of 8 rows", tables)


def printed_at(columns, show, monkeypatch):
    """Lines that a function prints on a terminal of some width."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")  # rich takes a dumb one to have 80 columns
    with contextlib.redirect_stdout(terminal):
        show()
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", [["models"], ["data", "list"], ["reproduce"], ["figure"]])
def test_what_is_piped_is_plain_and_as_wide_as_columns_says(call, words, columns, monkeypatch):
    unbounded = call(*words).output
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = call(*words).output.splitlines()
    assert not set("".join(lines)) & set("┏┃┡│└━─")
    assert lines == [line.rstrip() for line in lines]
    assert max(map(len, lines)) <= columns < max(map(len, unbounded.splitlines()))
    together = re.sub(r"\s", "", unbounded)
    assert Counter("".join(lines).replace(" ", "")) == Counter(together)  # nothing is cut off


@pytest.mark.parametrize("columns", [100, 80])
def test_the_list_of_data_fits_a_terminal(columns, monkeypatch, tmp_path):
    card = DATASETS["ozone"]
    (tmp_path / card.folder).mkdir()
    for name in card.files:
        (tmp_path / card.folder / name).write_bytes(b"x" * 1_234_567)
    total = f"{1.234567 * len(card.files):.1f} MB"
    monkeypatch.setenv("TAUFLOW_DATA", str(tmp_path))
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "no cache")
    lines = printed_at(columns, print_data, monkeypatch)
    tables = [line for line in lines if line[0] in "┏┃┡│└"]
    assert max(map(len, lines)) <= columns
    assert "…" not in "".join(tables)
    for name, card in DATASETS.items():
        (row,) = (line for line in tables if line.startswith(f"│ {name} "))
        place = total if name == "ozone" else "no" if card.files else "generated"
        assert row.endswith(f" {place} │")
        if any(card.sizes):
            assert "/".join(map(str, card.sizes)) in row
