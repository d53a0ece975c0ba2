"""Versions and dependencies are stated once, and fit."""

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sources import PACKAGE, ROOT, tracked_text_files

import tauflow
from tauflow.experiments import list_experiments

tomllib = pytest.importorskip("tomllib", reason="tomllib is part of Python 3.11 and newer")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, BUILD = PYPROJECT["project"], PYPROJECT["tool"]["hatch"]["build"]


def pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in pins}


def required():
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    found = [Requirement(line) for group in groups for line in group]
    return [r for r in found if r.name != PROJECT["name"]]


def test_every_dependency_is_pinned_inside_its_range():
    pins = pinned()
    for requirement in required():
        if requirement.marker and not requirement.marker.evaluate():
            continue
        pin = pins[canonicalize_name(requirement.name)]
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert requirement.specifier.contains(exact.version), str(requirement)


def test_torch_is_a_range_for_users_and_a_pin_for_tests():
    (torch,) = [r for r in required() if r.name == "torch"]
    assert {s.operator for s in torch.specifier} == {">="}
    assert str(pinned()["torch"].specifier) == "==2.13.0"


def test_the_version_has_one_home():
    assert tauflow.__version__ == PROJECT["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(PROJECT['version'])}\]", changes, re.MULTILINE)


def test_types_tables_and_templates_go_into_the_wheel():
    """The builder takes all of the package but what git ignores."""
    assert BUILD["targets"]["wheel"] == {"packages": ["src/tauflow"]}
    types = {*PACKAGE.rglob("*.pyi"), PACKAGE / "py.typed"}
    assert len(types) > 4
    experiments = PACKAGE / "experiments"
    tables = set((experiments / "spec" / "tables").glob("*.toml"))
    templates = set((experiments / "report" / "templates").glob("*.j2"))
    assert len(tables) == len(list_experiments()) > 20
    assert len(templates) > 2
    assert types | tables | templates <= set(tracked_text_files())
