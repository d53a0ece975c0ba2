"""Every catalogued model computes, learns and is kept on a GPU as on the CPU."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import whole_models
from test_training import RECIPE, built, parity, takes_holes
from torch import Tensor, nn
from variants import NAMES, B, D, T, model

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.data.card import TaskData
from tauflow.export import to_onnx
from tauflow.models import WHOLE_MODELS
from tauflow.predict import Predictor, load_predictor
from tauflow.training import train

DEVICE = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DRAWS = {"rnn-vae", "latent-ode-rnn", "latent-ode-ode", "transformer", "ip-net", "seft"}
"""Models that draw random numbers as they learn, which differ between devices."""


def sequences() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(B, T, D, generator=random, dtype=torch.float64)
    return x, torch.rand(B, T, generator=random, dtype=torch.float64) + 0.1


def answers(
    module: nn.Module, x: Tensor, device: str, dtype: torch.dtype, **call: Tensor
) -> list[Tensor]:
    """Return what a copy of a module answers there, with all gradients of a loss of it."""
    module = copy.deepcopy(module).to(device, dtype)
    x = x.to(device, dtype).requires_grad_()
    call = {
        name: v.to(device, dtype if v.is_floating_point() else None) for name, v in call.items()
    }
    y, h = module(x, **call)
    assert y.device == h.device == x.device
    weights = torch.linspace(-1, 1, y.numel(), dtype=dtype).view_as(y).to(device)
    wanted = [x, *(p for p in module.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(
        (y * weights).sum() + h.square().sum(), wanted, allow_unused=True
    )
    return [
        y,
        h,
        *(torch.zeros_like(w) if g is None else g for w, g in zip(wanted, gradients, strict=True)),
    ]


def error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest deviation, in units of the largest value; infinite where one is NaN."""
    expected = expected.detach().cpu().double()
    if not expected.numel():
        return 0.0
    off = (actual.detach().cpu().double() - expected).abs().amax()
    return float(torch.nan_to_num(off / expected.abs().amax().clamp(min=1e-3), nan=torch.inf))


def agree(module: nn.Module, x: Tensor, dtype: torch.dtype, bound: float, **call: Tensor) -> None:
    expected = answers(module, x, "cpu", torch.float64, **call)
    results = answers(module, x, DEVICE, dtype, **call)
    assert max(map(error, results, expected)) < bound


PRECISIONS = pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float64, 1e-8), (torch.float32, 2e-3)], ids=["double", "single"]
)


@PRECISIONS
@pytest.mark.parametrize("name", NAMES)
def test_a_cell_with_padding_and_a_mask(name, dtype, bound):
    rnn, (x, dt) = model(name), sequences()
    mask = torch.rand(B, T, generator=torch.Generator().manual_seed(3)) < 0.7
    call = {"dt": dt, "mask": mask}
    if rnn.cell.uses_observed:
        call["observed"] = torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) > 0.3
    agree(rnn, x, dtype, bound, **call)


@PRECISIONS
@pytest.mark.parametrize("name", whole_models.NAMES)
def test_a_whole_model(name, dtype, bound):
    network, (x, dt) = whole_models.model(name), whole_models.sequences(name)
    agree(network, x, dtype, bound, dt=dt, lengths=torch.tensor([T, 2, 4]))


@pytest.mark.parametrize("name", NAMES)
def test_mixed_precision(name):
    rnn, (x, dt) = model(name, hidden_size=8).float().to(DEVICE), sequences()
    x, dt = x.to(DEVICE).float(), dt.to(DEVICE).float()
    expected = rnn(x, dt=dt)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = rnn(x, dt=dt)
    assert max(map(error, output, expected)) < 0.05
    output[0].float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in rnn.parameters() if p.grad is not None)


def trained(name: str, data: TaskData, device: str, epochs: int = 1, run: Path | None = None):
    """Train from the CPU's weights, and return model and losses."""
    module = built(name, data)
    how = {"loss": data.card.loss, "metric": data.card.metric, "seed": 0, "device": device}
    recipe = replace(RECIPE, epochs=epochs)
    result = (
        train(
            module, train=data.train, test=data.test, recipe=recipe, run_dir=run, resume=True, **how
        )
        if run
        else train(module, train=data.train, test=data.test, recipe=recipe, **how)
    )
    return module, [row["train_loss"] for row in result.history]


@pytest.mark.parametrize("name", [*MODELS, *(n for n in WHOLE_MODELS if n != "convolutional")])
def test_training(name):
    data = parity(holes=takes_holes(name))
    module, losses = trained(name, data, DEVICE)
    assert next(module.parameters()).is_cuda
    if name not in DRAWS:
        assert losses == pytest.approx(trained(name, data, "cpu")[1], rel=1e-3)


@pytest.mark.parametrize("name", ["cfc", "ltc", "ode-lstm", "gru"])
def test_training_that_was_interrupted(name, tmp_path):
    data = parity(holes=takes_holes(name))
    trained(name, data, DEVICE, 1, tmp_path / "run")
    resumed, scores = trained(name, data, DEVICE, 3, tmp_path / "run")
    unbroken, expected = trained(name, data, DEVICE, 3)
    assert scores == pytest.approx(expected, rel=1e-5)
    for parameter, other in zip(resumed.parameters(), unbroken.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cfc", "ltc", "ode-lstm"])
def test_what_was_trained_there_answers_anywhere(name, tmp_path):
    data = parity(holes=False)
    module, _ = trained(name, data, DEVICE)
    predictor = Predictor.from_data(module, data)
    expected = predictor.predict_proba(data.test).cpu()
    predictor.save(tmp_path / "predictor")
    probabilities = load_predictor(tmp_path / "predictor").predict_proba(data.test)
    assert probabilities.device.type == "cpu"
    torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cfc", "ltc"])
def test_files_for_other_programs_are_written_from_there(name, tmp_path):
    pytest.importorskip("onnxscript", reason="exports need the extra 'onnx'")
    rnn = tauflow.build(name, D, 4).to(DEVICE)
    to_onnx(rnn, tmp_path / "model.onnx")  # which compares what it wrote with the model
    assert next(rnn.parameters()).is_cuda
