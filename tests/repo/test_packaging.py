"""Versions and dependencies are stated once, and fit; what is packed is what is there."""

import ast
import re
from importlib.metadata import packages_distributions

import licences
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sources import ALL_MODULES, PACKAGE, PAPERS, ROOT, tracked_text_files

import tauflow
from tauflow.cli import doctor
from tauflow_papers.experiments import list_experiments

tomllib = pytest.importorskip("tomllib", reason="tomllib is part of Python 3.11 and newer")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, BUILD = PYPROJECT["project"], PYPROJECT["tool"]["hatch"]["build"]


def pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in pins}


def required():
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    requirements = [Requirement(line) for group in groups for line in group]
    return [r for r in requirements if r.name != PROJECT["name"]]


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
    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text(encoding="utf-8"))
    assert papers["project"]["version"] == PROJECT["version"]
    assert f"tauflow=={PROJECT['version']}" in papers["project"]["dependencies"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(PROJECT['version'])}\]", changes, re.MULTILINE)
    for name, line in {"CITATION.cff": "version: {}", "codemeta.json": '"version": "{}"'}.items():
        assert line.format(PROJECT["version"]) in (ROOT / name).read_text(encoding="utf-8")


def test_types_tables_and_templates_go_into_the_wheel():
    """The builder takes all of the package but what git ignores."""
    assert BUILD["targets"]["wheel"] == {"packages": ["src/tauflow"]}
    types = {*PACKAGE.rglob("*.pyi"), PACKAGE / "py.typed"}
    assert len(types) > 4
    tables = set((PAPERS / "experiments" / "spec" / "tables").glob("*.toml"))
    templates = {*PACKAGE.rglob("*.j2"), *PAPERS.rglob("*.j2")}
    assert len(tables) == len(list_experiments()) > 20
    assert len(templates) > 2
    assert types | tables | templates <= set(tracked_text_files())


def test_the_source_archive_leaves_out_results_and_pictures_alone():
    """The builder takes all that git knows but these, which make up three quarters of it."""
    assert BUILD["targets"]["sdist"] == {
        "exclude": ["/papers/results/*.jsonl", "/docs/gallery/*.*"]
    }
    assert list((ROOT / "papers" / "results").glob("*.jsonl"))
    assert list((ROOT / "docs" / "gallery").glob("*.png"))


def test_a_dependency_has_one_lower_bound():
    bounds = {}
    for requirement in required():
        bounds.setdefault(canonicalize_name(requirement.name), set()).add(
            str(requirement.specifier)
        )
    assert {name: bound for name, bound in bounds.items() if len(bound) > 1} == {}


def asked_for():
    """Return each module that the code imports on demand, with the extra that it says has it."""
    for path in ALL_MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require":
                extra = {word.arg: word.value for word in node.keywords}["extra"]
                if isinstance(node.args[0], ast.Constant) and isinstance(extra, ast.Constant):
                    yield node.args[0].value.partition(".")[0], extra.value


def test_an_extra_brings_what_its_error_promises():
    asked = set(asked_for())
    assert len(asked) > 8
    brought = {
        extra: {canonicalize_name(Requirement(line).name) for line in lines}
        for extra, lines in PROJECT["optional-dependencies"].items()
    }
    for extra, names in doctor._OPTIONAL_PACKAGES.items():
        assert set(names) <= brought[extra], f"tauflow doctor is wrong about {extra!r}"
    providers = packages_distributions()
    for module, extra in asked:
        names = {canonicalize_name(name) for name in providers.get(module, [module])}
        assert names & brought[extra], f"extra {extra!r} does not bring {module}"


def test_the_page_on_licences_lists_what_users_install():
    rows = re.findall(r"^\| ([\w-]+) \| .* \| (.*) \|$", licences.PAGE.read_text("utf-8"), re.M)
    assert {name for name, _ in rows[2:]} == set(licences.required())
    assert all(re.search("Apache|BSD|MIT|PSF|Python", licence) for _, licence in rows[2:])


def test_the_conda_recipe_has_the_version_and_dependencies_of_the_package():
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{PROJECT["version"]}"' in recipe
    run = re.search(r"^  run:\n(.*?)\n\n", recipe, re.M | re.S)[1]
    listed = dict(re.findall(r"- ([\w-]+) >=([\d.]+)", run))
    renamed = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    wanted = {
        renamed.get(r.name, r.name): str(r.specifier).removeprefix(">=")
        for r in map(Requirement, PROJECT["dependencies"])
    }
    assert listed == wanted
