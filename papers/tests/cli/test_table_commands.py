import re

import pytest


def test_a_table_without_results(call, table):
    output = call("show", table).output
    assert "not implemented yet" in output
    assert "not run" in output


def test_a_budget_ends_with_a_code_of_its_own(call, table):
    first = call("reproduce", table, "--seeds", 1, "--budget", "0.001s", code=75)
    assert re.search(
        r"Time budget reached: 1 run remains, about \d+ s at this pace: begun \(gru, seed 0: 1 of "
        r"2 epochs\)\. Every finished epoch is kept; the same command continues\.",
        first.stderr,
    )
    second = call("reproduce", table, "--seeds", 1, "--budget", "1h")
    assert "[1/1] gru, seed 0: test mse" in second.output
    assert "time is up" not in second.output


def test_failed_runs_are_named_at_the_end(call, table):
    table.write_text(table.read_text().replace('cell = "gru"', 'cell = "gru", init = "zero"'))
    result = call("reproduce", table, "--seeds", 1, code=1)
    assert "gru, seed 0 failed: UnknownNameError: init='zero'" in result.stderr


def test_a_planned_row_is_refused(call, table):
    result = call("reproduce", table, "--models", "future", code=1)
    assert "the model 'not-yet' of row 'future' is not implemented yet" in result.stderr


def test_search_chooses_by_validation(call, table):
    words = ("search", table, "gru", "--vary", "recipe.lr=[0.001,0.1]")
    output = call(*words, "--confirm", 2).output
    assert "[2/2] gru (lr=0.1), seed 0: valid mse" in output
    assert re.search(r"^Chosen: lr=0\.(001|1)$", output, re.MULTILINE)
    assert re.search(r"chosen: \d\S+ ± \d\S+ \(2\), published 0\.500 ± 0\.100 \(5\)$", output, re.M)
    cut = call(*words, "--vary", "model.hidden_size=[4]", "--budget", "0.001s", code=75)
    assert "Nothing is chosen yet" in cut.output
    assert "2 runs remain" in cut.stderr
    assert "is not of the form key=value" in call(*words[:4], "recipe.lr", code=1).stderr
    assert "there is nothing to vary for 'gru'" in call(*words[:3], code=1).stderr
    file = table.with_name("grid.toml")
    file.write_text("[grid]\nrecipe.lr = [0.001]", encoding="utf-8")
    assert "[1/1]" not in call(*words[:3], "--grid", file).output  # it is there already


def test_what_is_missing_is_estimated(call, table, tmp_path):
    output = call("estimate", table).output
    assert "gru: a few batches ..." in output
    assert re.search(r"\ngru +GRU +\d+ s +2 +\d+ s\n", output)
    assert re.search(r"^Runs to do: 2, about \d+ s\.$", output, re.MULTILINE)
    assert (tmp_path / "results" / "estimates.json").is_file()
    call("reproduce", table)
    output = call("estimate", table, "--models", "gru").output
    assert re.search(r"\ngru +GRU +– +0 +–\n", output)
    assert "Nothing is left to do." in output
    assert re.search(r"\ngru +GRU +\d+ s +1 ", call("estimate", table, "--seeds", 3).output)
    assert "is not trained. Its numbers come from: " in call("estimate", "ltc-table-2").output
    assert "is not implemented yet" in call("estimate", table, "--models", "future", code=1).stderr


@pytest.mark.slow
def test_one_report_on_all_results(call, table, tmp_path):
    call("reproduce", table, "--seeds", 1, "--epochs", 1)
    result = call("report", table)
    assert re.search(r"\ntiny +1 of 2 rows measured", result.output)
    text = (tmp_path / "results" / "REPORT.md").read_text(encoding="utf-8")
    assert "## tiny: A tiny pendulum" in text
    assert "1 of 5 † | 1 of 2 †" in text
    assert (tmp_path / "results" / "report.html").is_file()
    assert "tiny.jsonl belongs to no table that is known" in call("report").stderr


@pytest.mark.parametrize("command", ["reproduce", "estimate"])
def test_no_names_are_not_all_rows(call, table, command):
    result = call(command, table, "--models", " ,", code=1)
    assert "--models ' ,' names no row. Leave it out for all rows." in result.stderr


def test_results_of_a_table_of_ones_own_ask_for_its_file(call, table):
    call("reproduce", table, "--seeds", 1)
    result = call("show", table.stem, code=1)
    assert f"such as tauflow show {table.stem}.toml" in result.stderr


@pytest.mark.parametrize("option", ["--results", "--runs"])
def test_a_file_is_no_folder(call, table, option):
    result = call("reproduce", table, option, table, code=2)
    words = result.stderr.replace("│", " ").split()  # a long path may break the line between them
    assert "is a file" in " ".join(words)


def test_claims_say_that_there_are_no_results_to_judge_by(call, tmp_path):
    without = call("claims", "ode-lstm", "--results", tmp_path / "empty")
    assert "has no results of tables" in " ".join(without.output.split())
    assert "Leave out --results" in " ".join(without.output.split())
    assert "\n  tauflow claims --measure gradients\n" in without.output  # to be copied
    (tmp_path / "one.jsonl").touch()
    assert "no results" not in call("claims", "ode-lstm", "--results", tmp_path).output
