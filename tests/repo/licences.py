"""Write docs/licences.md, of what users install: ``python tests/repo/licences.py``."""

import re
from importlib import metadata

from packaging.requirements import Requirement
from sources import ROOT

PAGE = ROOT / "docs" / "licences.md"
STATED = {  # where the metadata holds none, or the whole text: what the licence file says
    "tomli": "MIT",
}
NOT_FOR_USERS = ("dev", "docs", "lint", "test")
HEAD = """\
# Licences of dependencies

tauflow has the Apache License 2.0. It contains no code of other packages; these are installed with
it, or with its extras. Licences are those in the metadata of the versions in `constraints.txt`;
`python tests/repo/licences.py` writes this page.

| package | for | licence |
| --- | --- | --- |
"""


def required() -> dict[str, list[str]]:
    """Return the extras that bring each package, by its name; an empty one is the library's."""
    import tomllib  # of Python 3.11 and newer

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    extras: dict[str, list[str]] = {}
    for extra, lines in groups.items():
        if extra not in NOT_FOR_USERS:
            for line in lines:
                extras.setdefault(Requirement(line).name, []).append(extra)
    return extras


def licence(name: str) -> str:
    """Return the licence that a package's metadata states, or a dash where it is not installed."""
    if name in STATED:
        return STATED[name]
    try:
        fields = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return "–"
    if stated := fields.get("License-Expression"):
        return str(stated)
    classifiers = [c for c in fields.get_all("Classifier") or () if c.startswith("License ::")]
    if classifiers:
        return ", ".join(c.rpartition(" :: ")[2] for c in classifiers)
    return re.split(r"[\n(]", fields.get("License") or "–")[0].strip()[:60]


def page() -> str:
    """Return the page."""
    rows = []
    for name, extras in sorted(required().items(), key=lambda item: item[0].lower()):
        use = "always" if "" in extras else ", ".join(f"`{extra}`" for extra in extras)
        rows.append(f"| {name} | {use} | {licence(name)} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
