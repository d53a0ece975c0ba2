"""What users may rely on is a list that changes on purpose only."""

import inspect
from pathlib import Path

import pytest
from derived import CELLS, MODULES
from public_names import public_modules, public_names

PINNED = set(Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").split())
OF_THE_CATALOG = {f"tauflow.cells.{cell.__name__}" for cell in CELLS}
OF_THE_CATALOG |= {
    f"{folder}.{module.__name__}"
    for module in MODULES
    for folder in ("tauflow", "tauflow.sequence")
}


def test_public_names_are_the_pinned_ones_and_those_of_new_cells():
    public = set(public_names())
    assert len(public) == len(public_names())
    assert PINNED - public == set(), "gone, or renamed silently to those who use it"
    new_names = public - PINNED - OF_THE_CATALOG
    assert new_names == set(), "if meant, run python tests/repo/public_names.py and pin it"


@pytest.mark.parametrize("module", public_modules(), ids=lambda m: m.__name__)
def test_public_names_exist_and_are_documented(module):
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{module.__name__}.{name} has no docstring"
