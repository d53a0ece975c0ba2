"""Print the counts of the page *How it is tested*, which the site shows: a minute or two."""

import ast
import contextlib
import inspect
import io
import re
import sys
import textwrap
from collections import Counter

import pytest
from sources import ROOT

FOLDERS = {
    "tests/conformance": "every model of the catalog against one contract",
    "tests/parity": "kernels against plain PyTorch: outputs, all gradients, extreme numbers",
    "tests/robustness": "damaged files, killed processes, full disks, forks, threads, long runs",
    "tests/unit": "single modules, against formulas, other libraries and analytic solutions",
    "tests/repo": "documentation, examples, packaging, names",
    "papers/tests": "published tables and figures, their data sets and claims",
}


GROUPS = {
    "damaged files and specifications read": "bytes|facts|values|descriptions|tensors|cells$"
    "|files of|result lines|run folders|damaged kernels",
    "processes killed or interrupted": "kills|interrupts|signals",
    "processes forked under load": "forks|races|workers",
    "commands run in trouble: full disks, read-only folders, closed outputs": "in trouble",
    "calls with wrong shapes and types": "calls of",
    "parameters replaced before a call or a backward pass": "parameters",
    "steps of training, streams and threads under watch": "steps|streams|epochs|cells whose",
}
"""What the tests call their repetitions, by kind."""


class _Collected:
    """Keep the tests that pytest finds."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def count() -> str:
    """Return both tables, in Markdown."""
    collected = _Collected()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(
            ["--collect-only", "--full", "-q", "-p", "no:cacheprovider"], plugins=[collected]
        )
    functions: dict[str, set[tuple[object, str]]] = {folder: set() for folder in FOLDERS}
    cases: Counter[str] = Counter()
    tries: Counter[str] = Counter()
    for item in collected.items:
        folder = next(f for f in FOLDERS if item.nodeid.startswith(f"{f}/"))
        functions[folder].add((item.module.__name__, item.originalname))
        cases[folder] += 1
        if "tries" in item.fixturenames:
            tries.update(_tries(item))
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    version = re.search(r'^version = "(.*)"$', project, re.M)[1]
    rows = [
        f"Version {version}, counted when this site was built.\n",
        "| folder | what | tests | cases |",
    ]
    rows.append("| --- | --- | ---: | ---: |")
    for folder, what in FOLDERS.items():
        number = len(functions[folder])
        rows.append(f"| `{folder}` | {what} | {number:,} | {cases[folder]:,} |")
    total = sum(map(len, functions.values()))
    rows += [f"| all | | {total:,} | {sum(cases.values()):,} |", ""]
    rows += ["| repeated | times with `--full` |", "| --- | ---: |"]
    for kind, pattern in GROUPS.items():
        number = sum(tries.pop(what) for what in list(tries) if re.search(pattern, what))
        rows.append(f"| {kind} | {number:,} |")
    assert not tries, f"in no group: {sorted(tries)}"
    return "\n".join(rows) + "\n"


def _tries(item: pytest.Function) -> Counter[str]:
    """Return how often a test with all tries repeats what it names."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(item.function)))
    known = {**vars(item.module), **item.callspec.params} if hasattr(item, "callspec") else None
    known = vars(item.module) if known is None else known
    counter: Counter[str] = Counter()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "tries"):
            continue
        full = next(word.value for word in node.keywords if word.arg == "full")
        with contextlib.suppress(NameError):  # depends on what the test finds
            what, number = (
                eval(compile(ast.Expression(part), "tries", "eval"), dict(known))
                for part in (node.args[0], full)
            )
            counter[re.sub(r" \(.*\)$", "", what)] += number
    return counter


if __name__ == "__main__":
    sys.stdout.write(count())
