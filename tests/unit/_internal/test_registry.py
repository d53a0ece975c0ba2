import importlib.metadata

import pytest

from tauflow._internal.optional_deps import get_install_command, require
from tauflow._internal.registry import Registry, suggest_name
from tauflow.errors import ArgumentError, MissingExtraError, UnknownNameError


def colours():
    return Registry("colour", {"red": 1, "green": 2, "blue": 3})


def test_it_is_a_mapping():
    assert dict(colours()) == {"red": 1, "green": 2, "blue": 3}
    assert "red" in colours()
    assert "pink" not in colours()
    assert len(colours()) == 3


def test_an_unknown_name_suggests_the_nearest_and_lists_all():
    with pytest.raises(UnknownNameError, match=r"colour.*'gren'.*Did you mean 'green'\?.*blue"):
        colours()["gren"]


@pytest.mark.parametrize("name", [None, 3, ["red"], {"red": 1}, "r" * 10_000])
def test_what_cannot_be_a_name_is_unknown_too(name):
    assert name not in colours()
    with pytest.raises(UnknownNameError, match=r"unknown colour .*Known: blue"):
        colours()[name]
    assert suggest_name(name, ["red"]) == ""


def test_a_name_is_given_once():
    registry = colours()
    registry.add("pink", 4)
    assert registry["pink"] == 4
    with pytest.raises(ArgumentError, match="red"):
        registry.add("red", 5)


def test_checks_refuse_an_entry_before_it_is_there():
    registry = colours()

    def even(name, entry):
        if entry % 2:
            raise ArgumentError(f"{name} is odd")

    registry.add_check(even)
    assert registry.add("pink", 4) == 4
    with pytest.raises(ArgumentError, match="cyan is odd"):
        registry.add("cyan", 5)
    with pytest.raises(ArgumentError, match="the name of a colour must be a str, got 7"):
        registry.add(7, 6)
    assert list(registry) == ["red", "green", "blue", "pink"]


def test_a_missing_extra_says_how_to_install_it():
    assert require("json", extra="none").dumps([1]) == "[1]"
    with pytest.raises(MissingExtraError, match=r"no_such_module.*tauflow\[fast\]"):
        require("no_such_module", extra="fast")


def test_what_an_extra_needs_is_installed_by_its_own_name(monkeypatch):
    lines = [
        "torch>=2",
        "one>=1; extra == 'fast'",
        "two; (sys_platform == 'linux') and extra == 'fast'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    assert get_install_command("fast") == "pip install 'one>=1' 'two'"
    assert get_install_command("fas") == "pip install 'tauflow[fas]'"


def test_names_of_the_package_itself_are_told_from_those_added_later():
    registry = Registry("metric", {"mse": 1, "mae": 2})
    registry.add("theirs", 3)
    assert registry.builtin_names == ("mse", "mae")
    assert list(registry) == ["mse", "mae", "theirs"]
