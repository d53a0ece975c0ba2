"""What the sequence kernels do beside computing: memory, threads, masks, odd numbers."""

import threading
from dataclasses import replace

import pytest
import torch
from kernel_variants import ROWS, example, name_of, takes_masks
from torch import Tensor
from torch.autograd import forward_ad

import tauflow
from tauflow.cells import MODELS
from tauflow.kernels import KernelCall
from tauflow.sequence import reference_loop

OWN = [row for row in ROWS if takes_masks(row[0])]
PLAIN = [row for at, row in enumerate(OWN) if row[0] not in [spec for spec, _ in OWN[:at]]]
"""The first variant of each kernel."""


@pytest.fixture(autouse=True)
def _restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def leaves(call: KernelCall) -> list[Tensor]:
    return [call.x, call.h, call.dt, *call.cell.parameters()]


def gradients(call: KernelCall, result: Tensor, **options: bool) -> list[Tensor]:
    pull = torch.linspace(-1, 1, result.numel()).view_as(result)
    own_gradients = torch.autograd.grad(
        (result * pull).sum(), leaves(call), allow_unused=True, **options
    )
    return [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(leaves(call), own_gradients, strict=True)
    ]


def assert_close(actual: list[Tensor], expected: list[Tensor]) -> None:
    for value, other in zip(actual, expected, strict=True):
        unit = max(1.0, other.abs().max().item())
        torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-5 * unit)


@pytest.mark.parametrize("row", OWN, ids=name_of)
@pytest.mark.parametrize("part", [0, 1], ids=["outputs", "last"])
def test_a_loss_may_use_one_result_only(row, part):
    call = example(row[0], 3, 5, 6, **row[1])
    expected = gradients(call, reference_loop(call)[part])
    assert_close(gradients(call, row[0].run(call)[part]), expected)


@pytest.mark.parametrize("row", PLAIN, ids=name_of)
@pytest.mark.parametrize("frozen", ["parameters", "inputs"])
def test_leaves_without_gradients_are_left_out(row, frozen):
    call = example(row[0], 3, 5, 4, **row[1])
    still = call.cell.parameters() if frozen == "parameters" else (call.x, call.h, call.dt)
    for tensor in still:
        tensor.requires_grad_(False)
    wanted = [leaf for leaf in leaves(call) if leaf.requires_grad]
    grads = [
        torch.autograd.grad(run(call)[0].square().sum(), wanted, materialize_grads=True)
        for run in (row[0].run, reference_loop)
    ]
    assert_close(*grads)


@pytest.mark.parametrize("row", OWN, ids=name_of)
def test_a_kept_graph_gives_the_same_gradients_again(row):
    call = example(row[0], 3, 5, 6, masked=True, **row[1])
    y, _ = row[0].run(call)
    first = gradients(call, y, retain_graph=True)
    second = gradients(call, y, retain_graph=True)
    last = gradients(call, y)
    for value, two, three in zip(first, second, last, strict=True):
        torch.testing.assert_close(value, two, rtol=0, atol=0)
        torch.testing.assert_close(value, three, rtol=0, atol=0)


@pytest.mark.parametrize("row", PLAIN, ids=name_of)
def test_two_runs_do_not_share_memory(row):
    call = example(row[0], 3, 5, 6, **row[1])
    other = KernelCall(call.cell, 2 * call.x, call.h, call.dt)
    alone = gradients(call, row[0].run(call)[0])
    y, _ = row[0].run(call)
    copy_of_y = y.clone()
    row[0].run(other)
    torch.testing.assert_close(y, copy_of_y, rtol=0, atol=0)
    assert_close(gradients(call, y), alone)


@pytest.mark.parametrize("row", OWN, ids=name_of)
def test_without_gradients_the_values_are_the_same(row):
    call = example(row[0], 3, 5, 6, masked=True, **row[1])
    with torch.no_grad():
        silent = row[0].run(call)
    assert_close(list(silent), [value.detach() for value in row[0].run(call)])
    assert not silent[0].requires_grad


@pytest.mark.parametrize("row", OWN, ids=name_of)
@pytest.mark.parametrize("size", [(3, 5, 6), (1, 5, 6), (3, 1, 6), (1, 1, 6)], ids=str)
def test_a_result_is_the_callers_own(row, size):
    """A single sequence or step too, where another order of the axes costs no copy."""
    call = example(row[0], *size, **row[1])
    expected = gradients(call, 2 * row[0].run(call)[0])
    y, last = row[0].run(call)
    last.mul_(3)  # as torch.nn.LSTM allows
    assert_close(gradients(call, y.mul_(2)), expected)


@pytest.mark.parametrize("row", PLAIN, ids=name_of)
def test_outputs_lie_in_a_row(row):
    assert row[0].run(example(row[0], 3, 5, 6, **row[1]))[0].is_contiguous()


@pytest.mark.parametrize("row", PLAIN, ids=name_of)
def test_inputs_may_lie_in_memory_as_they_like(row):
    call = example(row[0], 4, 5, 6, **row[1])
    wide = torch.stack([call.x, call.x + 1], dim=-1)
    strange = KernelCall(
        call.cell,
        wide[..., 0].transpose(0, 1).contiguous().transpose(0, 1),
        call.h[:1].expand(4, -1),
        torch.tensor(0.7).expand(4, 5).unsqueeze(-1),
    )
    plain = KernelCall(call.cell, call.x, strange.h.contiguous(), torch.full((4, 5, 1), 0.7))
    assert_close(list(row[0].run(strange)), list(reference_loop(plain)))
    y, _ = row[0].run(replace(strange, h=plain.h.mT.contiguous().mT))
    parameters = list(call.cell.parameters())
    actual = torch.autograd.grad(y.sum(), parameters)  # an expanded gradient
    expected = torch.autograd.grad(reference_loop(plain)[0].sum(), parameters)
    assert_close(list(actual), list(expected))


@pytest.mark.parametrize("row", ROWS, ids=name_of)
@pytest.mark.parametrize("masked", [False, True])
def test_incoming_gradients_may_lie_in_memory_as_they_like(row, masked):
    """A loss may read a result through a transpose; its gradient then comes transposed too."""
    if masked and not takes_masks(row[0]):
        pytest.skip(reason="this kernel leaves masked calls to the reference")
    call = example(row[0], 4, 5, 6, masked=masked, **row[1])
    grads = []
    for run in (row[0].run, reference_loop):
        results = run(call)
        pulls = [
            torch.linspace(-1, 1, value.numel()).view_as(value.mT.contiguous()).mT
            for value in results
        ]
        assert not any(pull.is_contiguous() for pull in pulls)
        copies = [pull.clone() for pull in pulls]
        grads.append(torch.autograd.grad(results, leaves(call), pulls, allow_unused=True))
        assert_close(pulls, copies)
    assert_close(*([value for value in values if value is not None] for values in grads))


@pytest.mark.parametrize("row", OWN, ids=name_of)
def test_masked_steps_keep_the_state_and_have_no_gradient(row):
    call = example(row[0], 4, 6, 5, masked=True, **row[1])
    y, _ = row[0].run(call)
    to_x, _, to_dt, *_ = gradients(call, y)
    assert call.mask is not None
    assert not to_x[~call.mask].any()
    assert not to_dt[~call.mask].any()
    assert to_x[call.mask].any()
    start = call.cell.readout(call.h)
    before = torch.cat([start.unsqueeze(1), y[:, :-1]], dim=1)
    torch.testing.assert_close(y[~call.mask], before[~call.mask], rtol=0, atol=0)


@pytest.mark.parametrize("row", OWN, ids=name_of)
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_odd_numbers_spread_as_in_the_reference(row, odd):
    call = example(row[0], 3, 5, 6, **row[1])
    x = call.x.detach().clone()
    x[1, 2, 0] = odd
    call = KernelCall(call.cell, x, call.h, call.dt)
    for actual, expected in zip(row[0].run(call), reference_loop(call), strict=True):
        torch.testing.assert_close(actual.isnan(), expected.isnan())
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("row", PLAIN, ids=name_of)
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_the_number_of_threads_changes_nothing(row, batch):
    call = example(row[0], batch, 5, 6, masked=True, **row[1])
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        y, last = row[0].run(call)
        results.append([y.detach(), last.detach(), *gradients(call, y)])
    assert_close(results[1], results[0])
    assert_close(results[2], results[0])


@pytest.mark.parametrize("row", PLAIN, ids=name_of)
def test_python_threads_may_run_at_once(row):
    calls = [example(row[0], 3, steps, 6, **row[1]) for steps in (4, 5, 6, 7)]
    expected = [gradients(call, row[0].run(call)[0]) for call in calls]
    gradients_of_calls: dict[int, list[list[Tensor]]] = {at: [] for at in range(len(calls))}

    def work(at: int) -> None:
        for _ in range(5):
            gradients_of_calls[at].append(gradients(calls[at], row[0].run(calls[at])[0]))

    threads = [threading.Thread(target=work, args=(at,)) for at in gradients_of_calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at, results in gradients_of_calls.items():
        assert len(results) == 5
        for result in results:
            assert_close(result, expected[at])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}], ids=str)
def test_sequence_modules_take_the_kernels_by_themselves(name, options):
    rnn = tauflow.build(name, 3, 4, **options)
    reference = tauflow.build(name, 3, 4, backend="reference", **options)
    reference.load_state_dict(rnn.state_dict())
    x, dt = torch.randn(3, 6, 3), torch.rand(3, 6)
    results = []
    for module in (rnn, reference):
        y, h = module(x, dt=dt, lengths=[6, 2, 4])
        (y.square().sum() + h.sum()).backward()
        results.append([y, h, *(p.grad for p in module.parameters() if p.grad is not None)])
    assert_close(*results)


@pytest.mark.parametrize(
    "name", ["lstm", "gru", "elman", "cfc", "ltc", "lrc", "ct-rnn", "ode-lstm"]
)
@pytest.mark.filterwarnings("ignore:.*jit.script.*:DeprecationWarning")  # torch's own, from within
def test_sequence_modules_take_forward_mode_gradients(name):
    """As the gradients say that go backwards through the reference."""
    rnn, x, v = tauflow.build(name, 3, 4), torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    with forward_ad.dual_level():
        moved = forward_ad.unpack_dual(rnn(forward_ad.make_dual(x, v))[0]).tangent
    rnn.backend = "reference"
    y, _ = rnn(x.requires_grad_())
    pull = torch.linspace(-1, 1, y.numel()).view_as(y)
    (grad,) = torch.autograd.grad(y, x, pull)
    torch.testing.assert_close((moved * pull).sum(), (grad * v).sum(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize(
    "name",
    ["cfc", "wired-cfc", "cfc-mmrnn", "ltc", "lrc", "ltc-neuronal", "ct-rnn", "ode-lstm"],
)
def test_a_mask_that_is_filled_anew_changes_no_gradient(name, backend):
    torch.manual_seed(0)
    rnn = tauflow.build(name, 3, 6, backend=backend)
    x, mask = torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)
    mask[0, 2] = False
    parameters = list(rnn.parameters())
    want = torch.autograd.grad(rnn(x, mask=mask)[0].square().sum(), parameters, allow_unused=True)
    loss = rnn(x, mask=mask)[0].square().sum()
    mask.fill_(False)
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    for gradient, other in zip(grads, want, strict=True):
        assert (gradient is None) == (other is None)
        assert gradient is None or torch.equal(gradient, other)


@pytest.mark.parametrize("activation", ["lecun_tanh", "tanh", "sigmoid"])
@pytest.mark.parametrize("size", [1e5, 1e9])
def test_a_saturated_unit_has_no_slope(activation, size):
    """Of features as large as seconds since 1970 any rest of a slope becomes a gradient."""
    grads = []
    for backend in ("numba", "reference"):
        torch.manual_seed(0)
        rnn = tauflow.CfC(
            3,
            8,
            backbone_units=16,
            backbone_activation=activation,
            activation=activation,
            backend=backend,
        )
        x = torch.randn(4, 6, 3)
        x[..., 2] = size
        rnn(x)[0].square().sum().backward()
        grads.append([p.grad for p in rnn.parameters()])
    for gradient, other in zip(*grads, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-3, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("first", ["their own", "plain"])
@pytest.mark.parametrize("name", ["phased-lstm", "lrc", "ct-gru"])
def test_weights_may_be_plain_tensors(name, first):
    torch.manual_seed(0)
    rnn, x = tauflow.build(name, 3, 6), torch.randn(2, 12, 3)
    if first == "their own":
        rnn(x)
    weights = {k: (0.9 * v.detach()).requires_grad_() for k, v in rnn.named_parameters()}
    results = []
    for backend in ("numba", "reference"):
        rnn.backend = backend
        y, _ = torch.func.functional_call(rnn, weights, (x,))
        results.append([y, *torch.autograd.grad(y.square().sum(), [*weights.values()])])
    for value, plain in zip(*results, strict=True):
        torch.testing.assert_close(value, plain, rtol=1e-4, atol=1e-5)
    rnn.backend = "numba"
    y, expected = rnn(x)[0], reference_loop(KernelCall(rnn.cell, x, *state_and_gaps(rnn, x)))[0]
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)  # and its own again


def state_and_gaps(rnn, x):
    return rnn.initial_state(len(x)), torch.ones_like(x[..., :1])


OF_EVERY_KIND = ["lstm", "gru-d", "ltc", "lrc", "cfc", "ct-rnn", "phased-lstm", "ct-gru", "gnode"]
"""Models of every kind of loop."""


@pytest.mark.parametrize("name", OF_EVERY_KIND)
def test_transforms_take_the_plain_steps(name):
    """In single precision, over enough steps for every kernel to be worth it."""
    torch.manual_seed(0)
    rnn, x = tauflow.build(name, 3, 4), torch.randn(2, 9, 3)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(rnn(leaf)[0].sum(), leaf)
    gradient = torch.func.grad(lambda x: rnn(x)[0].sum())(x)
    torch.testing.assert_close(
        gradient, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max())
    )
