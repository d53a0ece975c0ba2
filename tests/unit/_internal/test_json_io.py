import json

import pytest

from tauflow._internal.json_io import MAX_DEPTH, MAX_VALUES, check_depth, parse_json
from tauflow._internal.sanitize import find_control_character, replace_control_characters


def test_json_is_read():
    assert parse_json(b'{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 70 + "]" * 70, '{"a":' * 70 + "1" + "}" * 70]
)
def test_deep_nesting_is_no_recursion_error(text):
    with pytest.raises(ValueError, match=r"nested more deeply than 64|Expecting"):
        parse_json(text)


def test_what_is_no_json_or_too_long_a_number():
    with pytest.raises(json.JSONDecodeError):
        parse_json("{")
    with pytest.raises(ValueError, match="digits"):
        parse_json("1" * 5000)
    with pytest.raises(ValueError, match="utf-8"):
        parse_json(b'"\xff"')


@pytest.mark.parametrize("value", ["[]", "{}", "1.5", '"ab"'])
def test_more_values_than_memory_is_for(value):
    """An empty list of three bytes takes 64 in memory."""
    text = f"[{','.join([value] * (MAX_VALUES + 1))}]"
    for document in (text, text.encode()):
        with pytest.raises(ValueError, match="more than 1,000,000 values"):
            parse_json(document)


def test_the_depth_of_what_another_reader_made():
    check_depth({"a": [{}]})
    nested = []
    for _ in range(MAX_DEPTH):
        nested = [nested]
    with pytest.raises(ValueError, match="deeply"):
        check_depth(nested)


def test_control_characters_become_visible():
    assert replace_control_characters("a\x1b[31mb\tc\nd\x9b") == "a\ufffd[31mb\tc\nd\ufffd"
    assert replace_control_characters("\ud800\uffff") == "\ufffd" * 2
    assert replace_control_characters("Größe, 温度 \u202e") == "Größe, 温度 \u202e"
    assert find_control_character("a\x1bb") == "\x1b"
    assert find_control_character("plain\n") == ""
