"""What the Triton kernels refuse, in their own words, and that they are never chosen on a CPU."""

import re

import pytest
import torch
from torch.func import vmap

import tauflow
import tauflow.zoo  # whose kernels are among all
from tauflow.cells import CfCCell, LTCCell
from tauflow.errors import BackendError
from tauflow.kernels import KERNELS, KernelCall, select_kernel
from tauflow.kernels.engine import requirements
from tauflow.kernels.gpu.plan import (
    CorePlan,
    choose_batch_tile,
    get_dot_precision,
    next_power_of_two,
)
from tauflow.kernels.ltc.triton_plan import StepPlan, choose_chunks

TRITON = [row for row in KERNELS if row.backend == "triton"]
CELLS = list(dict.fromkeys(row.cell for row in TRITON))
WRITTEN = {row.cell: row for row in TRITON if not row.function.__name__.endswith("generated")}
"""Kernels written for a cell, beside that which is generated from its step."""
HERE = pytest.mark.skipif(
    not requirements.TRITON_INTERPRETED or not requirements._TRITON_VERSION,
    reason="needs triton and TRITON_INTERPRET=1",
)


def call(cell_class, batch: int = 2, dtype=torch.float32, **options) -> KernelCall:
    cell = cell_class(3, 4, **options).to(dtype)
    x = torch.zeros(batch, 5, 3, dtype=dtype)
    return KernelCall(cell, x, x.new_zeros(batch, cell.state_size), x.new_ones(batch, 5, 1))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_auto_never_takes_triton_on_a_cpu(cell, dtype):
    row = select_kernel(call(cell, dtype=dtype), "auto")
    assert row is None or row.backend != "triton"


@pytest.mark.sampled(6)
@HERE
@pytest.mark.parametrize("cell", CELLS)
def test_they_are_served_by_name(cell):
    served = call(cell)
    row, written = select_kernel(served, "triton"), WRITTEN.get(cell)
    assert row.backend == "triton"
    is_served = written is not None and written.unsupported_reason(served) is None
    assert row.function.__name__.endswith("generated") != is_served


@HERE
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": torch.float64}, "compute in float32|store float32, bfloat16 or float16"),
        ({"batch": 0}, "need at least one sequence and one step"),
    ],
)
def test_calls_that_are_refused(cell, options, reason):
    with pytest.raises(BackendError, match=f"backend 'triton' cannot serve this call.*({reason})"):
        select_kernel(call(cell, **options), "triton")


@HERE
def test_the_ltc_names_its_own_limits():
    with pytest.raises(BackendError, match="solver 'fused' only, not 'rk4'"):
        select_kernel(call(LTCCell, solver="rk4"), "triton")
    big = LTCCell(1, 1025)
    x = torch.zeros(1, 1, 1)
    with pytest.raises(BackendError, match="at most 1024 neurons on the chip, not 1025"):
        select_kernel(KernelCall(big, x, x.new_zeros(1, 1025), x), "triton")


@HERE
def test_mixed_dtypes_need_autocast():
    mixed = call(LTCCell)
    mixed = KernelCall(mixed.cell, mixed.x.bfloat16(), mixed.h, mixed.dt)
    with pytest.raises(BackendError, match="of one dtype, except under autocast"):
        select_kernel(mixed, "triton")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert select_kernel(mixed, "triton").backend == "triton"


@HERE
def test_transforms_are_refused():
    rnn = tauflow.LTC(3, 4, backend="triton")
    with pytest.raises(BackendError, match=r"torch\.func transforms"):
        vmap(lambda x: rnn(x)[0])(torch.zeros(2, 2, 5, 3))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("_TRITON_VERSION", (), "triton is not installed"),
        ("_TRITON_VERSION", (3, 2), "need triton 3.3 or newer"),
        (
            "TRITON_INTERPRETED",
            False,
            "run on NVIDIA GPUs; their interpreter needs TRITON_INTERPRET=1",
        ),
    ],
)
def test_surroundings_that_are_refused(name, value, reason, monkeypatch):
    monkeypatch.setattr(requirements, "_TRITON_VERSION", (3, 9))
    monkeypatch.setattr(requirements, name, value)
    with pytest.raises(BackendError, match=reason):
        select_kernel(call(LTCCell), "triton")


@pytest.mark.parametrize("neurons", [1, 5, 16, 33, 64, 65, 128, 200, 512, 1024])
@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("backward", [False, True])
def test_tiles_hold_every_neuron_and_stay_small(neurons, rows, backward):
    plan = StepPlan.choose(rows, neurons, backward=backward)
    assert 1 <= plan.rows <= rows
    assert plan.width >= neurons
    assert plan.width % plan.block == 0
    assert plan.rows * plan.block * plan.width <= 4096
    assert {next_power_of_two(n) for n in (plan.rows, plan.block, plan.width, plan.warps)} == {
        plan.rows,
        plan.block,
        plan.width,
        plan.warps,
    }


@pytest.mark.parametrize("rows", [1, 7, 64, 1000, 4097])
@pytest.mark.parametrize("tiles", [1, 3, 50])
def test_chunks_cover_all_rows_once(rows, tiles):
    count, chunk = choose_chunks(rows, tiles, 4, torch.device("cpu"))
    assert chunk % 4 == 0
    assert (count - 1) * chunk < rows <= count * chunk


def test_small_batches_are_spread_out():
    device = torch.device("cpu")  # two programs at once, says the interpreter
    assert [choose_batch_tile(batch, device, 8) for batch in (1, 2, 3, 5, 100)] == [1, 1, 2, 4, 8]


@HERE
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"backbone_units": 32}, None),
        ({"backbone_units": 512}, r"take \d+ KB of shared memory in float32 \(tf32x3\)"),
        ({"backbone_units": 9, "backbone_layers": 4}, "at most 3 backbone layers"),
    ],
)
def test_wide_closed_forms_are_generated_from_their_step(options, reason):
    served = call(CfCCell, **options)
    written, *_, generated = (row for row in TRITON if row.cell is CfCCell)
    if reason is None:
        assert select_kernel(served, "triton") is written
    else:
        assert select_kernel(served, "triton").function is generated.function
        assert re.search(reason, written.unsupported_reason(served))


@pytest.mark.parametrize("size", [1, 16, 33, 64, 200])
@pytest.mark.parametrize("layers", [0, 1, 2, 3])
@pytest.mark.parametrize("memory", [None, "input", "state"])
def test_weights_are_counted_in_whole_tiles(size, layers, memory):
    plan = CorePlan.choose(
        layers, 4, size, size, memory=memory is not None, reads_state=memory == "input"
    )
    tile = max(16, next_power_of_two(size))
    matrices = 4 + layers + (4 if memory else 0) + (1 if memory == "input" and layers else 0)
    assert (plan.matrices, plan.weights) == (matrices, matrices * tile * tile)
    full = plan.shared_bytes(torch.float32, "tf32x3")
    assert (
        full > plan.shared_bytes(torch.float32, "tf32") > plan.shared_bytes(torch.bfloat16, "ieee")
    )
    assert full > 8 * plan.weights


def test_products_follow_torch():
    assert get_dot_precision(torch.float32) == "tf32x3"
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert get_dot_precision(torch.float32) == "tf32"
    finally:
        torch.set_float32_matmul_precision(before)
