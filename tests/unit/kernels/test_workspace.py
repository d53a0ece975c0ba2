"""Large blocks of memory come back when the tensors on them are gone, and not before."""

import random
import threading

import pytest
import torch

import tauflow
from tauflow.kernels.engine import workspace

LARGE = workspace._MIN_BLOCK_BYTES // 4


@pytest.fixture(autouse=True)
def _nothing_kept():
    workspace.clear_cached_blocks()
    yield
    workspace.clear_cached_blocks()


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
    monkeypatch.setattr(workspace, "MAX_CACHED_BYTES", 3 * workspace._MIN_BLOCK_BYTES)
    blocks = [workspace.empty(LARGE) for _ in range(8)]
    del blocks
    workspace.empty(LARGE)
    assert sum(block.nbytes for block in workspace._cached_blocks) <= 3 * workspace._MIN_BLOCK_BYTES


def get_cached_bytes() -> int:
    return sum(block.nbytes for block in (*workspace._cached_blocks, *workspace._returned_blocks))


def test_what_is_kept_is_bounded_by_what_is_used():
    """Batches of varying sizes would otherwise fill the pool up to its limit."""
    random_ = random.Random(0)
    most = 0
    for _ in range(400):
        blocks = [workspace.empty(random_.randint(LARGE, 8 * LARGE)) for _ in range(3)]
        most = max(most, workspace._used_bytes)
        del blocks
        assert get_cached_bytes() <= 3 * most
    assert get_cached_bytes() > 0


def test_similar_sizes_share_blocks():
    random_ = random.Random(0)
    places = set()
    for _ in range(200):
        places.add(workspace.empty(random_.randint(4 * LARGE, 6 * LARGE)).data_ptr())
    assert len(places) <= 4


def test_a_block_is_little_larger_than_asked_for():
    random_ = random.Random(0)
    for _ in range(1000):
        size = random_.randint(LARGE, 100 * LARGE)
        assert size <= workspace._round_up_size(size) <= workspace._MAX_SIZE_RATIO * size
    assert workspace._round_up_size(LARGE) == LARGE


def test_one_large_batch_is_forgotten():
    large = workspace.empty(64 * LARGE)
    del large
    for _ in range(500):
        workspace.empty(LARGE)
    assert get_cached_bytes() <= 3 * LARGE * 4


def test_all_of_it_is_given_back():
    blocks = [workspace.empty(LARGE) for _ in range(4)]
    used = blocks.pop().fill_(3.0)
    del blocks
    assert get_cached_bytes() == 3 * LARGE * 4
    tauflow.kernels.release_memory()
    assert get_cached_bytes() == 0
    assert (used == 3.0).all()
    del used
    assert get_cached_bytes() == LARGE * 4
    tauflow.kernels.release_memory()
    assert get_cached_bytes() == 0
    assert workspace._used_bytes == 0


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


@pytest.mark.parametrize("name", ["ltc", "lrc", "cfc", "ct-rnn", "ode-lstm", "ltc-neuronal"])
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
