"""What is made of the catalog of cells is up to date, and true to the classes at run time."""

import ast
import inspect
import os
import re
import subprocess
import sys

import pytest
from derived import MODULES, WRITTEN
from sources import PACKAGE, ROOT

import tauflow

STUB = ast.parse((PACKAGE / "sequence" / "modules.pyi").read_text(encoding="utf-8"))
CHECKED = """\
import tauflow
from tauflow import LTC
from tauflow.cells import CfCCell
from tauflow.sequence import SEQUENCE_MODULES, CatalogRNN

good: tauflow.CfC = tauflow.CfC(3, 4, mode="pure", num_layers=2)
wired: LTC = LTC(3, tauflow.AutoNCP(8, 2), solver="rk4")
cell = tauflow.cells.CfCCell(3, 4)
also: CfCCell = cell
reveal_type(good.cell)
misspelt = tauflow.CfC(3, 4, backbone_unit=4)
wrong = tauflow.CfC(3, 4, backbone_units="four")
unknown = tauflow.CFC(3, 4)
tauflow.data.read_csv, tauflow.estimators.SequenceClassifier, tauflow.zoo.MinGRU
"""


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_written_is_what_the_catalog_says(path):
    written = path.read_text(encoding="utf-8")
    assert written == WRITTEN[path](), "run python tests/repo/derived.py"


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_the_types_for_editors_are_those_of_the_constructors(module):
    body = next(n for n in STUB.body if getattr(n, "name", "") == module.__name__).body
    (arguments,) = (node.args for node in body if isinstance(node, ast.FunctionDef))
    shown = inspect.signature(module.__init__).parameters
    keywords = {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)}
    kinds = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD
    assert [a.arg for a in arguments.args] == [n for n, p in shown.items() if p.kind not in kinds]
    assert list(keywords) == [name for name, p in shown.items() if p.kind is kinds[0]]
    assert (arguments.kwarg is not None) == any(p.kind is kinds[1] for p in shown.values())
    for name, default in keywords.items():
        assert ast.literal_eval(default) == shown[name].default


def test_help_shows_the_options_of_the_cell():
    text = inspect.signature(tauflow.CfC.__init__)
    assert "backbone_units: int = 128" in str(text)
    assert "num_layers: int = 1" in str(text)
    assert not any("cell_options" in str(inspect.signature(m.__init__)) for m in MODULES)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_type_checker_knows_the_options(tmp_path):
    pytest.importorskip("mypy", reason="comes with the extra 'lint'")
    (tmp_path / "checked.py").write_text(CHECKED, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", tmp_path / "checked.py"],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
    )
    errors = re.findall(r"checked\.py:(\d+): error: (.*)", run.stdout)
    assert [line for line, _ in errors] == ["11", "12", "13"], run.stdout + run.stderr
    assert 'Unexpected keyword argument "backbone_unit" for "CfC"' in errors[0][1]
    assert 'incompatible type "str"; expected "int"' in errors[1][1]
    assert 'has no attribute "CFC"' in errors[2][1]
    assert 'Revealed type is "tauflow.cells.base.AbstractCell"' in run.stdout
