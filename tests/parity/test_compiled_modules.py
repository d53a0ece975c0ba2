"""Under ``torch.compile`` a kernel of the CPU is one operator, whatever the length."""

import copy
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from kernel_variants import RECORDED, ROWS, example, name_of
from sequences_of_cells import assert_close
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_map_only

import tauflow
from tauflow.cells import LRCCell, PhasedLSTMCell
from tauflow.cells.registry import MODELS as CATALOG
from tauflow.errors import ShapeError
from tauflow.kernels.engine import autograd as engine
from tauflow.kernels.engine.recompute import run_reference_steps
from tauflow.kernels.ltc import get_buffer_layout, get_layout
from tauflow.kernels.select import _WRITTEN_CELLS, KERNELS

MODULES = {
    "CfC": lambda: tauflow.CfC(3, 5, backbone_units=9),
    "LTC": lambda: tauflow.LTC(3, tauflow.RandomSparse(12, sparsity=0.8), substeps=2),
    "LRC": lambda: tauflow.LRC(3, 5, elastance="symmetric", substeps=2),
    "MixedMemory": lambda: tauflow.MixedMemory(3, 5, backbone_units=9, bidirectional=True),
    "CTGRU": lambda: tauflow.CTGRU(3, 5, scales=3, num_layers=2),
}
LENGTHS = (13, 2, 3, 4, 5, 6, 7, 8, 9, 10, 200)  # the first like no other size


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def operators(compiled):
    """Return what the graphs of a counting backend call of ours, and how many nodes they have."""
    graphs = [graph.graph.nodes for graph in compiled.graphs if len(graph.graph.nodes)]
    named = [str(node.target) for nodes in graphs for node in nodes]
    return [name for name in named if "tauflow" in name], [len(nodes) for nodes in graphs]


def call(run, rnn, steps):
    generator = torch.Generator().manual_seed(steps)
    x = torch.randn(3, steps, 3, generator=generator).requires_grad_()
    dt = torch.rand(3, steps, generator=generator).requires_grad_()
    mask = torch.rand(3, steps, generator=generator) < 0.8
    h = torch.randn(3, rnn.state_size, generator=generator).mul(0.1).requires_grad_()
    y, last = run(x, h, dt=dt, mask=mask)
    pulled = (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum() + last.square().sum()
    leaves = [x, h, dt, *rnn.parameters()]
    return y, last, *torch.autograd.grad(pulled, leaves, allow_unused=True, materialize_grads=True)


def values_and_gradients(run, rnn, x):
    y = run(x)[0]
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [*rnn.parameters()])]


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODULES)
def test_eleven_lengths_are_compiled_once(name):
    torch.manual_seed(0)
    # the way through torch's own autograd takes seconds to trace, and does not depend on the cell
    rnn, counter = (
        MODULES[name](),
        CompileCounterWithBackend("aot_eager" if name == "CfC" else "eager"),
    )
    compiled = torch.compile(rnn, backend=counter, fullgraph=True, dynamic=True)
    for steps in LENGTHS:
        result, expected = call(compiled, rnn, steps), call(rnn, rnn, steps)
        assert torch.equal(result[0], expected[0])  # the same loops ran
        for gradient, other in zip(result[1:], expected[1:], strict=True):
            torch.testing.assert_close(gradient, other, rtol=1e-5, atol=1e-5)
    ours, (nodes,) = operators(counter)
    assert len(ours) == len(rnn.cells)
    assert set(ours) <= {"tauflow.sequence.default", "tauflow.traced_sequence"}
    assert nodes < 140  # the loop over 10 steps had from 258 up to 1260 of them, for each cell


TRACED = sorted(
    entry
    for entry, model in CATALOG.items()
    if any(row.cell is model.cell and row in RECORDED for row in KERNELS)
    and not issubclass(model.cell, (*_WRITTEN_CELLS, PhasedLSTMCell))
)


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", TRACED)
def test_a_traced_step_is_one_operator(name):
    """Of the reference loop's values and gradients, at several lengths."""
    torch.manual_seed(0)
    rnn, counter = tauflow.build(name, 3, 6), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(rnn, backend=counter, fullgraph=True, dynamic=True)
    reference = copy.deepcopy(rnn)
    reference.backend = "reference"
    tolerance = 1e-4 if name == "neural-cde" else 1e-5  # whose gradients are in the thousands
    for steps in (13, 2, 9):
        expected = call(reference, reference, steps)
        assert_close(call(compiled, rnn, steps), expected, tolerance)
    assert set(operators(counter)[0]) == {"tauflow.traced_sequence"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["gnode", "gru-d", "ode-lstm"])
def test_a_traced_step_has_second_derivatives(name):
    torch.manual_seed(0)
    rnn, x = tauflow.build(name, 3, 5), torch.randn(2, 3, 3, requires_grad=True)
    derivatives = []
    for run in (rnn, torch.compile(rnn, backend="eager", fullgraph=True)):
        (slope,) = torch.autograd.grad(run(x)[0].square().sum(), x, create_graph=True)
        derivatives.append(
            torch.autograd.grad(slope.square().sum(), [*rnn.parameters()], allow_unused=True)
        )
    for derivative, other in zip(*derivatives, strict=True):
        torch.testing.assert_close(derivative, other)


def test_cells_of_other_options_are_compiled_again():
    x, outputs = torch.randn(2, 4, 3), []
    rnn = tauflow.GNODE(3, 5)
    for module in (rnn, rnn.replace(tau=3.0), copy.deepcopy(rnn)):
        compiled = torch.compile(module, backend="eager", fullgraph=True)
        outputs.append(compiled(x)[0])
        torch.testing.assert_close(outputs[-1], module(x)[0])
    assert not torch.allclose(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[0], outputs[2])


def test_a_cell_that_is_parametrized_is_compiled_again():
    torch.manual_seed(0)
    rnn, x, outputs = tauflow.GNODE(3, 5), torch.randn(2, 4, 3), []
    compiled = torch.compile(rnn, backend="eager", fullgraph=True)
    for change in (
        lambda: None,
        lambda: parametrize.register_parametrization(rnn.cell, "W_x", nn.Softplus()),
        lambda: parametrize.remove_parametrizations(rnn.cell, "W_x", leave_parametrized=False),
    ):
        change()
        outputs.append(compiled(x)[0])
        torch.testing.assert_close(outputs[-1], rnn(x)[0])
    assert not torch.allclose(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[0], outputs[2])


def test_threads_share_a_compiled_module():
    """From the first call on, which compiles in one thread while others wait or run."""
    torch.manual_seed(0)
    rnn = tauflow.GNODE(3, 5)
    compiled = torch.compile(rnn, backend="eager")
    inputs = torch.randn(4, 2, 4, 3)
    expected = [values_and_gradients(rnn, rnn, x) for x in inputs]
    start = threading.Barrier(len(inputs))

    def run(x):
        start.wait()
        results = []
        for _ in range(50):
            with torch.no_grad():
                compiled(x)
            results.append(values_and_gradients(compiled, rnn, x))
        return results

    with ThreadPoolExecutor(len(inputs)) as pool:
        for results, ours in zip(pool.map(run, inputs), expected, strict=True):
            for result in results:
                assert_close(result, ours)


@pytest.mark.parametrize(
    "backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.thorough)]
)
def test_a_backward_pass_may_outlive_the_compiled_module(backend):
    torch.manual_seed(0)
    rnn, x = tauflow.GNODE(3, 5), torch.randn(2, 4, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(rnn(x)[0].square().sum(), x)
    y = torch.compile(rnn, backend=backend, fullgraph=True)(x)[0]
    del rnn
    torch.compiler.reset()
    gc.collect()
    torch.testing.assert_close(torch.autograd.grad(y.square().sum(), x)[0], expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dynamic", [None, False])
def test_lengths_and_absolute_times_stay_in_the_graph(dynamic):
    torch.manual_seed(0)
    rnn, counter = MODULES["CfC"](), CompileCounterWithBackend("eager")
    compiled = torch.compile(rnn, backend=counter, fullgraph=True, dynamic=dynamic)
    for steps in (4, 6):
        x = torch.randn(3, steps, 3)
        options = {"t": torch.rand(3, steps).cumsum(1), "lengths": torch.tensor([steps, 2, 0])}
        with torch.no_grad():
            assert torch.equal(compiled(x, **options)[0], rnn(x, **options)[0])
    assert operators(counter)[0] == ["tauflow.traced_sequence"] * 2


FAMILIES = {
    "synapses/numba": ("LTCCell",),
    "saturated/numba": ("LRCCell",),
}
FORMS = [row for row in ROWS if row[0].backend == "numba" and row[0] not in RECORDED]


@pytest.mark.parametrize("family", FAMILIES)
def test_forms_survive_as_words(family):
    runs = engine.OPERATORS[family]
    for spec, options in FORMS:
        if spec.cell.__name__ not in FAMILIES[family]:
            continue
        call = example(spec, 2, 2, 4, **options)
        form = call.cell.static_config()
        (x, dt), tensors = call.cell.precompute(call.x, call.dt)
        tensors = tensors or call.cell.packed_parameters()
        again = runs.decode(runs.encode(form))
        result, expected = (
            run_reference_steps(runs, config, None, x, call.h, dt, *tensors)[0]
            for config in (again, form)
        )
        assert torch.equal(result, expected)


@pytest.mark.parametrize("family", ["scales/numba"])
def test_forms_that_are_truth_values_survive_as_words(family):
    runs = engine.OPERATORS[family]
    assert [runs.decode(runs.encode(form)) for form in (True, False)] == [True, False]


@pytest.mark.parametrize(
    "row", [FORMS[1], next(row for row in FORMS if row[0].cell is LRCCell)], ids=name_of
)
def test_operators_keep_what_they_promise(row, monkeypatch):
    spec, options = row
    seen = []

    def recorded(operator):
        def call(*arguments):
            seen.append((operator, arguments))
            return operator(*arguments)

        return call

    for name in ("sequence", "sequence_backward"):
        monkeypatch.setattr(engine, name, recorded(getattr(engine, name)))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    # one row: transposed, it lies in place; no mask: a masked step leaves random saved tensors
    example_call = example(spec, 1, 3, 4, **options)
    y, h = spec.function(example_call)
    (y.sum() + h.sum()).backward()
    (forward, sample), (backward, pulled) = seen
    sample = tree_map_only(
        torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), sample
    )
    torch.library.opcheck(forward, sample)
    torch.library.opcheck(backward, tree_map_only(torch.Tensor, torch.detach, pulled))


def test_layouts_are_found_by_their_entries():
    for sparsity in (0.8, 0.1):
        cell = tauflow.LTC(3, tauflow.RandomSparse(12, sparsity=sparsity)).cell
        for name in ("synapses_x", "synapses"):
            layout, other = get_layout(cell, name), get_buffer_layout(getattr(cell, name))
            for a, b in zip(
                layout.forward + layout.backward, other.forward + other.backward, strict=True
            ):
                assert (a == b).all()
            assert get_buffer_layout(getattr(cell, name)) is other


@pytest.fixture
def compiled_graphs():
    """Compile a function for the sake of its graphs, and run it beside the function itself."""

    def compile(run, *arguments, **options):
        counter = CompileCounterWithBackend("eager")
        compiled = torch.compile(run, backend=counter, fullgraph=True)
        torch.testing.assert_close(compiled(*arguments, **options), run(*arguments, **options))
        return operators(counter)[0]

    return compile


@pytest.mark.thorough
def test_what_kernels_do_not_follow_is_unrolled(compiled_graphs):
    torch.manual_seed(0)
    rnn, x = MODULES["CfC"](), torch.randn(2, 2, 3, 3)
    assert compiled_graphs(rnn, x[0]) == ["tauflow.sequence.default"]
    assert not compiled_graphs(torch.func.vmap(lambda x: rnn(x)[0]), x)
    with torch.autocast("cpu", torch.bfloat16):
        assert not compiled_graphs(rnn, x[0])
    assert not compiled_graphs(rnn.double(), x[0].double())


@pytest.mark.thorough
def test_a_backend_asked_for_says_why_it_is_not_compiled():
    rnn, x = tauflow.CfC(3, 5, backend="numba"), torch.randn(2, 2, 3)
    compiled = torch.compile(rnn, backend="eager")
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(Exception, match="autocast"):
        compiled(x)


def test_a_program_of_torch_export_runs_without_this_library():
    rnn, x = MODULES["CfC"](), torch.randn(2, 3, 3)
    for strict in (False, True):
        exported = torch.export.export(rnn, (x,), strict=strict)
        assert not any("tauflow" in str(node.target) for node in exported.graph.nodes)
        torch.testing.assert_close(exported.module()(x), rnn(x))


def test_a_compiled_graph_has_second_derivatives():
    torch.manual_seed(0)
    rnn, x = MODULES["CfC"](), torch.randn(2, 3, 3, requires_grad=True)
    derivatives = []
    for run in (rnn, torch.compile(rnn, backend="eager", fullgraph=True)):
        (slope,) = torch.autograd.grad(run(x)[0].square().sum(), x, create_graph=True)
        derivatives.append(torch.autograd.grad(slope.square().sum(), list(rnn.parameters())))
    for derivative, other in zip(*derivatives, strict=True):
        torch.testing.assert_close(derivative, other)


def test_a_parameter_replaced_before_the_compiled_way_back_is_refused():
    rnn, x = MODULES["CfC"](), torch.randn(2, 3, 3)
    y, _ = torch.compile(rnn, backend="aot_eager", fullgraph=True)(x)
    rnn.cell.heads.weight.data = torch.zeros(2, 2)
    with pytest.raises(ShapeError, match=r"heads\.weight"):
        y.sum().backward()
