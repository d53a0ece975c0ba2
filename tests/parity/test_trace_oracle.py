"""Traces against graphs of ``make_fx``, run eagerly: every cell, and every rule on samples."""

import pytest
import torch
from sequences_of_cells import EVERY, assert_close, call_of, values_and_gradients
from torch import nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from tauflow.cells import AbstractCell
from tauflow.kernels import KernelCall
from tauflow.kernels.trace.operator import run_traced
from tauflow.kernels.trace.ops import MULTI_OUTPUT_RULES, RULES
from tauflow.kernels.trace.pointwise_ops import POINTWISE_RULES
from tauflow.kernels.trace.traced_kernel import (
    INTERPRETER_TRACES,
    traced_unsupported_reason,
)
from tauflow.sequence import reference_loop

CELLS = [row for row in EVERY if row[0] != "phased-lstm"]  # which computes in float64
S = 4  # neurons, and sequences, so that a weight may meet them entry by entry
WEIGHT = torch.linspace(-2, 2, S * S).view(S, S)
ROW = torch.linspace(-1, 1, S)
SAMPLES = {
    "sums": lambda h, w, dt: (
        torch.add(h, dt, alpha=2) - torch.sub(1, h * w, alpha=3) + torch.rsub(h, 5, alpha=2)
    ),
    "products": lambda h, w, dt: h * dt * w / (dt + 3) + torch.reciprocal(h.abs() + w.abs() + 1),
    "extremes": lambda h, w, dt: (
        torch.maximum(h, w) + torch.minimum(h, dt) + h.clamp(-1, 0.5) + (h + w).clamp(max=0.3)
    ),
    "comparisons": lambda h, w, dt: (
        h * (h < w) + w * (h <= ROW) + dt * (h > dt) + h * w * (h >= 0) + w * (h != w)
    ),
    "logic": lambda h, w, dt: torch.where((h < w) | (h > 1) & ~(dt > h), h * w, -h.abs()),
    "equal": lambda h, w, dt: torch.where(h.round() == 0, h * w, w),
    "truths": lambda h, w, dt: (
        h * torch.logical_and(h.round(), dt - 0.5)
        + w * torch.logical_or(h.floor(), -w.abs())
        + w * torch.logical_not((w + h).round())
    ),
    "masks": lambda h, w, dt: h.masked_fill(w < h, 0.5) * w,
    "mixes": lambda h, w, dt: torch.lerp(h, w, dt / 3) + torch.addcmul(h, w, h, value=0.5),
    "powers": lambda h, w, dt: (
        h**2 + (h.abs() + 1).sqrt() + (h * w / 3).exp() + h.expm1() + ((h * w).abs() + 1).log()
    ),
    "higher powers": lambda h, w, dt: (
        h**3 + (h.abs() + 1) ** -3 + torch.rsqrt(h * h + w * w + 1) - (w / 2) ** 8
    ),
    "curves": lambda h, w, dt: h.tanh() + (w * h).sigmoid() + F.silu(h + w) + F.softplus(3 * h),
    "corners": lambda h, w, dt: (
        (h * w).relu() + F.hardtanh(h) + w * h.floor() + h * (3 * w).round() + w * h.sign()
    ),
    "bends": lambda h, w, dt: F.leaky_relu(h * w, 0.2) + F.elu(h, 0.5) + F.selu(w + h),
    "waves": lambda h, w, dt: torch.sin(3 * h * w) + torch.cos(h * dt),
    "norms": lambda h, w, dt: F.layer_norm(h * w, (S,), w[0], ROW.to(h)) * dt,
    "diagonals": lambda h, w, dt: (
        h @ torch.diag_embed(w[0] * h.mean(0)) + (h[:, : S // 2] * w[0, : S // 2]).repeat(1, 2)
    ),
    "matrices": lambda h, w, dt: (
        h @ w + F.linear(h, WEIGHT * w, ROW.to(h)) + (h @ w[0]).unsqueeze(1)
    ),
    "einsum": lambda h, w, dt: torch.einsum("bi,ij->bj", h, w),
    "axes": lambda h, w, dt: (
        (h * w[0]).sum(1, keepdim=True) * h + h.softmax(1) + h.mean(1)[:, None]
    ),
    "cubes": lambda h, w, dt: (w * torch.sigmoid(h.unsqueeze(-1) - w)).sum(-2),
    "parts": lambda h, w, dt: (
        torch.cat([h[:, 2:], w[:1, 1:3].expand(len(h), 2)], dim=-1) * h[:, :1]
    ),
    "piles": lambda h, w, dt: torch.stack([h, w[0] * h], dim=2).sum(1) @ h.new_ones(2, S),
    "frames": lambda h, w, dt: F.pad(h[:, 1:-1], (1, 1)) + F.pad(w[:1, :2], (0, 2), value=3.0) * h,
    "shapes": lambda h, w, dt: (
        h.view(-1, 2, 2).transpose(1, 2).reshape(-1, S) * h.repeat(1, 1) + h.clone()
    ),
    "any": lambda h, w, dt: h * w[0] * (h > 0.7).any(dim=1, keepdim=True),
    "casts": lambda h, w, dt: w * (h > 0).float() + h[:, 1].unsqueeze(1) * w,
}


@pytest.mark.parametrize(("name", "options"), CELLS, ids=str)
@pytest.mark.sampled(20)
def test_a_trace_is_the_graph_of_make_fx(name, options):
    call = call_of(name, 3, 5, options)
    assert traced_unsupported_reason(call) is None
    named = dict(call.cell.named_parameters())

    def step(x, h, dt, *parameters):
        values = dict(zip(named, parameters, strict=True))
        return functional_call(call.cell, values, (x, h, dt))

    graph = make_fx(step)(
        *(tensor.detach() for tensor in (call.x[:, 0], call.h, call.dt[:, 0], *named.values()))
    )

    def run(call):
        h, states = call.h, []
        for x, dt in zip(call.x.unbind(1), call.dt.unbind(1), strict=True):
            h = graph(x, h, dt, *named.values())
            states.append(h)
        return call.cell.readout(torch.stack(states, 1)), h

    assert_close(values_and_gradients(run_traced, call), values_and_gradients(run, call))


@pytest.fixture
def one_thread():
    """Several take rows of a batch each, and samples mix rows."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Sampled(AbstractCell):
    """One operation on the state, a weight and the gap."""

    compiled = True

    def __init__(self, operation):
        super().__init__(1, S)
        self.operation = operation
        self.w = nn.Parameter(torch.randn(S, S))

    def step(self, x, h, dt):
        return self.operation(h, self.w, dt)


def sample(operation, seed):
    """Return a call of one step of an operation."""
    torch.manual_seed(seed)
    x, dt = torch.randn(S, 1, 1), torch.rand(S, 1, 1).add(0.1).requires_grad_()
    cell = Sampled(operation)
    return KernelCall(cell, x.requires_grad_(), torch.randn(S, S).requires_grad_(), dt)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.sampled(1)
def test_a_rule_is_the_operation_in_double_precision(name):
    for seed in range(5):
        call = sample(SAMPLES[name], seed)
        assert traced_unsupported_reason(call) is None
        results = values_and_gradients(run_traced, call)
        with torch.no_grad():
            assert_close(run_traced(call), results[:2])
        call.cell.double()
        exact = KernelCall(
            call.cell,
            *(tensor.detach().double().requires_grad_() for tensor in (call.x, call.h, call.dt)),
        )
        expected = values_and_gradients(reference_loop, exact)
        assert_close(results, [value.float() for value in expected])


@pytest.mark.usefixtures("one_thread")
def test_the_rule_of_gelu_has_values_only():
    call = sample(lambda h, w, dt: F.gelu(h * w), 0)
    assert "gelu_backward" in traced_unsupported_reason(call)
    with torch.no_grad():
        assert_close(run_traced(call), reference_loop(call))


@pytest.mark.usefixtures("one_thread")
def test_every_rule_is_among_the_samples(monkeypatch):
    used = set()

    def noted(packet, rule):
        def call(*arguments, **named):
            used.add(packet)
            return rule(*arguments, **named)

        return call

    tables = POINTWISE_RULES, RULES, MULTI_OUTPUT_RULES
    for table in tables:
        for packet, rule in table.items():
            monkeypatch.setitem(table, packet, noted(packet, rule))
    for memory in ("traces", "_unsupported_reasons"):
        monkeypatch.setattr(INTERPRETER_TRACES, memory, {})
    for operation in SAMPLES.values():
        values_and_gradients(run_traced, sample(operation, 0))
    used.add(torch.ops.aten.gelu)  # see above
    assert {str(packet) for table in tables for packet in table} - set(map(str, used)) == set()
