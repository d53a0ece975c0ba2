"""``python -m benchmarks freeze --compare`` tells what changed, through a map of renamed words."""

import json
import sys

import pytest
from sources import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks.freeze.compare import compare

BEFORE = {
    "numbers": {"cell | ltc | d W": "1", "cell | ltc | d W_2": "2"},
    "hashes": {"table | row": "1"},
    "texts": {"help | run": "Runs.\nA table.\n"},
    "exports": {"ltc | c": "1"},
}
PARTS = list(BEFORE)


@pytest.fixture
def compared(tmp_path, capsys):
    def run(changes, words=None):
        for name, values in {"a": BEFORE, "b": {**BEFORE, **changes}}.items():
            (tmp_path / name).mkdir()
            for part, content in values.items():
                (tmp_path / name / f"{part}.json").write_text(json.dumps(content), "utf-8")
        renamed = tmp_path / "map.json"
        renamed.write_text(json.dumps(words or {}), "utf-8")
        code = compare(tmp_path / "a", tmp_path / "b", parts=PARTS, renamed=renamed)
        return code, capsys.readouterr().out

    return run


def test_equal_folders(compared):
    code, output = compared({})
    assert code == 0
    assert output.count("0 changed, 0 gone, 0 new") == 4


@pytest.mark.parametrize("part", ["numbers", "hashes", "exports"])
@pytest.mark.parametrize("change", ["changed", "gone", "new"])
def test_values_that_must_agree(compared, part, change):
    values = dict(BEFORE[part])
    first = next(iter(values))
    if change == "gone":
        del values[first]
    else:
        values[first if change == "changed" else "another"] = "9"
    code, output = compared({part: values})
    assert code == 1
    assert f"{change}: {'another' if change == 'new' else first}" in output


def test_texts_may_change(compared):
    code, output = compared({"texts": {"help | run": "Runs.\nA file.\n"}})
    assert code == 0
    assert "-A table.\n+A file." in output


def test_renamed_words(compared):
    renamed = {"cell | ltc | d weight": "1", "cell | ltc | d W_2": "2"}
    code, output = compared({"numbers": renamed}, {"W": "weight"})
    assert code == 0, output


def test_map_does_not_hide_a_change(compared):
    changed = {"cell | ltc | d weight": "9", "cell | ltc | d W_2": "2"}
    assert compared({"numbers": changed}, {"W": "weight"})[0] == 1


def test_missing_part(tmp_path):
    with pytest.raises(SystemExit, match=r"there is no .*numbers\.json"):
        compare(tmp_path, tmp_path, parts=["numbers"], renamed=None)
