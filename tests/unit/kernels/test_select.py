"""Which kernel serves a call, and what is said when the one asked for cannot."""

import pytest
import torch
from torch.func import vmap

import tauflow
from tauflow.cells import MODELS, CfCCell, ElmanCell, GRUCell, LSTMCell, NeuronalLTCCell
from tauflow.errors import BackendError, UnknownNameError
from tauflow.kernels import BACKENDS, KERNELS, KernelCall, select, select_kernel
from tauflow.kernels.cfc.kernel import run_triton_cfc

GATED = [LSTMCell, GRUCell, ElmanCell]


def call(cell_class, batch: int = 2, mask: bool = False, steps: int = 5) -> KernelCall:
    cell = cell_class(3, 4)
    valid = torch.ones(batch, steps, dtype=torch.bool) if mask else None
    return KernelCall(
        cell,
        torch.zeros(batch, steps, 3),
        torch.zeros(batch, cell.state_size),
        torch.ones(batch, steps, 1),
        valid,
    )


@pytest.mark.parametrize("cell", GATED)
def test_gated_cells_run_on_torch(cell):
    row = select_kernel(call(cell), "torch")
    assert row in KERNELS
    assert (row.cell, row.backend) == (cell, "torch")


@pytest.mark.parametrize("cell", [*GATED, CfCCell])
def test_reference_is_always_served(cell):
    assert select_kernel(call(cell), "reference") is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"backbone_activation": lambda z: z.softmax(-1)}, "do not know this backbone"),
        ({"activation": "silu"}, "know the head activations tanh, lecun_tanh, sigmoid"),
        ({"backbone_dropout": 0.5, "backbone_layers": 2}, "have no backbone dropout"),
    ],
)
def test_options_of_the_closed_form_that_are_not_served_are_said(options, reason):
    cell = CfCCell(3, 4, **options)
    call = KernelCall(cell, torch.zeros(2, 5, 3), torch.zeros(2, 4), torch.ones(2, 5, 1))
    row_of_cfc = next(row for row in KERNELS if row.function is run_triton_cfc)
    assert reason in row_of_cfc.unsupported_reason(call)
    cell.eval()
    if "backbone_dropout" in options:
        assert reason not in (row_of_cfc.unsupported_reason(call) or "")


@pytest.mark.parametrize("cell", [CfCCell, MODELS["wired-cfc"].cell])
def test_double_precision_takes_the_reference(cell):
    single = call(cell)
    double = KernelCall(
        single.cell.double(), *(part.double() for part in (single.x, single.h, single.dt))
    )
    assert select_kernel(double, "auto") is None


@pytest.mark.parametrize("cell", GATED)
@pytest.mark.parametrize("steps", [5, 64])
def test_auto_falls_back_where_the_kernel_objects(cell, steps):
    assert select_kernel(call(cell, mask=True, steps=steps), "auto").backend == "numba"
    assert select_kernel(call(cell, batch=0), "auto") is None


@pytest.mark.parametrize("cell", GATED)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mask": True}, "take no step mask"),
        ({"batch": 0}, "need at least one sequence"),
    ],
)
def test_a_named_backend_raises_its_reason(cell, options, reason):
    with pytest.raises(BackendError, match=f"backend 'torch' cannot serve this call.*{reason}"):
        select_kernel(call(cell, **options), "torch")


def test_a_named_backend_without_a_kernel_says_so():
    with pytest.raises(
        BackendError, match=r"it has no kernel for NeuronalLTCCell.*backend='reference'"
    ):
        select_kernel(call(NeuronalLTCCell), "torch")


class Own(LSTMCell):
    """A user's cell with another step than the class it extends."""

    def step(self, x, h, dt):
        return super().step(x, h, dt) + 1


def test_a_subclass_does_not_get_the_kernel_of_its_base():
    assert select_kernel(call(Own), "auto") is None
    with pytest.raises(BackendError, match="no kernel for Own"):
        select_kernel(call(Own), "torch")


def test_a_named_backend_refuses_transforms():
    rnn = tauflow.LSTM(3, 4, backend="torch")
    with pytest.raises(BackendError, match=r"torch\.func transforms"):
        vmap(lambda x: rnn(x)[0])(torch.zeros(2, 2, 5, 3))


def test_a_module_with_a_named_backend_refuses_a_mask():
    rnn = tauflow.LSTM(3, 4, backend="torch")
    x = torch.zeros(2, 5, 3)
    rnn(x)
    with pytest.raises(BackendError, match="take no step mask"):
        rnn(x, mask=torch.ones(2, 5, dtype=torch.bool))
    with pytest.raises(BackendError, match="take no step mask"):
        rnn(x, lengths=[5, 3])


def test_an_unknown_backend_is_refused_when_built():
    assert BACKENDS[:2] == ("auto", "reference")
    with pytest.raises(UnknownNameError, match=r"backend='torhc' is unknown.*'torch'"):
        tauflow.LSTM(3, 4, backend="torhc")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("masked", [False, True])
def test_auto_equals_reference_for_every_model(name, masked):
    torch.manual_seed(0)
    rnn = tauflow.build(name, 3, 4).double()
    x, dt = torch.randn(2, 5, 3).double(), torch.rand(2, 5).double()
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 1, 1, 1, 1]]).bool() if masked else None
    reference = tauflow.build(name, 3, 4, backend="reference").double()
    reference.load_state_dict(rnn.state_dict())
    for actual, expected in zip(
        rnn(x, dt=dt, mask=mask), reference(x, dt=dt, mask=mask), strict=True
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("auto", "numba"), ("numba", "numba"), ("reference", None), ("triton", None)],
)
def test_the_environment_says_what_auto_may_take(monkeypatch, asked, expected):
    monkeypatch.setattr(select, "_DEFAULT_BACKEND", asked)
    row = select_kernel(call(CfCCell), "auto")
    assert (row.backend if row else None) == expected
    assert select_kernel(call(CfCCell), "numba").backend == "numba"  # an argument goes before it
