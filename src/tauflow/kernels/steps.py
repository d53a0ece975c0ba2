"""Sequences too short for a kernel to earn what it prepares."""

import torch
from torch import Tensor

from .spec import KernelCall


def step_by_step(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a cell that takes no ``observed`` by its own step, for a few steps."""
    h, states = call.h, []
    for t in range(call.x.shape[1]):
        after = call.cell.step(call.x[:, t], h, call.dt[:, t])
        h = after if call.mask is None else torch.where(call.mask[:, t, None], after, h)
        states.append(h)
    return call.cell.readout(torch.stack(states, dim=1)), h
