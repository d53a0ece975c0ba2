"""Large blocks of memory come back when the tensors on them are gone, and not before."""

import threading

import pytest
import torch

import tauflow
from tauflow.kernels import workspace

LARGE = workspace._LEAST_BYTES // 4


@pytest.fixture(autouse=True)
def _nothing_kept():
    workspace.release()
    yield
    workspace.release()


def test_a_block_is_used_again_only_when_nothing_lies_on_it():
    first = workspace.empty(2, LARGE)
    view, place = first[1:], first.data_ptr()
    del first
    second = workspace.empty(2, LARGE)
    assert second.data_ptr() != place  # a view is left
    del view
    assert workspace.empty(2, LARGE).data_ptr() == place


def test_shapes_and_writing():
    for shape in [(3, LARGE), (0, LARGE), (), (5,)]:
        block = workspace.empty(*shape)
        assert block.shape == shape
        assert block.dtype is torch.float32
        assert torch.equal(block.fill_(2.0), torch.full(shape, 2.0))


def test_a_smaller_block_than_asked_for_is_never_given():
    small = workspace.empty(LARGE)
    del small
    assert workspace.empty(2 * LARGE).numel() == 2 * LARGE
    big = workspace.empty(8 * LARGE)
    place = big.data_ptr()
    del big
    assert workspace.empty(LARGE).data_ptr() != place  # nor one far too large


def test_no_more_than_the_limit_is_kept(monkeypatch):
    monkeypatch.setattr(workspace, "KEPT_BYTES", 3 * workspace._LEAST_BYTES)
    blocks = [workspace.empty(LARGE) for _ in range(8)]
    del blocks
    workspace.empty(LARGE)
    assert sum(block.nbytes for block in workspace._free) <= 3 * workspace._LEAST_BYTES


def test_threads_never_share_a_block():
    clashes = []

    def work(number: int) -> None:
        for _ in range(50):
            block = workspace.empty(LARGE).fill_(number)
            if not bool((block == number).all()):
                clashes.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []


@pytest.mark.parametrize("name", ["ltc", "cfc", "ct-rnn", "ode-lstm", "ltc-neuronal"])
def test_a_graph_that_is_kept_keeps_its_memory(name):
    torch.manual_seed(0)
    rnn = tauflow.build(name, 3, 32)
    x, other = torch.randn(64, 64, 3), torch.randn(64, 64, 3)
    weights = list(rnn.parameters())
    y, _ = rnn(x)
    expected = torch.autograd.grad(y.square().sum(), weights, retain_graph=True)
    for _ in range(2):
        rnn(other)[0].square().sum().backward()
    again = torch.autograd.grad(y.square().sum(), weights)
    for a, e in zip(again, expected, strict=True):
        torch.testing.assert_close(a, e)
