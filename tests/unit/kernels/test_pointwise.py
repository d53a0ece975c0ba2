"""What kernels compute between two matrix products, each adjoint against autograd by itself."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tauflow.cells.activations import identity, lecun_tanh
from tauflow.cells.cfc_heads import CfCConfig, CfCParameters, combine_heads
from tauflow.cells.gated import lstm_update
from tauflow.kernels.cfc.config import CfCWeights, pack_code, pack_weights

N = 5
PHIS = (torch.tanh, lecun_tanh, torch.sigmoid, identity)
FORMS = [
    *(CfCConfig(0, identity, "default", phi, -1, True) for phi in PHIS),
    CfCConfig(0, identity, "default", torch.tanh, 1, False),
    CfCConfig(0, identity, "no_gate", torch.tanh, -1, True),
    CfCConfig(0, identity, "no_gate", lecun_tanh, 1, False),
    CfCConfig(0, identity, "pure", identity, -1, True),
]


def words_of(form: CfCConfig) -> str:
    return f"{form.mode}-{form.phi.__name__}-{form.time_sign}-{form.time_bias}"


def heads_of(form: CfCConfig) -> int:
    return 1 if form.is_pure_mode else 4 if form.time_bias else 3


def example(form: CfCConfig, rows: int = 3) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return products of heads, gaps and the form's parameters; and what autograd makes of them."""
    torch.manual_seed(0)
    inputs = {"heads": torch.randn(rows, heads_of(form) * N), "dt": torch.rand(rows, 1)}
    inputs |= {"rate": torch.rand(N), "amplitude": torch.randn(N)} if form.is_pure_mode else {}
    exact = {name: value.double().requires_grad_() for name, value in inputs.items()}
    after = combine_heads(form, *exact.values())
    to = torch.autograd.grad((after * pull_of(rows)).sum(), list(exact.values()))
    return inputs, {"after": after.detach(), **dict(zip(inputs, to, strict=True))}


def pull_of(rows: int) -> Tensor:
    return torch.linspace(-1, 2, rows * N).view(rows, N)


def compare(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            actual[name].double().view_as(value), value, rtol=tolerance, atol=tolerance
        )


@pytest.mark.sampled(20)
@pytest.mark.parametrize("form", FORMS, ids=words_of)
def test_compiled_closed_forms(form):
    pytest.importorskip("numba")
    from pointwise_kernels import pull_back_rows, run_rows

    inputs, expected = example(form)
    rows, width = len(inputs["heads"]), (1 if form.is_pure_mode else 4) * N
    none = torch.empty(0)
    rate, amplitude = inputs.get("rate", none), inputs.get("amplitude", none)
    bias = torch.randn(heads_of(form) * N)  # which the products lack
    tensors = (none.view(0, 0), none, none.view(0, 0, 0), none.view(0, 0), none.view(0, 0))
    packed = pack_weights(CfCParameters(*tensors, bias, rate, amplitude))
    weights = CfCWeights(*(getattr(tensor, "value", tensor).numpy() for tensor in packed))
    values = torch.zeros(rows, width)
    values[:, : len(bias)] = inputs["heads"] - bias
    after, delta = torch.empty(rows, N), torch.empty(rows, width)
    to_rate_and_amplitude, to_dt, dt = (
        torch.zeros(2, len(rate)),
        torch.empty(rows),
        inputs["dt"].squeeze(1),
    )
    numbers = pack_code(form).value
    run_rows(numbers, values.numpy(), dt.numpy(), weights, after.numpy())
    pulls = pull_of(rows).numpy(), to_dt.numpy(), delta.numpy(), to_rate_and_amplitude.numpy()
    pull_back_rows(numbers, values.numpy(), dt.numpy(), weights, *pulls)
    gradients = {"after": after, "heads": delta[:, : len(bias)], "dt": to_dt}
    gradients |= (
        {"rate": to_rate_and_amplitude[0], "amplitude": to_rate_and_amplitude[1]}
        if form.is_pure_mode
        else {}
    )
    compare(gradients, expected, 3e-6)


def test_compiled_gates_of_a_memory():
    pytest.importorskip("numba")
    from pointwise_kernels import forget, remember

    torch.manual_seed(0)
    gates, bias, c = torch.randn(4 * N), torch.randn(4 * N), torch.randn(N)
    exact = [value.double().requires_grad_() for value in (gates, c)]
    fresh, u = lstm_update(exact[0] + bias.double(), exact[1])
    pull_u, pull_c = torch.linspace(-1, 1, 2 * N, dtype=torch.float64).view(2, N)
    expected = torch.autograd.grad((u * pull_u).sum() + (fresh * pull_c).sum(), exact)
    after, shown, delta = np.empty(N, "f"), np.empty(N, "f"), np.empty(4 * N, "f")
    values, carry = gates.numpy().copy(), pull_c.float().numpy()
    remember(values, bias.numpy(), c.numpy(), after, shown)
    forget(values, c.numpy(), after, pull_u.float().numpy(), carry, delta)
    actual = {"c": after, "u": shown, "gates": delta, "before": carry}
    wanted = {"c": fresh.detach(), "u": u.detach(), "gates": expected[0], "before": expected[1]}
    compare({name: torch.from_numpy(value) for name, value in actual.items()}, wanted, 3e-6)
