"""Write what is made of the catalog of cells: ``python tests/repo/derived.py``.

The types of the classes that the catalog brings, for editors and type checkers, and the table of
models and lists of names in the documentation.
"""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from sources import PACKAGE, ROOT
from typer.testing import CliRunner

import tauflow
import tauflow.zoo  # which publishes names
from tauflow.cli.main import app
from tauflow.sequence import CatalogRNN

MODULES = [m for m in CatalogRNN.module_of_cell.values() if m.__name__ in tauflow.__all__]
CELLS = [module.cell_class for module in MODULES]

HEADER = "\n".join(
    [
        "# Written by `python tests/repo/derived.py` from the catalog of cells.",
        "# ruff: noqa",
        "# fmt: off",
    ]
)
API = ROOT / "docs" / "api"
GROUPS = {
    "Liquid time constants": ("LTC", "NeuronalLTC", "LRC", "LrcSSM"),
    "Closed form": ("CfC", "MixedMemory", "WiredCfC"),
    "Differential equations": (
        *(
            "ODELSTM",
            "CTRNN",
            "GRUODE",
            "GRUODEBayes",
            "NeuralCDE",
            "SLiCE",
            "GNODE",
            "RubanovaODERNN",
        ),
        *("CRU", "LinODENet", "LEM", "EulerGRU", "EulerLSTM"),
    ),
    "Decay between samples, missing values": (
        *("GRUD", "UnmaskedGRUD", "GRUwE", "RNNDecay", "LinearDecayRNN", "RubanovaGRU"),
        *("CTLSTM", "TLSTM", "TimeLSTM", "RITS"),
    ),
    "Several time scales, oscillations, memories": (
        *("CTGRU", "PhasedLSTM", "HiPPO", "LMU", "CoRNN", "LipschitzRNN", "ExpRNN"),
    ),
    "Linear state spaces, by one scan": ("LRU", "S5", "LinOSS"),
    "Discrete time": ("LSTM", "GRU", "Elman", "BidirectionalRNN"),
}
"""Sequence modules by family, the most used first; the cells have the same names and ``Cell``."""
PACKAGES = (
    *("analysis", "cells", "compat", "data", "errors", "estimators", "evaluation", "export"),
    *("kernels", "models", "predict", "sequence", "solvers", "training", "wirings", "zoo"),
)
"""What ``import tauflow`` makes reachable as attributes."""
_NOT_EXPORTED = ("typing", "tauflow._internal.plugins")
_PLAIN = (bool, int, float, str, type(None))


def stub_of_modules() -> str:
    """Return the types of tauflow/sequence/modules.py."""
    imports: set[tuple[str, str]] = {("typing", "Any"), ("tauflow.cells.base", "AbstractCell")}
    classes = []
    for module in MODULES:
        shown = list(inspect.signature(module.__init__).parameters.values())
        arguments = [_argument(parameter, imports) for parameter in shown]
        star = next(i for i, p in enumerate(shown) if p.kind is inspect.Parameter.KEYWORD_ONLY)
        arguments.insert(star, "*")
        cell = module.cell_class.__name__
        summary = inspect.getdoc(module.cell_class).splitlines()[0]
        classes.append(
            f'class {module.__name__}(CatalogRNN):\n    """{summary}\n\n'
            f'    Over sequences; for the options see tauflow.cells.{cell}.\n    """\n'
            f"    def __init__(\n{_filled(arguments, 8)}\n    ) -> None: ..."
        )
    build = inspect.signature(tauflow.build).parameters.values()
    lines = [
        HEADER,
        _docstring(PACKAGE / "sequence" / "modules.py"),
        *(f"from {home} import {name}" for home, name in sorted(imports)),
        "\nfrom .catalog_rnn import CatalogRNN\nfrom .sequence_module import SequenceModule\n",
        "SEQUENCE_MODULES: tuple[type[CatalogRNN], ...]\n",
        "def make_module(cell: type[AbstractCell]) -> type[CatalogRNN]: ...\n",
        f"def build({', '.join(_argument(p, imports) for p in build)}) -> SequenceModule: ...\n",
        "\n\n".join(classes),
    ]
    return "\n".join(lines) + "\n"


def stub_of_folder(folder: Path, derived: dict[str, str]) -> str:
    """Return the types of a folder's ``__init__.py``, which exports more than it names.

    Args:
        folder: of the package.
        derived: where to import from, by the names that the catalog brings.
    """
    source = folder / "__init__.py"
    named = [
        (f"{'.' * node.level}{node.module or ''}", alias.name)
        for node in ast.parse(source.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module not in _NOT_EXPORTED
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    ]
    wanted: dict[str, list[str]] = {}
    for home, name in [*named, *((home, name) for name, home in derived.items())]:
        wanted.setdefault(home, []).append(name)
    lines = [HEADER, _docstring(source)]
    for home, names in sorted(wanted.items()):
        line = f"from {home} import {', '.join(sorted(names))}"
        statement = f"from {home} import (\n{_filled(sorted(names), 4)}\n)"
        lines.append(line if len(line) <= 100 else statement)
    if folder == PACKAGE:
        again = _filled((f"{name} as {name}" for name in PACKAGES), 4)
        lines.append(f"\nfrom . import (\n{again}\n)\n\n__version__: str")
    public = sorted(
        importlib.import_module(".".join(folder.relative_to(PACKAGE.parent).parts)).__all__
    )
    lines.append("\n__all__ = [\n" + _filled((f'"{name}"' for name in public), 4) + "\n]")
    return "\n".join(lines) + "\n"


def homes_in_the_zoo(package: ModuleType) -> dict[str, str]:
    """Return where what the zoo published in a package is defined, by name."""
    homes = {name: getattr(getattr(package, name), "__module__", "") for name in package.__all__}
    return {name: home for name, home in homes.items() if home.startswith("tauflow.zoo.")}


def documented_models() -> str:
    """Return docs/models.md with the tables of ``tauflow models --markdown``."""
    tables = CliRunner().invoke(app, ["models", "--markdown"]).output.strip()
    return _page_with("models", ROOT / "docs" / "models.md", tables)


def listed(what: str, page: str, pattern: str) -> str:
    """Return a page of the reference with the names that the catalog brings, by family."""
    modules, grouped = {m.__name__ for m in MODULES}, set(sum(GROUPS.values(), ()))
    assert grouped <= modules
    others = {"Other cells": sorted(modules - grouped)} if modules > grouped else {}
    parts = []
    for family, names in {**GROUPS, **others}.items():
        lines = [f"### {family}\n", "```{eval-rst}", ".. autosummary::", "   :toctree: generated"]
        lines += ["   :nosignatures:", "", *(f"   {pattern.format(name)}" for name in names), "```"]
        parts.append("\n".join(lines))
    return _page_with(what, API / page, "\n\n".join(parts))


def _argument(parameter: inspect.Parameter, imports: set[tuple[str, str]]) -> str:
    if parameter.name == "self":
        return "self"
    kind = inspect.formatannotation(parameter.annotation)
    for home, name in set(re.findall(r"([\w.]+)\.(\w+)", kind)):
        imports.add((home, name))
        kind = kind.replace(f"{home}.{name}", name)
    stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
    if parameter.default is inspect.Parameter.empty:
        return f"{stars}{parameter.name}: {kind}"
    default = repr(parameter.default) if isinstance(parameter.default, _PLAIN) else "..."
    return f"{parameter.name}: {kind} = {default}".replace("'", '"')


def _page_with(what: str, path: Path, text: str) -> str:
    """Return a page with ``text`` in the place that is marked for it."""
    before, start, rest = path.read_text(encoding="utf-8").partition(
        f"<!-- {what}: written by `python tests/repo/derived.py` -->\n"
    )
    _, end, after = rest.partition(f"<!-- end of {what} -->")
    return f"{before}{start}{text}\n{end}{after}"


def _docstring(path: Path) -> str:
    return f'"""{ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))}"""\n'


def _filled(items: Iterable[str], indent: int) -> str:
    """Return items, a comma after each, in as few lines as hold them."""
    bound = (f"{item},".replace(" ", "\0") for item in items)
    margin = " " * indent
    text = textwrap.fill(
        " ".join(bound),
        100,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return text.replace("\0", " ")


WRITTEN: dict[Path, Callable[[], str]] = {
    PACKAGE / "sequence" / "modules.pyi": stub_of_modules,
    PACKAGE / "sequence" / "__init__.pyi": lambda: stub_of_folder(
        PACKAGE / "sequence", {m.__name__: ".modules" for m in MODULES}
    ),
    PACKAGE / "cells" / "__init__.pyi": lambda: stub_of_folder(
        PACKAGE / "cells",
        {c.__name__: c.__module__.replace("tauflow.cells.", ".") for c in CELLS},
    ),
    PACKAGE / "models" / "__init__.pyi": lambda: stub_of_folder(
        PACKAGE / "models", homes_in_the_zoo(tauflow.models)
    ),
    PACKAGE / "__init__.pyi": lambda: stub_of_folder(
        PACKAGE,
        {**{m.__name__: "tauflow.sequence" for m in MODULES}, **homes_in_the_zoo(tauflow)},
    ),
    ROOT / "docs" / "models.md": documented_models,
    API / "sequence.md": lambda: listed("modules", "sequence.md", "tauflow.{}"),
    API / "cells.md": lambda: listed("cells", "cells.md", "tauflow.cells.{}Cell"),
}

if __name__ == "__main__":
    for path, make in WRITTEN.items():
        path.write_text(make(), encoding="utf-8")
