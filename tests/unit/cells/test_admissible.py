"""Bounded parameters stay in range in any training loop, with nothing to remember."""

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import LTCCell

LOW = {"w": 1e-5, "w_x": 1e-5, "g_l": 1e-5, "C": 1e-6}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e3),
    "adam": lambda p: torch.optim.Adam(p, lr=10.0),
    "fused": lambda p: torch.optim.Adam(p, lr=10.0, fused=True),
    "foreach": lambda p: torch.optim.AdamW(p, lr=10.0, foreach=True),
}


def clipped(**options):
    torch.manual_seed(0)
    return tauflow.LTC(2, 4, constraint="clip", **options)


def step(model, optimizer):
    """Take a step that drives every parameter far below its range."""
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def in_range(cell):
    return all(getattr(cell, n).min().item() >= low * (1 - 1e-6) for n, low in LOW.items())


def through_a_file(model, path):
    tauflow.save(model, path)
    return tauflow.load(path)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_leaves_them_in_range(name):
    model = clipped(num_layers=2, bidirectional=True)
    optimizer = OPTIMIZERS[name](model.parameters())
    step(model, optimizer)
    assert all(in_range(cell) for cell in model.cells)
    assert model.cell.mu.max().item() < -5.0, "the others moved freely"


@pytest.mark.parametrize(
    "copied",
    [
        lambda model, _: copy.deepcopy(model),
        lambda model, _: pickle.loads(pickle.dumps(model)),
        lambda model, folder: through_a_file(model, folder / "model.safetensors"),
        lambda model, _: tauflow.SequenceModel(copy.deepcopy(model), 1).rnn,
        lambda model, _: copy.deepcopy(model).double(),
    ],
    ids=["deepcopy", "pickle", "file", "inside another", "converted"],
)
def test_copies_are_held_too_and_the_original_is_left_alone(copied, tmp_path):
    model = clipped()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    other = copied(model, tmp_path)
    step(other, OPTIMIZERS["sgd"](other.parameters()))
    assert in_range(other.cell)
    assert other.cell.mu.max().item() < -5.0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_result_is_that_of_attached_constraints():
    """And so that of the papers' loops, which clip after each step."""
    x, target = torch.randn(8, 6, 2), torch.randn(8, 6, 4)
    weights = []
    for attach in (False, True):
        model = clipped()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
        if attach:
            tauflow.attach_constraints(model, optimizer)
        for _ in range(8):
            optimizer.zero_grad()
            (model(x, dt=0.5)[0] - target).square().mean().backward()
            optimizer.step()
        weights.append(nn.utils.parameters_to_vector(model.parameters()))
    assert weights[0].isfinite().all()
    assert torch.equal(*weights)
    assert model.cell.w.min().item() == pytest.approx(1e-5), "the range was reached"


def test_imported_values_stay_until_an_optimizer_moves_them():
    """A network may come out of range from a loop that never clipped; frozen, it stays itself."""
    model = clipped()
    with torch.no_grad():
        model.cell.w.fill_(-0.5)
    head = nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=1.0)
    step(head, optimizer)
    assert (model.cell.w == -0.5).all()
    step(model, optimizer)
    assert in_range(model.cell)


def test_softplus_cells_are_not_touched():
    cell = LTCCell(2, 4)
    step(cell, torch.optim.SGD(cell.parameters(), lr=1e3))
    assert cell.w.max().item() < -100.0


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch's own
def test_a_compiled_step_of_the_optimizer_holds_them_too():
    model = clipped()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.compile(optimizer.step, backend="eager")()
    assert in_range(model.cell)
    assert model.cell.mu.max().item() < -5.0


def test_cells_are_not_kept_alive():
    model = clipped()
    optimizer = OPTIMIZERS["sgd"](nn.Linear(1, 1).parameters())
    gone = torch._C._WeakTensorRef(model.cell.w)
    del model
    gc.collect()
    assert gone.expired()
    optimizer.step()
