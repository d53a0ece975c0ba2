"""The code on the pages of the documentation runs, from top to bottom of each page."""

import re
import sys

import pytest
from sources import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
CODE = {
    page.name: blocks
    for page in PAGES
    if (blocks := re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S))
}
NEEDS = {"onnx": "onnxruntime", "pandas": "pandas", "estimators": "sklearn"}


@pytest.mark.slow
@pytest.mark.parametrize("page", CODE)
def test_its_code_runs(page, tmp_path, monkeypatch):
    for word, module in NEEDS.items():
        if word in "".join(CODE[page]):
            pytest.importorskip(module, reason=f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for number, block in enumerate(CODE[page]):
        exec(compile(block, f"{page}, block {number}", "exec"), namespace)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_there_is_code():
    assert "long-sequences.md" in CODE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_what_a_model_is_chosen_by_was_measured():
    """The accuracies on the page stand in the report, so that new results change both."""
    page = (ROOT / "docs" / "choosing.md").read_text("utf-8")
    accuracy = page[page.index("## Accuracy") : page.index("**Not measured**")]
    shown = re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", accuracy)
    report = (ROOT / "results" / "REPORT.md").read_text("utf-8")
    assert len(shown) > 30
    assert [number for number in shown if f" {number} " not in report] == []
