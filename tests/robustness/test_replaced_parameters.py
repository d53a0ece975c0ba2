"""Parameters and buffers replaced by others on their way into loops that check no bounds.

Whatever the way in, a tensor of another shape is refused by name before a loop reads it, forwards,
backwards and in a stream; one of the same shape in another layout works, and one of another dtype
gives what the cell's own step gives.
"""

import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from kernel_variants import ROWS, example, name_of, takes_masks
from torch import Tensor, nn

import tauflow
from tauflow.errors import ArgumentError, BackendError, ShapeError, TauflowError
from tauflow.kernels import KernelCall
from tauflow.sequence import RNN, reference_loop

SIZE = 3, 4, 5

SHAPES = {
    "less": lambda p: p[..., :-1],
    "more": lambda p: torch.cat([p, p[..., :2]], -1),
    "fewer rows": lambda p: p[:-1],
    "more rows": lambda p: torch.cat([p, p]),
    "one": lambda p: p.flatten()[:1],
    "none": lambda p: p.flatten()[:0],
    "scalar": lambda p: p.flatten()[0],
    "flat": lambda p: p.flatten(),
    "transposed": lambda p: p.mT if p.ndim > 1 else p[:, None],
    "a row": lambda p: p[None],
    "expanded": lambda p: p.flatten()[:1].expand(7 * p.numel()),
}
LAYOUTS = {
    "columns first": lambda p: p.t().contiguous().t(),
    "every second": lambda p: p.repeat_interleave(2, -1)[..., ::2],
    "inside another": lambda p: torch.stack([p, p - 1], -1)[..., 0],
    "backwards": lambda p: p.flip(0).contiguous().flip(0),
}
DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int64)


def assign(part: nn.Module, name: str, value: Tensor) -> None:
    place = part._parameters if name in part._parameters else part._buffers
    if place is part._buffers:
        setattr(part, name, value)
    else:
        setattr(part, name, nn.Parameter(value, requires_grad=value.is_floating_point()))


def through_data(part: nn.Module, name: str, value: Tensor) -> None:
    getattr(part, name).data = value


def through_set(part: nn.Module, name: str, value: Tensor) -> None:
    with torch.no_grad():
        getattr(part, name).set_(value)


WAYS = (assign, through_data, through_set)


def tensors_of(cell: nn.Module) -> list[tuple[nn.Module, str, str]]:
    """Return each parameter and buffer: its part, its name there and its whole name."""
    tensors = []
    for full_name, _ in [*cell.named_parameters(), *cell.named_buffers()]:
        path, _, name = full_name.rpartition(".")
        tensors.append((cell.get_submodule(path), name, full_name))
    return tensors


def replacements(
    row, changes: dict, *, seed: int, count: int
) -> list[tuple[KernelCall, str, nn.Module, str, str, Tensor]]:
    """Return calls with one tensor to be replaced in each, by chance."""
    rng, spec, options = random.Random(seed), *row
    chosen = []
    for number in range(count):
        call = example(spec, *SIZE, masked=takes_masks(spec) and number % 2 == 1, **options)
        part, name, full_name = rng.choice(tensors_of(call.cell))
        how = rng.choice(sorted(changes))
        old = getattr(part, name).detach().clone()
        value = changes[how](old)
        if (value.shape == old.shape) is (changes is SHAPES):
            continue  # a square, transposed
        chosen.append((call, f"{full_name} {how} seed {seed}", part, name, full_name, value))
    return chosen


def readers(row, call: KernelCall) -> list[Callable[[], object]]:
    """Return all that reads the parameters of a cell."""
    rnn, x = RNN(call.cell), call.x.detach()
    spec, stream = row[0], rnn.stream(2)
    return [
        lambda: spec.unsupported_reason(call),
        lambda: spec.run(call),
        lambda: reference_loop(call),
        lambda: rnn(x),
        stream.refresh,
        lambda: rnn.stream(3),
    ]


def gradients(run, call: KernelCall) -> list[Tensor]:
    y, last = run(call)
    leaves = [p for p in call.cell.parameters() if p.requires_grad]
    loss = y.square().sum() + last.sum()
    return [y, last, *torch.autograd.grad(loss, [call.x, call.h, *leaves], allow_unused=True)]


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_another_shape_is_refused_by_name(row, tries):
    count = tries("parameters replaced by another shape", few=4, full=60)
    rng = random.Random(0)
    for call, _, part, name, full_name, value in replacements(row, SHAPES, seed=0, count=count):
        reads = readers(row, call)
        rng.choice(WAYS)(part, name, value)
        for read in reads:
            with pytest.raises(ShapeError, match=rf"{full_name} has shape .*expected"):
                read()


def gradients_of_damaged(run, call: KernelCall, part, name: str, value: Tensor):
    """Return the gradients with ``.data`` replaced before the backward pass; None if refused."""
    y, last = run(call)
    before = getattr(part, name).data
    through_data(part, name, value)
    try:
        return torch.autograd.grad(
            y.square().sum() + last.sum(),
            [call.x, call.h, *call.cell.parameters()],
            allow_unused=True,
        )
    except (ShapeError, RuntimeError):  # ours, or that of an operation of torch
        return None
    finally:
        getattr(part, name).data = before


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_another_shape_between_forward_and_backward(row, tries):
    """Only ``.data`` is to be tried, for autograd notices other ways by itself.

    Right is an error, the gradient as if nothing had happened, or, where operations of torch
    prepare a parameter, what autograd makes of the same in the reference.
    """
    spec, _ = row
    count = tries("parameters replaced before the backward pass", few=3, full=40)
    for call, what, part, name, _, value in replacements(row, SHAPES, seed=1, count=count):
        if name not in part._parameters:
            continue
        gradients_of_damage = gradients_of_damaged(spec.run, call, part, name, value)
        if gradients_of_damage is None:
            continue
        gradients_of_call = gradients(spec.run, call)[2:]
        others = gradients_of_damaged(reference_loop, call, part, name, value) or gradients_of_call
        for actual, right, other in zip(
            gradients_of_damage, gradients_of_call, others, strict=True
        ):
            assert (actual is None) is (right is None), what
            if actual is not None and not torch.allclose(actual, right, rtol=1e-4, atol=1e-5):
                torch.testing.assert_close(actual, other, msg=lambda m, w=what: f"{w}: {m}")


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_another_layout_works(row, tries):
    spec, _ = row
    count = tries("parameters replaced by another layout", few=3, full=30)
    rng = random.Random(2)
    for call, what, part, name, _, value in replacements(row, LAYOUTS, seed=2, count=count):
        expected = gradients(spec.run, call)
        rng.choice(WAYS)(part, name, value)
        for actual, right in zip(gradients(spec.run, call), expected, strict=True):
            torch.testing.assert_close(actual, right, msg=lambda m, what=what: f"{what}: {m}")
        stream = RNN(call.cell).stream(3)
        for x, y in zip(
            call.x.detach().unbind(1), RNN(call.cell)(call.x)[0].unbind(1), strict=True
        ):
            torch.testing.assert_close(stream.step(x), y.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_another_dtype_gives_what_the_step_gives(row, tries):
    spec, _ = row
    count = tries("parameters replaced by another dtype", few=4, full=20)
    changes = {str(dtype): lambda p, dtype=dtype: p.to(dtype) for dtype in DTYPES}
    for call, what, part, name, _, value in replacements(row, changes, seed=3, count=count):
        assign(part, name, value)
        x = call.x.detach()
        outcomes = []
        for backend in ("auto", "reference"):
            try:
                outcomes.append(RNN(call.cell, backend=backend)(x)[0])
            except (RuntimeError, TauflowError) as error:
                outcomes.append(type(error))
        auto, reference = outcomes
        if isinstance(reference, Tensor):
            torch.testing.assert_close(auto, reference, msg=lambda m, what=what: f"{what}: {m}")
        else:
            assert auto is reference, what
        alone = sum(1 for _ in call.cell.parameters()) == 1
        if not alone:
            with pytest.raises(BackendError, match="several dtypes"):
                spec.run(call)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", ["ct-rnn", "gru-ode", "ode-lstm", "gnode", "ltc", "lrc", "lem"])
def test_another_number_of_steps_is_that_of_another_cell(name):
    rnn = tauflow.build(name, 3, 4)
    more = tauflow.build(name, 3, 4, substeps=50)
    more.load_state_dict(rnn.state_dict())
    x = torch.randn(2, 9, 3)
    with pytest.raises(ArgumentError, match=r"substeps is fixed when it is built, with"):
        rnn.cell.substeps = 50
    other = RNN(rnn.cell.replace(substeps=50))
    torch.testing.assert_close(other(x)[0], more(x)[0])
    assert not torch.equal(other(x)[0], rnn(x)[0])


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_sizes_that_are_attributes_are_fixed(row):
    call = example(row[0], *SIZE, **row[1])
    with pytest.raises(ArgumentError, match=r"hidden_size is fixed when it is built"):
        call.cell.hidden_size += 1


@pytest.mark.parametrize("row", ROWS[:: len(ROWS) // 4], ids=name_of)
@pytest.mark.parametrize("name", ["x", "h", "dt", "mask"])
def test_calls_of_kernels_by_hand_are_checked(row, name):
    call = example(row[0], *SIZE, **row[1])
    parts = {"x": call.x, "h": call.h, "dt": call.dt, "mask": torch.ones(3, 4, dtype=torch.bool)}
    for how, change in SHAPES.items():
        value = change(parts[name])
        if value.shape == parts[name].shape:
            continue
        odd = KernelCall(call.cell, **{**parts, name: value})
        for run in (row[0].run, reference_loop):
            with pytest.raises(ShapeError):
                run(odd)
            assert how
    odd = KernelCall(call.cell, **{**parts, "mask": parts["mask"].to(torch.uint8)})
    with pytest.raises(TauflowError):
        row[0].run(odd)


COMPILED = [row for row in ROWS if row[0].backend == "numba"]


@pytest.mark.parametrize("row", COMPILED, ids=name_of)
def test_loops_of_every_size(row):
    """Shows an index out of bounds where :func:`test_loops_stay_within_bounds` runs it."""
    spec, options = row
    for size in ((1, 1, 1), (3, 4, 5), (2, 9, 7), (5, 2, 17)):
        for masked in (False, True):
            call = example(spec, *size, masked=masked, **options)
            gradients(spec.run, call)
            with torch.no_grad():
                spec.run(call)
        stream = RNN(call.cell).stream(size[0])
        for x in call.x.detach().unbind(1):
            stream.step(x)


NAMES = dict.fromkeys(row[0].cell.__name__ for row in COMPILED)


@pytest.mark.parametrize("cell", NAMES)
def test_loops_stay_within_bounds(cell, tmp_path, request, tries):
    """Run the tests above in a process whose compiled loops look at every index."""
    if not request.config.getoption("--full"):
        pytest.skip(reason="compiling loops that check bounds takes long; see --full")
    tests = "test_loops_of_every_size or test_another_shape or test_another_layout"
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path),  # compiled code that checks is not to be found by others
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        [*command, "-k", f"({tests}) and {cell}-numba"],
        env=environment,
        cwd=request.config.rootpath,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    tries("cells whose loops were run under checks of bounds", few=0, full=1)
    assert " passed" in done.stdout


@pytest.mark.parametrize("phi", [torch.sin, torch.relu, lambda u: u.tanh() / 2])
def test_another_activation_of_a_flow_is_that_of_another_cell(phi):
    rnn, x, dt = tauflow.build("ode-lstm", 3, 4), torch.randn(2, 9, 3), torch.rand(2, 9)
    with pytest.raises(ArgumentError, match=r"CTRNNCell: phi is fixed"):
        rnn.cell.flow.phi = phi
    with pytest.raises(ArgumentError, match=r"ODELSTMCell: flow is fixed"):
        rnn.cell.flow = rnn.cell.flow.replace(activation=phi)
    rnn = tauflow.CTRNN(3, 4)
    other = rnn.replace(activation=phi)
    after = other(x, dt=dt)[0]
    other.backend = "reference"
    torch.testing.assert_close(after, other(x, dt=dt)[0])
    assert not torch.allclose(rnn(x, dt=dt)[0], after)
