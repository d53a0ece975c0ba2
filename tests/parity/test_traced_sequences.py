"""Steps that were recorded once, of every cell, against the same steps taken by torch."""

from dataclasses import replace

import pytest
import torch
from kernel_variants import RECORDED
from sequences_of_cells import EVERY, assert_close, call_of, leaves, values_and_gradients
from torch.nn.utils.parametrize import register_parametrization

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.errors import BackendError, ShapeError
from tauflow.kernels import select_kernel
from tauflow.kernels.trace import trace_cache, traced_kernel
from tauflow.kernels.trace.capture import capture_step
from tauflow.kernels.trace.operator import run_traced
from tauflow.kernels.trace.program import TracingError
from tauflow.kernels.trace.traced_kernel import traced_unsupported_reason
from tauflow.sequence import reference_loop
from tauflow.zoo import EstimatingRITSCell

UNRECORDED = {"phased-lstm": "it computes in float64"}
ALL = [row for row in EVERY if row[0] not in UNRECORDED]


ROUNDED = {"cru": 5e-5}  # whose gradients by plain loops are 3e-5 from those of float64


@pytest.mark.parametrize(("name", "options"), ALL, ids=str)
@pytest.mark.parametrize(("rows", "masked"), [(3, False), (11, True)])
def test_it_is_the_step(name, options, rows, masked):
    """For a few rows by plain loops, for more by the library's products."""
    call = call_of(name, rows, 7, options, masked=masked)
    assert traced_unsupported_reason(call) is None
    expected = values_and_gradients(reference_loop, call)
    assert_close(values_and_gradients(run_traced, call), expected, ROUNDED.get(name, 1e-5))
    assert_close(
        values_and_gradients(run_traced, call), expected, ROUNDED.get(name, 1e-5)
    )  # without watching
    with torch.no_grad():
        assert_close(run_traced(call), expected[:2], ROUNDED.get(name, 1e-5))


@pytest.mark.parametrize(("name", "options"), ALL, ids=str)
@pytest.mark.sampled(5)
def test_what_takes_too_much_memory_is_computed_again(name, options, monkeypatch):
    monkeypatch.setattr(traced_kernel, "_MAX_SAVED_BYTES", -1)
    call = call_of(name, 3, 9, options, masked=True)
    expected = values_and_gradients(reference_loop, call)
    assert_close(values_and_gradients(run_traced, call), expected, ROUNDED.get(name, 1e-5))


@pytest.mark.parametrize(("name", "options"), ALL, ids=str)
@pytest.mark.sampled(3)
def test_sizes_of_one(name, options):
    """Where sums have one term, and steps from entry to entry mean nothing."""
    call = call_of(name, 1, 3, options, sizes=(1, 1))
    expected = values_and_gradients(reference_loop, call)
    assert_close(values_and_gradients(run_traced, call), expected, ROUNDED.get(name, 1e-5))


@pytest.mark.parametrize("name", UNRECORDED)
def test_what_cannot_be_traced_says_why(name):
    call = call_of(name, 2, 9)
    assert UNRECORDED[name] in traced_unsupported_reason(call)
    with pytest.raises(BackendError, match=UNRECORDED[name]):
        run_traced(call)
    assert select_kernel(call, "auto").function is not run_traced


def test_new_parameters_and_options_are_followed():
    call = call_of("gnode", 2, 9)
    before = run_traced(call)[0]
    with torch.no_grad():
        for parameter in call.cell.parameters():
            parameter.mul_(0.5)
    assert_close(run_traced(call), reference_loop(call))
    assert not torch.allclose(run_traced(call)[0], before)
    other = replace(call, cell=call.cell.replace(tau=3.0))
    assert_close(run_traced(other), reference_loop(other))
    assert not torch.allclose(run_traced(other)[0], run_traced(call)[0])


def test_the_sizes_that_are_remembered_are_those_used_last(monkeypatch):
    monkeypatch.setattr(trace_cache, "_MAX_TRACES", 8)
    monkeypatch.setattr(traced_kernel.INTERPRETER_TRACES, "traces", {})
    call = call_of("elman", 40, 8)
    for rows in (*range(1, 40), 36, 7):
        few = replace(call, x=call.x[:rows], h=call.h[:rows], dt=call.dt[:rows])
        assert_close(run_traced(few), reference_loop(few))
    sizes = [rows for _, rows, *_ in traced_kernel.INTERPRETER_TRACES.traces]
    assert len(sizes) == 8
    if torch.get_num_threads() == 1:  # else a batch has slices of two sizes
        assert sizes == [33, 34, 35, 37, 38, 39, 36, 7]


def test_an_objection_is_as_old_as_what_it_is_about():
    """The backward pass through a GELU has no instructions: what learns is left to torch."""
    call = call_of("gnode", 2, 9, {"activation": "gelu"})
    with torch.no_grad():
        assert select_kernel(call, "auto").function is run_traced
    assert select_kernel(call, "auto") is None
    still = replace(call, x=call.x.detach(), h=call.h.detach(), dt=call.dt.detach())
    call.cell.requires_grad_(False)
    assert select_kernel(still, "auto").function is run_traced
    call.cell.requires_grad_(True)
    assert select_kernel(still, "auto") is None


@pytest.mark.parametrize("frozen", ["x", "parameters", "all"])
def test_only_what_learns_gets_gradients(frozen):
    call = call_of("ct-gru", 3, 8)
    if frozen != "parameters":
        call = replace(call, x=call.x.detach(), dt=call.dt.detach())
    if frozen != "x":
        call.cell.requires_grad_(False)
    wanted = [leaf for leaf in leaves(call) if leaf.requires_grad]
    results = [run(call)[0].square().sum() for run in (run_traced, reference_loop)]
    gradients, expected = (torch.autograd.grad(result, wanted) for result in results)
    assert_close(gradients, expected)


@pytest.mark.parametrize("rows", [1, 2, 5, 16, 33])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads(rows, threads):
    call = call_of("gru-ode", rows, 5)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_close(
            values_and_gradients(run_traced, call), values_and_gradients(reference_loop, call)
        )
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("there", "back"), [(1, 3), (3, 1)])
def test_the_way_back_may_have_other_threads(there, back):
    call = call_of("gru-ode", 7, 5)
    expected = torch.autograd.grad(reference_loop(call)[0].sum(), leaves(call))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(there)
        total = run_traced(call)[0].sum()
        torch.set_num_threads(back)
        assert_close(torch.autograd.grad(total, leaves(call)), expected)
    finally:
        torch.set_num_threads(before)


def test_steps_that_look_at_numbers_or_draw_some_are_not_traced():
    module = torch.nn.Linear(2, 2)
    h = torch.ones(1, 2)
    with pytest.raises(TracingError, match="looks at numbers"):
        capture_step(lambda h: module(h) if h.sum() > 0 else h, module, (), h)
    with pytest.raises(TracingError, match="draws numbers"):
        capture_step(lambda h: module(h) + torch.randn_like(h), module, (), h)


DROPPED = [
    ("cfc", {"backbone_dropout": 0.3}),
    ("cfc", {"backbone_dropout": 0.5, "backbone_layers": 2, "dropout_first": False}),
    ("cfc-mmrnn", {"backbone_dropout": 0.5}),
]


@pytest.mark.parametrize(("name", "options"), DROPPED, ids=str)
@pytest.mark.parametrize(("rows", "steps", "masked"), [(3, 5, False), (11, 12, True)])
def test_units_dropped_are_those_of_the_plain_loop(name, options, rows, steps, masked):
    call, results = call_of(name, rows, steps, options, masked=masked), []
    for run in (reference_loop, run_traced, run_traced):
        torch.manual_seed(5)
        results.append([*values_and_gradients(run, call), torch.rand(3)])
    assert_close(results[1], results[0])
    assert_close(results[2], results[0])


def test_a_look_for_a_trace_draws_nothing():
    call = call_of("cfc", 3, 5, {"backbone_dropout": 0.3})
    torch.manual_seed(5)
    assert traced_unsupported_reason(call) is None
    first = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), first)


def test_a_compiler_is_left_to_draw_itself():
    call = call_of("cfc", 3, 5, {"backbone_dropout": 0.3})
    reason = traced_kernel._find_operator_unsupported_reason(call.cell._number)
    assert "draws numbers" in reason
    call.cell.eval()
    assert traced_kernel._find_operator_unsupported_reason(call.cell._number) is None


def test_a_parameter_that_meets_the_state_twice_gets_both_gradients():
    """Once as it is, and once in another form: neither path may count twice."""

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([0.3, -0.7]))

        def forward(self, h):
            return torch.tanh(h * self.w) * torch.exp(self.w) + self.w

    module, h = Twice(), torch.tensor([[0.2, 0.4], [1.0, -1.0]])
    graph, values_of_trace, prelude, _ = capture_step(module, module, (), h)
    (expected,) = torch.autograd.grad(module(h).sum(), module.w)
    (gradient,) = torch.autograd.grad(graph.run([h], values_of_trace).sum(), module.w)
    torch.testing.assert_close(gradient, expected)
    (gradient,) = torch.autograd.grad(graph.run([h], prelude.run(module, ())).sum(), module.w)
    torch.testing.assert_close(gradient, expected)


def test_one_tensor_under_two_names_may_become_two():
    call = call_of("gru", 3, 9, sizes=(6, 6))
    W_h = call.cell.W_h
    call.cell.W_h = call.cell.W_x
    run_traced(call)
    call.cell.W_h = W_h
    expected = values_and_gradients(reference_loop, call)
    assert_close(values_and_gradients(run_traced, call), expected)


class Scaled(torch.nn.Module):
    """Scales a tensor by a number that a trace does not see."""

    _factor = 1.0

    def forward(self, weight):
        return self._factor * weight


def test_what_computes_a_parametrized_tensor_may_depend_on_anything():
    call, scaled = call_of("cfc", 3, 9), Scaled()
    register_parametrization(call.cell.heads, "weight", scaled)
    for scaled._factor in (1.0, 0.1):
        assert_close(run_traced(call), reference_loop(call))


def test_hooks_of_parameters_are_called_once_a_backward_pass():
    call, seen = call_of("gnode", 3, 9), []
    call.cell.W_h.register_hook(seen.append)
    run_traced(call)[0].sum().backward()
    assert len(seen) == 1


class Annealed:
    slope = 1.0

    def phi(self, z):
        return torch.tanh(self.slope * z)


class AnnealedModule(torch.nn.Module):
    _slope = 1.0

    def forward(self, z):
        return torch.tanh(self._slope * z)


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("name", ["gnode", "cfc"])
def test_a_number_that_a_function_of_ones_own_reads_may_change(name, learns):
    option = {"gnode": "activation", "cfc": "backbone_activation"}[name]
    holder, module, slope = Annealed(), AnnealedModule(), 1.0
    for phi in (
        holder.phi,
        lambda z: torch.tanh(holder.slope * z),
        module,
        lambda z: torch.tanh(slope * z),  # noqa: B023
    ):
        call = call_of(name, 3, 9, {option: phi})
        rnn = tauflow.RNN(call.cell)
        stream = rnn.stream(3)
        for slope in (1.0, 4.0):  # a function reads it
            holder.slope = module._slope = slope
            with torch.set_grad_enabled(learns):
                expected = reference_loop(call)
                assert_close(rnn(call.x, call.h, dt=call.dt), expected)
            stream.reset(call.h.detach())
            steps = zip(call.x.detach().unbind(1), call.dt.detach().unbind(1), strict=True)
            outputs = [stream.step(x, dt.squeeze(1)) for x, dt in steps]
            assert_close([torch.stack(outputs, 1)], [expected[0].detach()])


def test_every_cell_has_a_traced_step_but_those_with_faster_loops():
    cells = {entry.cell for entry in MODELS.values()} | {EstimatingRITSCell}
    faster = {tauflow.cells.LTCCell, tauflow.cells.LRCCell}
    assert {spec.cell for spec in RECORDED} == cells - faster


@pytest.mark.parametrize(
    ("name", "rows", "learning", "inference"),
    [
        ("gnode", 4, True, True),
        ("gru", 4, True, True),
        ("lstm", 4, False, False),
        ("cfc", 4, True, True),
        ("ct-rnn", 4, True, True),
    ],
)
def test_it_serves_where_it_was_measured_fastest(name, rows, learning, inference):
    for learns, taken in ((True, learning), (False, inference)):
        with torch.set_grad_enabled(learns):
            row = select_kernel(call_of(name, rows, 20), "auto")
        assert (row.function is run_traced) is taken


@pytest.mark.parametrize(
    ("name", "traced"),
    [
        *(("gnode", True), ("lstm", True), ("ct-gru", True), ("lru", True), ("cfc", True)),
        *(("cru", False), ("ltc", False)),
    ],
)
def test_cells_are_traced_from_the_first_step_unless_that_is_slower(name, traced):
    row = select_kernel(call_of(name, 4, 1), "auto")
    assert (row is not None and row.function is run_traced) is traced


def test_a_state_of_other_rows_is_told_before_anything_is_traced():
    call = call_of("gnode", 4, 20)
    with pytest.raises(ShapeError, match="h has shape"):
        select_kernel(replace(call, h=call.h[:3]), "auto")
