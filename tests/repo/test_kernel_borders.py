"""Inside kernels/: folders, arguments of functions, and the one place of private calls of torch."""

import ast

import pytest
from sources import MODULES, PACKAGE

KERNELS = PACKAGE / "kernels"
FILES = [path for path in MODULES if KERNELS in path.parents]
SHARED = {"engine", "cpu", "gpu"}
FAMILIES = {"cfc", "ltc", "ct_gru", "scan"}
MOST_ARGUMENTS = 10
MOST_WORDS = 13  # of a compiled function, which compiled code calls with one word for each


def folder_of(path):
    parts = path.relative_to(KERNELS).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(KERNELS)))
def test_functions_outside_triton_take_few_arguments(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        if any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        decorators = {ast.unparse(d).partition("(")[0] for d in node.decorator_list}
        if "intrinsic" not in decorators:
            most = MOST_WORDS if "kernel" in decorators else MOST_ARGUMENTS
            assert len(arguments) <= most, node.name


def test_folders_are_the_families_and_what_they_share():
    assert {folder_of(path) for path in FILES} == SHARED | FAMILIES | {
        "streaming",
        "trace",
        "generated",
        "",
    }


def test_only_one_file_asks_torch_in_private():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        private = "torch._C" in text or "forward_ad._" in text or "_dynamo_marked" in text
        assert private == (path.name == "torch_state.py"), path.name


def test_one_node_and_a_pair_of_operators_for_loops_and_for_traces():
    text = {path: path.read_text(encoding="utf-8") for path in FILES}
    assert [p.name for p, t in text.items() if "autograd.Function)" in t] == ["autograd.py"]
    assert [p.name for p, t in text.items() if "custom_op(" in t] == ["autograd.py", "operator.py"]
    assert text[KERNELS / "engine" / "autograd.py"].count("custom_op(") == 2
