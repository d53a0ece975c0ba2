"""``tauflow run --csv``: a signal that can be learned is learned, and errors are one message."""

import csv
import errno
import json
import os
import re
from dataclasses import fields

import numpy as np
import pandas
import pytest

from tauflow.data import TableOptions
from tauflow.runs.run import CsvFile, Run
from tauflow.runs.task import run_task

SAID = ["--csv", "visits.csv", "--id", "patient", "--time", "hours"]
SHORT = ["--hidden-size", 8, "--batch-size", 16, "--lr", 0.03, "--epochs", 12]


@pytest.fixture
def visits(tmp_path, call):
    """Write sines of one speed and any phase, a tenth of them missing, with targets."""
    rng = np.random.default_rng(0)
    with (tmp_path / "visits.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "hours", "a", "b", "died", "level"])
        for patient in range(80):
            phase, side = rng.random() * 6.3, rng.choice([-1, 1])
            for hour in rng.exponential(0.8, rng.integers(5, 9)).cumsum():
                a, b = np.sin(0.8 * hour + phase), side + 0.3 * rng.normal()
                cell = "" if rng.random() < 0.1 else round(a, 4)
                row = [f"{hour:.3f}", cell, round(b, 4), "yes" if side > 0 else "no"]
                writer.writerow([patient, *row, round(50 + 20 * b, 3)])
    return tmp_path / "visits.csv"


def scores(output):
    """Return {model or baseline: its first test score} of a printed table."""
    rows = re.findall(r"^(\S.*?)  +([\d.]+)(?:  .*)?$", output, re.MULTILINE)
    return {name: float(score) for name, score in rows}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("model", ["gru-d", "gru"])
def test_a_class_is_learned(call, visits, model):
    words = ["--model", model, "--target", "died", "--features", "a,b"]
    output = call("run", *SAID, *words, *SHORT).output
    assert "Task: classification, one target per id ('died' holds texts" in output
    assert ("says what was measured of: a." in output) == (model == "gru")
    scores_by_model = scores(output)
    assert scores_by_model[model] > scores_by_model["most frequent class"] + 20


def test_a_value_is_learned_and_shown_in_its_own_unit(call, visits):
    words = ["--model", "gru", "--target", "level", "--features", "a,b"]
    output = call("run", *SAID, *words, *SHORT).output
    scores_by_model = scores(output)
    assert scores_by_model["gru"] < 0.3 * scores_by_model["training mean"]
    scale = float(re.search(r"an error of 1 is ([\d.]+) of 'level'", output)[1])
    assert "RMSE, level" in output
    scaled = float(re.search(r"MSE of scaled targets of [\d.]+ \(test ([\d.]+)\)", output)[1])
    assert scores_by_model["gru"] == pytest.approx(scale * scaled**0.5, rel=0.01)
    report = re.search(r"^Report: (.*)$", output, re.MULTILINE)[1]
    page = (visits.parent / report).read_text(encoding="utf-8")
    assert "Task: regression" in page
    assert "test RMSE, level (95 %: " in page


def test_the_next_row_is_predicted(call, visits):
    words = ["--model", "gru", "--features", "a,b"]
    output = call("run", *SAID, *words, *SHORT).output
    assert "Task: next-step, of all features" in output
    scores_by_model = scores(output)
    assert scores_by_model["gru"] < 0.9 * min(
        scores_by_model["persistence"], scores_by_model["training mean"]
    )


def test_a_run_is_known_by_content_and_columns(call, visits):
    run = [*SAID, "--model", "gru", "--epochs", 1, "--hidden-size", 2, "--target", "died"]
    run += ["--features", "a,b"]
    directory = re.search(r"^Run: +(.*)$", call("run", *run).output, re.MULTILINE)[1]
    record = json.loads((visits.parent / directory / "record.json").read_text(encoding="utf-8"))
    assert record["config"]["dataset_options"]["features"] == ["a", "b"]
    assert directory in call("run", *run, "--resume").output
    message = "no run with these arguments to resume"
    assert message in call("run", *run, "--split-seed", 1, "--resume", code=1).stderr
    assert message in call("run", *run, "--per-step", "--resume", code=1).stderr
    visits.write_text(visits.read_text("utf-8") + "80,1.0,0.5,0.5,no,1.0\n", "utf-8")
    assert message in call("run", *run, "--resume", code=1).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["visits.csv", *SAID[4:]],
            "name the column that tells them apart: id (--id)",
        ),
        ([*SAID, "--long", "a"], "long must name two columns"),
        ([*SAID, "--target=a,died", "--task=regression"], "row 2, column 'died' holds"),
        (["pendulum", *SAID], "got both 'pendulum' and --csv visits.csv"),
        ([], "takes a data set or a file of your own, got neither"),
        (["pendulum", "--time-unit", "h"], "--time-unit is for a file of your own"),
        ([*SAID, "--split-by", "tim"], "Did you mean 'time'"),
        ([*SAID, "--split-by", "time", "--group", "b"], "group is for a draw of ids"),
        ([*SAID, "--group", "ward"], "has no column 'ward' (group)"),
        (["pendulum", "--split-by", "time"], "--split-by is for a file of your own"),
        ([*SAID, "--split", "a,b"], "is not three numbers"),
        ([*SAID, "--features", "a,c"], "has no column 'c'"),
        ([*SAID, "--features", 'a,"c'], "is not a list of names"),
        ([*SAID, "--model", "lstn"], "Did you mean 'lstm'"),
        ([*SAID, "--features", "a", "--model", "rnn-vae"], "would see the row that it is to"),
        (
            [*SAID, "--features", "a", "--option", "bidirectional=true"],
            "'cfc' with bidirectional=true reads a sequence to its end",
        ),
        (["--csv", "visit.csv", *SAID[2:]], "Did you mean 'visits.csv'"),
    ],
)
def test_what_is_refused(call, visits, words, message):
    assert message in call("run", *words, code=1).stderr


def test_every_option_of_tables_is_one_of_the_command(call):
    shown = "".join(call("run", "--help").output.split())
    for field in fields(TableOptions):
        for flag in field.metadata.get("flags", (f"--{field.name.replace('_', '-')}",)):
            assert flag[:10] in shown
    assert "Columnthatidentifiesthesequenceofarow." in re.sub("[│╮╯]", "", shown)


@pytest.mark.parametrize("command", ["run", "tune"])
def test_help_names_the_values_of_options_of_tables(call, command):
    shown = " ".join(re.sub(r"[│╮╯╭╰─]", " ", call(command, "--help").output).split())
    for text in (
        "(one of id time; default id)",
        "(one of auto milliseconds seconds minutes hours days weeks)",
        "(one of error mean last; default error)",
        "(default 0.7,0.15,0.15)",
        "(default 0)",
        "The default is next-step without a target; classification if the target is text",
    ):
        assert text in shown
    assert "'train': [...]" not in shown  # which the command has no way to be told


@pytest.mark.sampled(9)
@pytest.mark.parametrize("packed", ["csv.gz", "parquet"])
def test_packed_files_are_tables_too(call, visits, packed):
    frame = pandas.read_csv(visits)
    file = f"visits.{packed}"
    if packed == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(visits.with_name(file))
    else:
        frame.to_csv(visits.with_name(file), index=False)
    words = ["--target", "died", "--features", "a,b", "--model", "gru", *SHORT, "--epochs", 1]
    outputs = [call("run", name, *SAID[2:], *words).output for name in ("visits.csv", file)]
    assert scores(outputs[0]) == scores(outputs[1])
    assert "runs/visits/gru" in outputs[0].replace("\n", "")


def test_metrics_and_balanced_classes_come_from_the_command_line_or_a_file(call, visits):
    words = ["--target", "died", "--features", "a,b", "--epochs", 1, "--model", "gru"]
    words += ["--hidden-size", 2, "--set", "recipe.class_weights=balanced"]
    arguments = ["--metric", "auroc,brier", "--metric", "f1"]
    output = call("run", *SAID, *words, *arguments).output
    assert re.search(r"model +AUROC +Brier score +F1 score\n", output)
    assert re.search(r"Class weights: [\d.]+ for 'no', [\d.]+ for 'yes'\.", output)
    settings = visits.with_name("my.toml")
    for text in ('"auroc,brier,f1"', '["auroc", "brier", "f1"]'):
        settings.write_text(f"metric = {text}\n", encoding="utf-8")
        assert scores(call("run", *SAID, *words, "--config", settings).output) == scores(output)


def test_several_models_are_compared_in_one_table_and_report(call, visits):
    words = ["--target", "died", "--features", "a,b", "--epochs", 2, "--hidden-size", 4]
    output = call("run", *SAID, *words, "--model", "gru,gru-d").output
    assert set(scores(output)) == {
        *("gru", "gru-d", "most frequent class"),
        *("gradient boosting", "logistic regression"),
    }
    assert output.count("Run:    ") == 2
    report = visits.parent / re.search(r"^Report: (.*)$", output, re.MULTILINE)[1]
    assert report.name == "comparison.html"
    page = report.read_text(encoding="utf-8")
    assert all(name in page for name in ("gru-d", "most frequent class", "Task: classification"))
    stopped = call("run", *SAID, *words, "--model", "gru,gru-x", code=1)
    assert "gru-x" in stopped.stderr
    assert "Task" not in stopped.output.replace(stopped.stderr, "")


def test_other_names_and_delimiters(call, visits):
    odd = visits.with_name("my visits (2024).csv")
    odd.write_text(visits.read_text("utf-8").replace(",", ";"), "utf-8")
    words = ["--csv", odd.name, *SAID[2:], "--target", "level", "--features", "b, a"]
    words += ["--delimiter", ";", "--per-step", "--split", "60,0,40", "--sort"]
    output = call("run", *words, "--epochs", 1, "--model", "elman").output
    assert "runs/my-visits-2024-/elman" in output
    assert "80 ids: 48 for training, 0 for validation, 32 for the test" in output


def test_names_that_look_like_formulas_or_hold_commas(call, visits):
    renamed = visits.read_text("utf-8").replace("a,b,died,level", '"a, in",b,died,cost$^$', 1)
    visits.write_text(renamed, "utf-8")
    words = ["--features", 'b,"a, in"', "--target", "cost$^$", "--time-unit", "1$^$"]
    output = call("run", *SAID, *words, "--epochs", 1, "--hidden-size", 2, "--model", "gru").output
    report = re.search(r"^Report: (.*)$", output, re.MULTILINE)[1]
    assert "cost$^$" in (visits.parent / report).read_text(encoding="utf-8")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_are_refused_before_they_are_read(call, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    assert "is no regular file" in call("run", "--csv", "pipe.csv", "--id", "a", code=1).stderr


def test_a_full_disk_is_one_message(call, visits, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    run = call("run", *SAID, "--features", "a,b", "--epochs", 1, "--hidden-size", 2, code=1)
    pattern = r"^tauflow: No space left on device: runs/.+$"
    assert re.search(pattern, run.stderr, re.MULTILINE)


def test_ids_of_a_group_stay_in_one_part(call, visits):
    lines = visits.read_text("utf-8").splitlines()
    groups = ["ward", *(f"w{int(line.split(',')[0]) // 8}" for line in lines[1:])]
    rows = [f"{line},{group}" for line, group in zip(lines, groups, strict=True)]
    visits.write_text("\n".join(rows), "utf-8")
    words = ["--target", "level", "--features", "a,b", "--group", "ward", "--model", "gru"]
    output = call("run", *SAID, *words, "--epochs", 1, "--hidden-size", 2).output
    assert "80 ids in 10 groups of 'ward': 48 for training, 16 for validation, 16" in output


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("target", [[], ["--target", "level"]])
def test_one_long_recording_is_cut_by_time(call, tmp_path, target):
    hours = np.cumsum(np.random.default_rng(0).exponential(0.5, 200))
    with (tmp_path / "visits.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "hours", "a", "b", "level"])
        for hour in hours:
            a, b = np.sin(hour), np.cos(hour)
            writer.writerow(["r", f"{hour:.4f}", round(a, 4), round(b, 4), round(50 + 20 * a, 3)])
    words = ["--features", "a,b", "--model", "gru", *target]
    refused = call("run", *SAID, *words, code=1).stderr
    assert "1 id cannot be split" in refused
    assert "--split-by time" in refused
    run = [*words, "--split-by", "time", "--epochs", 60, "--hidden-size", 8, "--lr", 0.03]
    output = call("run", *SAID, *run).output
    assert "140 rows for training, 30 for validation, 30 for the test, one sequence each" in output
    scores_by_model = scores(output)
    assert scores_by_model["gru"] < 0.5 * scores_by_model["training mean"]
    directory = re.search(r"^Run: +(.*)$", output, re.MULTILINE)[1]
    record = json.loads((tmp_path / directory / "record.json").read_text(encoding="utf-8"))
    assert record["config"]["dataset_options"]["split_by"] == "time"


def test_the_same_run_from_python(visits, tmp_path):
    lines = []
    table = TableOptions("patient", "hours", "died", features=("a", "b"))
    file = CsvFile(visits, table)
    run = run_task(Run(file, "gru", runs_dir=tmp_path / "r", say=lines.append))
    assert lines[0].startswith("Task: classification")
    assert run.record.test > 0.8
