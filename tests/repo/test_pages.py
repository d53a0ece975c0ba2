"""The code on the pages of the documentation runs, from top to bottom of each page."""

import re

import pytest
from sources import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
CODE = {
    page.name: blocks
    for page in PAGES
    if (blocks := re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S))
}


@pytest.mark.slow
@pytest.mark.parametrize("page", CODE)
def test_its_code_runs(page, tmp_path, monkeypatch):
    if "onnx" in "".join(CODE[page]):
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for number, block in enumerate(CODE[page]):
        exec(compile(block, f"{page}, block {number}", "exec"), namespace)


def test_there_is_code():
    assert "long-sequences.md" in CODE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
