import logging
import re
import sys

import pytest
from typer.testing import CliRunner

import tauflow
from tauflow.cli.group import how_to_continue
from tauflow.cli.lists import print_models
from tauflow.cli.main import app
from tauflow.cli.options import key_values
from tauflow.errors import ArgumentError
from tauflow.models import WHOLE_MODELS


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def invoke(*words, code=0):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result

    return invoke


TABLE = """
name = "tiny"
title = "A tiny pendulum"
source = "Nobody 2020, Table 0"
loss = "mse"
metric = "mse"
seeds = 2
recipe = { epochs = 2, batch_size = 6 }

[[part]]
name = ""
dataset = "pendulum"
options = { sizes = [12, 6, 6], steps = 5 }

[[row]]
name = "gru"
title = "GRU"
model = { cell = "gru", hidden_size = 3 }
published = { mean = 0.5, std = 0.1, n = 5 }

[[row]]
name = "future"
title = "Model of the future"
planned = "not-yet"
published = { mean = 0.1 }
"""
TINY_RUN = ("--model", "elman", "--hidden-size", "4", "--epochs", "1")


def test_version_and_help(call):
    assert call("--version").output.strip() == tauflow.__version__
    text = call("--help").output
    for command in ("data", "models", "run", "reproduce", "show"):
        assert command in text


def test_lists(call):
    models = call("models").output
    for name in (*tauflow.cells.MODELS, *WHOLE_MODELS):
        assert re.search(rf"^│ {name} +│ .* │ +[\d,]+ │", models, re.MULTILINE), name
    assert re.search(
        r"^│ lstm +│ LSTM +│ Hochreiter & Schmidhuber 1997 +│ +21,248 │ – +│$", models, re.M
    )
    data = call("data", "list").output
    assert re.search(r"walker2d .*9684 / 1272 / 1937", data)
    tables = call("reproduce").output
    assert "ltc-table-6" in tables
    assert re.search(r"ltc-table-6 .* \d of 5 rows", tables)


@pytest.mark.parametrize("columns", [100, 80])
def test_the_list_of_models_fits_a_terminal(columns, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")  # rich takes a dumb one to have 80 columns
    print_models()
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    tables = [line for line in lines if line[0] in "┏┃┡│└"]
    assert max(map(len, tables)) <= columns
    assert max(map(len, lines)) <= 100
    assert "…" not in "".join(tables)  # nothing is cut off, only folded
    for name in (*tauflow.cells.MODELS, *WHOLE_MODELS):
        assert any(line.startswith(f"│ {name} ") for line in tables)


def test_whole_models_run_like_cells(call):
    output = call(
        "run", "pendulum", "--model", "transformer", "--option", "layers=1", *TINY_RUN[2:]
    )
    assert "persistence" in output.output


def test_generated_data_need_no_download(call):
    assert "is generated, not fetched" in call("data", "get", "pendulum").output


def test_run_then_show(call, tmp_path):
    output = call("run", "pendulum", *TINY_RUN).output
    assert "persistence" in output
    report = re.search(r"^Report: (.*)$", output, re.MULTILINE)[1]
    assert (tmp_path / report).is_file()
    run = re.search(r"^Run: +(.*)$", output, re.MULTILINE)[1]
    shown = call("show", run).output
    assert "training loss" in shown
    assert "Report: " in shown


def test_a_killed_run_is_shown_as_such(call, tmp_path):
    output = call("run", "pendulum", *TINY_RUN).output
    run = tmp_path / re.search(r"^Run: +(.*)$", output, re.MULTILINE)[1]
    (run / "record.json").unlink()
    shown = call("show", run).output
    assert "is not finished: 1 of 1 epochs" in shown
    assert "--resume" in shown


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(TABLE, encoding="utf-8")
    return file


def test_a_table_without_results(call, table):
    output = call("show", table).output
    assert "not implemented yet" in output
    assert "not run" in output


def test_a_budget_ends_with_a_code_of_its_own(call, table):
    first = call("reproduce", table, "--seeds", 1, "--budget", "0.001s", code=75)
    assert re.search(
        r"The time is up: 1 run is left, about \d+ s at this pace: begun \(gru, seed 0: 1 of 2 "
        r"epochs\)\. Every finished epoch is kept; the same command continues\.",
        first.stderr,
    )
    second = call("reproduce", table, "--seeds", 1, "--budget", "1h")
    assert "[1/1] gru, seed 0: test mse" in second.output
    assert "time is up" not in second.output


def test_failed_runs_are_named_at_the_end(call, table):
    table.write_text(TABLE.replace('cell = "gru"', 'cell = "gru", init = "zero"'))
    result = call("reproduce", table, "--seeds", 1, code=1)
    assert "gru, seed 0 failed: UnknownNameError: init='zero'" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "pendulun"], "Did you mean 'pendulum'"),
        (["run", "pendulum", "--model", "lstn"], "Did you mean 'lstm'"),
        (["run", "pendulum", "--model", "seft"], "'seft' answers once per sequence, but pendulum"),
        (["run", "pendulum", "--model", "latent-ode"], "Did you mean 'latent-ode-"),
        (["run", "pendulum", "--option", "modus"], "is not of the form key=value"),
        (["run", "pendulum", "--option", "mod=pure"], "Did you mean 'mode'"),
        (["run", "pendulum", "--option", "hidden_size=3"], "is given beside the options"),
        (["run", "pendulum", "--resume"], "no run with these arguments to resume"),
        (["run", "pendulum", *TINY_RUN, "--runs", "file/x"], "Not a directory"),
        (["reproduce", "ltc-tabel-6"], "Did you mean 'ltc-table-6'"),
        (["reproduce", "cfc-table-6", "--models", "skip-lstm"], "only the number is quoted"),
        (["reproduce", "ltc-table-6", "--budget", "30"], "'30' is not a time span"),
        (["show", "nothing"], "there is no run or table 'nothing'"),
        (["data", "get", "walker3d"], "Did you mean 'walker2d'"),
    ],
)
def test_errors_are_one_message_on_standard_error(call, tmp_path, words, message):
    (tmp_path / "file").touch()
    result = call(*words, code=1)
    assert result.stderr.startswith("tauflow: ")
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_traceback_on_request(call, monkeypatch):
    assert "Traceback" in call("--traceback", "run", "pendulun", code=1).stderr
    monkeypatch.setenv("TAUFLOW_DEBUG", "1")
    assert "Traceback" in call("run", "pendulun", code=1).stderr


def test_a_planned_row_is_refused(call, table):
    result = call("reproduce", table, "--models", "future", code=1)
    assert "the model 'not-yet' of row 'future' is not implemented yet" in result.stderr


def test_missing_data_say_what_to_do(call, monkeypatch, tmp_path):
    monkeypatch.setenv("TAUFLOW_DATA", str(tmp_path / "mistyped"))
    result = call("run", "half-cheetah", code=1)
    assert "TAUFLOW_DATA names" in result.stderr
    assert not (tmp_path / "mistyped").exists()


def test_log_lines_reach_standard_error_once(call, capsys):
    call("models")
    call("models")
    logging.getLogger("tauflow").info("compiling")
    assert capsys.readouterr().err == "compiling\n"


def test_values_of_options():
    words = ["a=1", "b=0.5", "c=true", "d=None", "e=silu", "f=[1,2]", "learn-rate=2"]
    assert key_values(words) == {
        **{"a": 1, "b": 0.5, "c": True, "d": None, "e": "silu", "f": [1, 2]},
        "learn_rate": 2,
    }
    with pytest.raises(ArgumentError, match="--option a is given twice"):
        key_values(["a=1", "a=2"])


def test_how_to_continue_is_a_command():
    assert how_to_continue(["run", "pendulum", "--seed", "1"]).endswith(
        "tauflow run pendulum --seed 1 --resume"
    )
    assert how_to_continue(["reproduce", "ltc-table-6"]).endswith("tauflow reproduce ltc-table-6")


def test_search_chooses_by_validation(call, table):
    words = ("search", table, "gru", "--vary", "recipe.lr=[0.001,0.1]")
    output = call(*words, "--confirm", 2).output
    assert "[2/2] gru (lr=0.1), seed 0: valid mse" in output
    assert re.search(r"^Chosen: lr=0\.(001|1)$", output, re.MULTILINE)
    assert re.search(r"chosen: \d\S+ ± \d\S+ \(2\), published 0\.500 ± 0\.100 \(5\)$", output, re.M)
    cut = call(*words, "--vary", "model.hidden_size=[4]", "--budget", "0.001s", code=75)
    assert "Nothing is chosen yet" in cut.output
    assert "2 runs are left" in cut.stderr
    assert "is not of the form key=value" in call(*words[:4], "recipe.lr", code=1).stderr
    assert "there is nothing to vary for 'gru'" in call(*words[:3], code=1).stderr
    file = table.with_name("grid.toml")
    file.write_text("[grid]\nrecipe.lr = [0.001]", encoding="utf-8")
    assert "[1/1]" not in call(*words[:3], "--grid", file).output  # it is there already


def test_one_report_on_all_results(call, table, tmp_path):
    call("reproduce", table, "--seeds", 1, "--epochs", 1)
    result = call("report", table)
    assert re.search(r"│ tiny +│ 1 of 2 rows measured", result.output)
    text = (tmp_path / "results" / "REPORT.md").read_text(encoding="utf-8")
    assert "## tiny: A tiny pendulum" in text
    assert "1 of 5 † | 1 of 2 †" in text
    assert (tmp_path / "results" / "report.html").is_file()
    assert "tiny.jsonl belongs to no table that is known" in call("report").stderr
