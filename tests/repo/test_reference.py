"""Every public name has its place in the reference of the site."""

import importlib
import re

from public_names import public_names
from sources import ROOT

LISTED = [
    name
    for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    for block in re.findall(
        r"^\.\. autosummary::\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S
    )
    for name in re.findall(r"^   ([\w.]+)$", block, re.MULTILINE)
]


def value(name):
    home, _, last = name.rpartition(".")
    return getattr(importlib.import_module(home), last)


def test_nothing_is_listed_twice_and_all_of_it_is_public():
    assert len(LISTED) == len(set(LISTED))
    assert set(LISTED) <= set(public_names())


def test_every_public_name_is_listed_where_people_import_it_from():
    described = {id(value(name)) for name in LISTED}
    missing = [n for n in public_names() if n not in LISTED and id(value(n)) not in described]
    assert missing == [], "add it to a page of docs/api"
