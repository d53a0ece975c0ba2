"""Random weights of the gated flows, and the gains that put them at the edge of stability."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev

from tauflow.cells import MODELS, EulerGRUCell, EulerLSTMCell, GNODECell, LEMCell
from tauflow.cells.weight_schemes import critical_gain

D, N, H, H_Z = 150, 220, 330, 260


def normal(weight: Tensor, variance: float) -> None:
    values = weight.detach().flatten()
    assert values.var().item() == pytest.approx(variance, rel=6 * math.sqrt(2 / len(values)))
    assert abs(values.mean().item()) < 5 * math.sqrt(variance / len(values))
    within_one = (values.abs() < math.sqrt(variance)).float().mean().item()
    assert within_one == pytest.approx(0.6827, abs=3 / math.sqrt(len(values)))


def uniform(weight: Tensor, variance: float) -> None:
    values, bound = weight.detach().flatten(), math.sqrt(3 * variance)
    assert values.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert values.abs().max() <= bound
    assert values.var().item() == pytest.approx(variance, rel=6 / math.sqrt(len(values)))


SCHEMES = {
    "glorot_normal": (normal, lambda fan_in, fan_out: 2 / (fan_in + fan_out)),
    "glorot_uniform": (uniform, lambda fan_in, fan_out: 2 / (fan_in + fan_out)),
    "kaiming": (normal, lambda fan_in, fan_out: 2 / fan_in),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gnode_draws_every_layer_with_its_own_fans(scheme):
    check, variance = SCHEMES[scheme]
    sizes = {"layers": 3, "units": H, "gate_layers": 2, "gate_units": H_Z}
    cell = GNODECell(D, N, init=scheme, initial_state="affine", **sizes)
    of_F, of_G = slice(0, H), slice(H, None)
    weights = [cell.W_x[of_F], cell.W_x[of_G], cell.W_h[of_F], cell.W_h[of_G], cell.start.V]
    for weight in (*weights, *cell.W_F, *cell.W_G):
        check(weight, variance(weight.shape[1], weight.shape[0]))
    for bias in (cell.b, *cell.b_F, *cell.b_G, cell.start.a):
        assert bias.std().item() == pytest.approx(1e-3, rel=6 / math.sqrt(2 * len(bias)))


@pytest.mark.parametrize("cell_class", [EulerGRUCell, EulerLSTMCell, LEMCell])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_packed_blocks_are_drawn_one_by_one(cell_class, scheme):
    check, variance = SCHEMES[scheme]
    cell = cell_class(D, N, init=scheme)
    for weight in (*cell.W_x.split(N), *cell.W_h.split(N)):
        check(weight, variance(weight.shape[1], N))
    assert cell.b.std().item() == pytest.approx(1e-3, rel=0.15)


def test_lem_is_drawn_as_in_its_released_code():
    cell = LEMCell(D, N)
    for tensor in (cell.W_x, cell.W_h, cell.b):
        uniform(tensor, 1 / (3 * N))


@pytest.mark.parametrize(("layers", "gain"), [(1, 1.0), (2, 1.1892), (3, 1.2599)])
def test_kaiming_gain_is_that_of_equation_51(layers, gain):
    result = critical_gain([N, *[H] * (layers - 1), N], 0.5, "kaiming")
    assert result == pytest.approx(math.sqrt(2 ** (1 - 1 / layers)))
    assert result == pytest.approx(gain, abs=1e-4)


@pytest.mark.parametrize(("n", "h", "layers"), [(200, 1200, 2), (1200, 200, 3), (300, 300, 3)])
def test_glorot_gain_is_the_corrected_closed_form(n, h, layers):
    closed = 2 ** (1 - 3 / (2 * layers)) * ((n + h) / math.sqrt(n * h)) ** (1 / layers)
    gain = critical_gain([n, *[h] * (layers - 1), n], 0.5, "glorot")
    assert gain == pytest.approx(closed)
    if n == h:
        assert gain == pytest.approx(published_glorot_gain(n, h, layers))


def published_glorot_gain(n: int, h: int, layers: int) -> float:
    """Equation 52 of Kim et al. 2022."""
    return 2 ** (1 - 3 / (2 * layers)) * (1 + h / n) ** (1 / layers)


def jacobian(cell: GNODECell) -> Tensor:
    """Return dF/dh at a random state: without gate, one Euler step of one time constant is F."""
    x, h, dt = torch.randn(1, D), torch.randn(1, cell.hidden_size), torch.ones(1, 1)
    with torch.no_grad():
        return jacrev(lambda h: cell.step(x, h, dt)[0])(h)[:, 0]


def squared_radius(jacobian: Tensor) -> float:
    """Return tr(J^T J) / N, which Equation 33 equates with the squared spectral radius."""
    return (jacobian.square().sum() / len(jacobian)).item()


@pytest.mark.parametrize(("init", "units"), [("critical", 1000), ("critical-glorot", 1600)])
def test_the_jacobian_of_a_large_network_has_spectral_radius_one(init, units):
    cell = GNODECell(D, 1000, units=units, gate_layers=0, init=init)
    J = jacobian(cell)
    assert torch.linalg.eigvals(J).abs().max().item() == pytest.approx(1, abs=0.05)
    assert squared_radius(J) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("init", ["critical", "critical-glorot"])
@pytest.mark.parametrize(
    ("layers", "n", "h", "activation"),
    [(1, 600, None, None), (2, 300, 900, "relu"), (3, 600, 300, "relu"), (4, 400, 500, "relu")],
)
def test_every_depth_is_critical(init, layers, n, h, activation):
    options = {"layers": layers, "units": h, "activation": activation, "gate_layers": 0}
    radii = [squared_radius(jacobian(GNODECell(D, n, init=init, **options))) for _ in range(5)]
    assert sum(radii) / 5 == pytest.approx(1, abs=0.08)


@pytest.mark.parametrize("activation", ["tanh", "lecun_tanh"])
def test_squashing_networks_are_critical_at_the_fixed_point_zero(activation):
    cell = GNODECell(D, 600, layers=3, units=500, activation=activation, gate_layers=0,
                     init="critical")  # fmt: skip
    with torch.no_grad():
        for bias in (cell.b, *cell.b_F):
            bias.zero_()
        J = jacrev(lambda h: cell.step(torch.zeros(1, D), h, torch.ones(1, 1))[0])(
            torch.zeros(1, 600)
        )[:, 0]
    assert squared_radius(J) == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize(
    ("n", "h", "layers", "published"), [(200, 1200, 2, 6.0), (1200, 200, 3, 1 / 6)]
)
def test_the_published_glorot_formula_misses(n, h, layers, published):
    cell = GNODECell(D, n, layers=layers, units=h, gate_layers=0, init="critical-glorot")
    assert squared_radius(jacobian(cell)) == pytest.approx(1, abs=0.15)
    with torch.no_grad():
        for fan_in_and_out, weight in ((n + h, cell.W_h), *((sum(w.shape), w) for w in cell.W_F)):
            std = published_glorot_gain(n, h, layers) / math.sqrt(fan_in_and_out)
            nn.init.normal_(weight, std=std)
    assert squared_radius(jacobian(cell)) == pytest.approx(published, rel=0.15)


def test_critical_leaves_gate_and_inputs_at_variance_one_over_fan_in():
    cell = GNODECell(D, N, units=H, init="critical", initial_state="affine")
    gain = 2**0.5  # squared, of two layers
    normal(cell.W_h[:H], gain / N)
    normal(cell.W_F[0], gain / H)
    for weight in (cell.W_x[:H], cell.W_x[H:], cell.W_h[H:], cell.start.V):
        normal(weight, 1 / weight.shape[1])


def test_with_a_leak_the_paper_names_the_stable_and_the_unstable_convention():
    """Glorot's sqrt 2 lies below the edge, Kaiming's above it."""
    radii = {
        init: squared_radius(jacobian(MODELS["node"].build(D, 500, units=500, init=init)))
        for init in ("glorot_normal", "kaiming")
    }
    assert radii["glorot_normal"] == pytest.approx(0.5, abs=0.05)
    assert radii["kaiming"] == pytest.approx(2, abs=0.2)
