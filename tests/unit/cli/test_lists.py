import contextlib
import io
import re

import pytest

import tauflow
from tauflow.cli.lists import print_models
from tauflow.cli.output import print_table
from tauflow.models import WHOLE_MODELS


def printed_at(columns, show, monkeypatch):
    """Lines that a function prints on a terminal of some width."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")  # rich takes a dumb one to have 80 columns
    with contextlib.redirect_stdout(terminal):
        show()
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()


@pytest.mark.parametrize("columns", [100, 80])
def test_the_list_of_models_fits_a_terminal(columns, monkeypatch):
    lines = printed_at(columns, print_models, monkeypatch)
    tables = [line for line in lines if line[0] in "┏┃┡│└"]
    assert max(map(len, lines)) <= columns
    assert "…" not in "".join(tables)  # nothing is cut off, only folded
    for name in (*tauflow.cells.MODELS, *WHOLE_MODELS):
        assert any(line.startswith(f"│ {name} ") for line in tables)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("columns", ["", "0", "wide", "-5"])
def test_other_values_of_columns_do_not_count(call, columns, monkeypatch):
    expected = call("models").output
    monkeypatch.setenv("COLUMNS", columns)
    assert call("models").output == expected


def test_names_are_printed_as_they_are(monkeypatch, capsys):
    print_table([":car:"], [("[bold]:smile:[/bold]",)], title=":car: [red]")
    assert capsys.readouterr().out == ":car: [red]\n:car:\n[bold]:smile:[/bold]\n"
