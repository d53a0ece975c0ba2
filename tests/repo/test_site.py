"""The built site: links, pictures, titles and equations, without a network.

``TAUFLOW_SITE=docs/_build/html`` names a site that ``make docs`` has built. Without it, and with
``--full`` or ``-k`` alone, the site is built here without running the code of its pages.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from sources import ROOT
from test_words import BANNED

pytestmark = pytest.mark.thorough

MACHINE_PATH = re.compile(
    "|".join([r"/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "/tmp/", "site-packages"])
)
RAW_LATEX = re.compile(r"\\[([]|\\(?:frac|sum|tau|sigma|dot|mathrm|text)\b|\$\$")
WRITTEN_ELSEWHERE = ("published", "gallery/", "claims", "changelog", "_modules/")
"""Pages of results and of code, whose words are checked where they are written."""
LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}


class Page(HTMLParser):
    """What a page links to, loads, shows and says."""

    def __init__(self, path, root):
        super().__init__()
        self.path, self.name = path, path.relative_to(root).as_posix()
        self.ids, self.links, self.loads, self.images, self.words = set(), [], [], [], []
        self.title, self._open = "", []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids |= {attributes.get("id"), attributes.get("name")}
        self.loads += [
            attributes[key] for kind, key in LOADS if tag == kind and attributes.get(key)
        ]
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag == "img":
            self.images.append(attributes)
        if tag in ("script", "style", "title", "code", "pre"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data):
        if "title" in self._open:
            self.title += data
        elif not self._open:
            self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site."""
    if "TAUFLOW_SITE" in os.environ:
        return ROOT / os.environ["TAUFLOW_SITE"]
    pytest.importorskip("sphinx_gallery", reason="what the site needs is not installed")
    folder = tmp_path_factory.mktemp("site")
    fast = ["-D", "nb_execution_mode=off", "-D", "plot_gallery=0", "-d", str(folder / "trees")]
    command = [sys.executable, "-m", "sphinx", "-n", "-q", *fast, "docs", str(folder / "html")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    """Return the pages by path."""
    paths = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    return {path: Page(path, site) for path in paths}


def test_there_are_pages(pages):
    names = {page.name for page in pages.values()}
    assert len(names) > 200
    assert {"index.html", "relates.html", "tested.html", "tutorials/records.html"} <= names
    assert {"published/ltc.html", "gallery/gnode.html", "api/generated/tauflow.CfC.html"} <= names


def test_links_lead_somewhere(pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link) or page.name.startswith("_modules/"):
                continue
            file, anchor = urldefrag(link)
            target = (path.parent / unquote(file)).resolve() if file else path
            known = pages[target].ids if anchor and target in pages else {unquote(anchor)}
            if not target.exists() or unquote(anchor) not in known:
                broken.append((page.name, link))
    assert broken == []


def test_nothing_is_loaded_from_a_network(pages):
    loaded = [(p.name, load) for p in pages.values() for load in p.loads if "//" in load]
    assert loaded == []


def test_pictures_exist_and_are_described(pages):
    for path, page in pages.items():
        for image in page.images:
            source = image["src"]
            assert source.startswith("data:") or (path.parent / unquote(source)).exists(), source
            decorates = "sphx_glr" in source and "_thumb" in source  # its title is next to it
            alt = image.get("alt", "").strip()
            assert decorates or (alt and not alt.endswith((".png", ".svg"))), (page.name, source)


def test_every_page_has_a_title_of_its_own(pages):
    written = [p for p in pages.values() if not p.name.startswith(("_modules/", "api/generated/"))]
    titles = Counter(page.title.strip() for page in written)
    assert [title for title, number in titles.items() if number > 1] == []
    assert all(page.title.removesuffix(" — tauflow").strip() for page in pages.values())


def test_text_holds_no_latex_and_no_place_of_this_machine(pages):
    matches = [
        (page.name, match[0])
        for page in pages.values()
        for pattern, text in (
            (RAW_LATEX, " ".join(page.words)),
            (MACHINE_PATH, page.path.read_text(encoding="utf-8")),
        )
        if not page.name.startswith(("_modules/", "published/")) and (match := pattern.search(text))
    ]
    assert matches == []


def test_outputs_are_no_representations_of_objects(site):
    """Of a figure, when its picture is not shown, or of a result that is not printed."""
    representation = re.compile(r"&lt;Figure size|object at 0x|^\w+Result\(", re.MULTILINE)
    paths = [path for part in ("*.html", "tutorials/*.html") for path in site.glob(part)]
    assert [
        path.name for path in paths if representation.search(path.read_text(encoding="utf-8"))
    ] == []


def test_every_name_in_a_list_of_the_reference_is_described(site):
    row = re.compile(r"<tr[^>]*><td[^>]*>(.*?)</td>\s*<td[^>]*>(?:<p>)?\s*(?:</p>)?</td>")
    rows_of_pages = {
        page.name: row.findall(page.read_text("utf-8")) for page in site.glob("api/*.html")
    }
    assert len(rows_of_pages) > 10
    empty = [re.sub("<[^>]*>", "", name) for names in rows_of_pages.values() for name in names]
    assert empty == []


def test_words_are_those_of_the_field(pages):
    banned = re.compile(r"\b(" + "|".join(BANNED) + r")s?\b", re.IGNORECASE)
    matches = [
        (page.name, match[0])
        for page in pages.values()
        if not page.name.startswith(WRITTEN_ELSEWHERE)
        for match in banned.finditer(" ".join(page.words))
    ]
    assert matches == []


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("confid", "how-sure"),
        ("quantil", "how-sure"),
        ("calibr", "how-sure"),
        ("anomali", "gaps"),
        ("imput", "gaps"),
        ("shap", "explaining"),
        ("nan", "faq"),
        ("cite", "faq"),
        ("surviv", "survival"),
        ("reinforc", "robots"),
        ("onnx", "deploying"),
        ("skorch", "api/compat"),
        ("chrono", "foundation-models"),
        ("brit", "gaps"),
    ],
)
def test_words_of_users_find_the_page(site, word, page):
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    numbers_of_pages = []
    for part in ("terms", "titleterms"):
        numbers = index[part].get(word, [])  # a number, if there is one page
        numbers_of_pages += numbers if isinstance(numbers, list) else [numbers]
    assert index["docnames"].index(page) in numbers_of_pages


def test_the_overview_for_language_models_lists_the_pages(site):
    text = (Path(site) / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"\]\((\S+\.html)\)", text)
    assert len(listed) > 40
    assert [page for page in listed if not (site / page).exists()] == []
