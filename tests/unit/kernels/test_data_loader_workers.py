"""Compiled kernels in the workers of a DataLoader, after their use in the parent."""

import sys

import pytest
import torch
from samples_through_a_network import SamplesThroughANetwork
from torch.utils.data import DataLoader

FORKED = [("fork", "ltc"), ("fork", "cfc")] if sys.platform == "linux" else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "name"), [pytest.param("spawn", "cfc", marks=pytest.mark.thorough), *FORKED]
)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # where there is one processor
def test_workers_compute_what_the_parent_does(method, name):
    samples = SamplesThroughANetwork(name)
    expected = torch.stack([samples[i] for i in range(len(samples))])  # the pool has been used
    loader = DataLoader(samples, batch_size=2, num_workers=2, multiprocessing_context=method)
    torch.testing.assert_close(torch.cat(list(loader)), expected)
    torch.testing.assert_close(torch.stack([samples[i] for i in range(2)]), expected[:2])
