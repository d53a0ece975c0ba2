"""Constants are as exact as a module's dtype allows, however it came to that dtype."""

import copy
import io

import pytest
import torch

import tauflow
from tauflow.cells import GRUDCell, HiPPOCell, LMUCell, RubanovaGRUCell
from tauflow.cells.precision import ConstantBufferMixin
from tauflow.models import IPNet

MEANS = [0.1, -1 / 3]
MODULES = {
    "lmu": lambda: LMUCell(2, 3, order=8, theta=50.0),
    "lmu-euler": lambda: LMUCell(2, 3, order=8, theta=50.0, discretisation="euler"),
    "hippo-lagt": lambda: HiPPOCell(2, 3, measure="lagt", order=8),
    "gru-d": lambda: GRUDCell(2, 3, x_mean=MEANS),
    "rubanova": lambda: RubanovaGRUCell(2, 3, impute=True, x_mean=MEANS),
    "ip-net": lambda: IPNet(2, 3, channel_means=MEANS, channel_deviations=[0.7, 1.3]),
}


@pytest.fixture(autouse=True)
def _single_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


def exact(make):
    torch.set_default_dtype(torch.float64)
    try:
        return dict(make().named_buffers())
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(
    "way", [[torch.float64], [torch.float16, torch.float32], [torch.bfloat16, torch.float64]]
)
def test_constants_are_those_of_a_module_made_in_that_dtype(name, way):
    module = MODULES[name]()
    for dtype in way:
        module = module.to(dtype)
    constants = {k: b for k, b in module.named_buffers() if b.is_floating_point()}
    assert constants
    for key, expected in exact(MODULES[name]).items():
        if expected.is_floating_point():
            torch.testing.assert_close(constants[key], expected.to(way[-1]), rtol=0, atol=0)


@pytest.mark.parametrize("name", MODULES)
def test_copies_and_pickles_keep_the_exact_values(name):
    file = io.BytesIO()
    torch.save(MODULES[name](), file)
    file.seek(0)
    for module in (copy.deepcopy(MODULES[name]()), torch.load(file, weights_only=False)):
        for key, expected in exact(MODULES[name]).items():
            torch.testing.assert_close(module.double().get_buffer(key), expected, rtol=0, atol=0)


def test_loaded_values_stay_what_they_are():
    loaded = GRUDCell(2, 3)
    loaded.load_state_dict(GRUDCell(2, 3, x_mean=[0.25, 2.0]).state_dict())
    assert loaded.double().x_mean.tolist() == [0.25, 2.0]


def test_a_loaded_model_is_exact_in_double_precision(tmp_path):
    model = tauflow.GRUD(2, 3, x_mean=MEANS)
    tauflow.save(model, tmp_path / "model.safetensors")
    loaded = tauflow.load(tmp_path / "model.safetensors")
    assert loaded.double().cell.x_mean.tolist() == MEANS


def test_what_did_not_move_is_the_same_tensor_and_may_be_in_use():
    cell = LMUCell(2, 3, order=4)
    before = cell.A
    assert cell.float().A is before
    assert before._version == 0


def test_a_module_from_the_meta_device_keeps_what_is_known():
    cell = LMUCell(2, 3, order=4)
    expected = cell.A.clone()
    there = cell.to("meta").to_empty(device="cpu")
    torch.testing.assert_close(there.A, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["lmu", "hippo-lagt", "exprnn", "gru-d"])
@pytest.mark.parametrize("assign", [False, True])
def test_a_model_built_on_the_meta_device_is_the_one_that_is_loaded(name, assign):
    torch.manual_seed(0)
    model, x = tauflow.build(name, 3, 5), torch.randn(2, 12, 3)
    with torch.device("meta"):
        other = tauflow.build(name, 3, 5)
    if not assign:
        other.to_empty(device="cpu")
    other.load_state_dict(model.state_dict(), assign=assign)
    torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["lmu", "hippo-lagt", "exprnn", "gru-d"])
def test_a_model_built_on_the_meta_device_can_be_drawn(name):
    with torch.device("meta"):
        other = tauflow.build(name, 3, 5)
    other.to_empty(device="cpu")
    torch.manual_seed(0)
    other.cell.reset_parameters()
    torch.manual_seed(0)
    here = tauflow.build(name, 3, 5)
    torch.manual_seed(0)
    here.cell.reset_parameters()
    x = torch.randn(2, 6, 3)
    torch.testing.assert_close(other(x), here(x), rtol=0, atol=0)


def test_a_constant_of_one_s_own():
    class Scaled(ConstantBufferMixin):
        def __init__(self):
            super().__init__()
            self.register_constant(
                "third", torch.tensor(1 / 3, dtype=torch.float64), persistent=False
            )

    module = Scaled()
    assert "third" not in module.state_dict()
    assert module.third.dtype == torch.float32
    assert module.half().double().third.item() == 1 / 3
