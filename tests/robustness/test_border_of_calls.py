"""No call whose tensors do not fit reaches a kernel: every cell, by random shapes and dtypes."""

import random

import pytest
import torch
from torch import Tensor

import tauflow
import tauflow.zoo  # whose kernels are among all
from tauflow.cells.registry import MODELS
from tauflow.errors import TauflowError
from tauflow.kernels import KERNELS, KernelCall
from tauflow.sequence import reference_loop

D, N = 3, 3  # alike, so that a wrong axis broadcasts
B, T = 3, 3
PARTS = 10


def shape_near(shape: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    """Return the shape, or one made from it by an axis more, less, longer or shorter."""
    axes = list(shape)
    for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 2))):
        at = rng.randrange(len(axes) + 1)
        match rng.randrange(4):
            case 0:
                axes.insert(at, rng.choice((0, 1, 2, 3)))
            case 1 if axes:
                del axes[at % len(axes)]
            case _ if axes:
                axes[at % len(axes)] = rng.choice((0, 1, 2, 4, 3))
    return tuple(axes)


def drawn(shape: tuple[int, ...], rng: random.Random) -> Tensor:
    """Return a tensor with a shape near the one given, in odd layouts, sometimes of odd dtype."""
    wanted = shape_near(shape, rng)
    value = torch.rand(wanted)
    if rng.random() < 0.2 and value.ndim > 1:
        value = value.transpose(0, 1).contiguous().transpose(0, 1)
    if rng.random() < 0.1:
        value = value.to(rng.choice((torch.float64, torch.float16, torch.int64, torch.bool)))
    return value


def as_documented(rnn, x: Tensor, options: dict[str, Tensor], y: Tensor, h: Tensor) -> bool:
    """Whether a call that was taken has the documented shapes, and its results have them."""
    lead = tuple(x.shape[:-1])
    shapes = {name: tuple(value.shape) for name, value in options.items()}
    state = (*lead[:-1], rnn.state_size)
    known = [x.ndim in (2, 3), x.shape[-1] == D, shapes.get("hx", state) == state]
    for name, longer in (("dt", 0), ("t", "hx" in options)):
        times = (*lead[:-1], lead[-1] + longer)
        known.append(shapes.get(name, ()) in ((), times, (*times, 1)))
    known.append(shapes.get("mask", lead) == lead)
    known.append(shapes.get("observed", x.shape) == x.shape)
    return all(known) and y.shape == (*lead, rnn.output_size) and h.shape == state


@pytest.mark.parametrize("part", range(PARTS))
def test_calls_of_modules(part, tries):
    count = tries("calls of modules", few=20, full=20_000 // PARTS)
    rng = random.Random(part)
    names = sorted(MODELS)
    modules = {name: tauflow.build(name, D, N) for name in names}
    taken = 0
    for number in range(count):
        name = rng.choice(names)
        rnn = modules[name]
        seen = f"{name}, part {part}, number {number}"
        x = drawn((B, T, D), rng)
        options = {}
        if rng.random() < 0.5:
            options["hx"] = drawn((B, rnn.state_size), rng)
        if rng.random() < 0.5:
            options[rng.choice(("dt", "t"))] = drawn(rng.choice([(B, T), (B, T, 1)]), rng)
        if rng.random() < 0.4:
            options["mask"] = drawn((B, T), rng) > 0.3
        if rng.random() < 0.2:
            options["observed"] = drawn((B, T, D), rng) > 0.3
        shapes = {"x": x.shape, **{k: (v.shape, v.dtype) for k, v in options.items()}}
        try:
            y, h = rnn(x, **options)
        except TauflowError:
            continue
        except Exception as error:
            raise AssertionError(f"{seen}: {shapes}") from error
        assert as_documented(rnn, x, options, y, h), f"{seen}: {shapes}"
        taken += 1
    assert taken > count / 20  # or the border keeps everything out


@pytest.mark.parametrize("part", range(PARTS))
def test_calls_of_kernels(part, tries):
    """Those who call a kernel by themselves get past no check either."""
    count = tries("calls of kernels by hand", few=20, full=20_000 // PARTS)
    rng = random.Random(100 + part)
    rows = [row for row in KERNELS if row.device is None]
    cells = {row.cell: row.cell(D, N) for row in rows}
    for number in range(count):
        row = rng.choice(rows)
        cell = cells[row.cell]
        call = KernelCall(
            cell,
            drawn((B, T, D), rng),
            drawn((B, cell.state_size), rng),
            drawn((B, T, 1), rng),
            drawn((B, T), rng) > 0.3 if rng.random() < 0.4 else None,
        )
        seen = (row.cell.__name__, row.backend, part, number)
        tensors = (call.x, call.h, call.dt, call.mask)
        b, t = (call.x.shape[0], call.x.shape[1]) if call.x.ndim == 3 else (0, 0)
        expected = ((b, t, D), (b, cell.state_size), (b, t, 1), (b, t))
        good = all(
            value is None or tuple(value.shape) == shape
            for value, shape in zip(tensors, expected, strict=True)
        )
        for run in (row.run, reference_loop):
            error = None
            try:
                run(call)
            except TauflowError:
                continue
            except Exception as caught:  # torch's own, about a dtype or a batch of none
                error = caught
            shapes = [tuple(value.shape) for value in tensors if value is not None]
            assert good, f"{seen}: {shapes} {error}"
