import pytest
import torch


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Let every test draw the same weights, whatever ran before it."""
    torch.manual_seed(0)
