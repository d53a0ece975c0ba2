import json

import pytest

from tauflow.plain_json import DEEPEST, check_depth, read_json
from tauflow.plain_text import control_character, visible


def test_plain_json_is_read():
    assert read_json(b'{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert read_json("[" * DEEPEST + "]" * DEEPEST)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 70 + "]" * 70, '{"a":' * 70 + "1" + "}" * 70]
)
def test_deep_nesting_is_no_recursion_error(text):
    with pytest.raises(ValueError, match=r"nested more deeply than 64|Expecting"):
        read_json(text)


def test_what_is_no_json_or_too_long_a_number():
    with pytest.raises(json.JSONDecodeError):
        read_json("{")
    with pytest.raises(ValueError, match="digits"):
        read_json("1" * 5000)
    with pytest.raises(ValueError, match="utf-8"):
        read_json(b'"\xff"')


def test_the_depth_of_what_another_reader_made():
    check_depth({"a": [{}]})
    nested = []
    for _ in range(DEEPEST):
        nested = [nested]
    with pytest.raises(ValueError, match="deeply"):
        check_depth(nested)


def test_control_characters_become_visible():
    assert visible("a\x1b[31mb\tc\nd\x9b") == "a\ufffd[31mb\tc\nd\ufffd"
    assert visible("\ud800\uffff") == "\ufffd" * 2
    assert visible("Größe, 温度 \u202e") == "Größe, 温度 \u202e"
    assert control_character("a\x1bb") == "\x1b"
    assert control_character("plain\n") == ""
