import json

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("recipe.lr=0.5", "recipe.lr.x=3"), "lr must be"),
        (("data.sizes=[[6],6,6]",), "train_size must be an integer, got [6] (list)"),
        (("data.sizes={}",), "sizes"),
        (("data.sizes.a=3",), "sizes"),
        ((f"recipe.lr={'[' * 3000}",), "lr must be"),
    ],
)
def test_an_impossible_setting_of_a_row_is_named(call, table, words, message):
    options = [text for word in words for text in ("--set", word)]
    shown = call("reproduce", table, "--seeds", "1", *options, code=1)
    assert message in shown.output + shown.stderr
    assert "Traceback" not in shown.output + shown.stderr


def test_a_table_with_other_settings_is_one_of_its_own(call, table, tmp_path):
    shown = call("reproduce", table, "--seeds", "1", "--set", "recipe.lr=0.5", "--device", "cpu")
    assert "A tiny pendulum, with lr=0.5" in shown.output
    (results,) = (tmp_path / "results").glob("*.jsonl")
    assert results.name == "tiny-with-lr-0.5.jsonl"
    record = json.loads(results.read_text(encoding="utf-8").splitlines()[0])
    assert record["config"]["recipe"]["lr"] == 0.5
