"""Linear diagonal recurrences over sequences, and the cells that are nothing else."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tauflow.cells.diagonal import AbstractScanCell, complex_multiply
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_call import KernelCall, is_under_transform
from tauflow.kernels.engine.kernel_spec import (
    STATE,
    BoolConfigKernel,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    X,
)
from tauflow.kernels.engine.requirements import TORCH_SCAN

from .chunks import scan_gradients, scan_in_chunks


def torch_scan_unsupported_reason(call: KernelCall) -> str | None:
    """Return why a scan by torch's operations cannot serve a call of a scan cell."""
    if is_under_transform(call):
        return "scans do not run under torch.func transforms"
    return TORCH_SCAN.unsupported_reason(call)


def run_torch_scan(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a scan cell by torch's operations on chunks of time side by side."""
    cell = call.cell
    assert isinstance(cell, AbstractScanCell)
    width, kind = cell.scan_size, call.h.dtype
    a, b, *others = (part.to(kind) for part in cell.precompute(call.x, call.dt).per_step)
    if call.mask is not None:
        valid = call.mask.unsqueeze(-1)
        identity = a.new_ones(width)
        if cell.is_complex:
            identity = torch.cat([identity[: width // 2], torch.zeros_like(identity[: width // 2])])
        a, b = torch.where(valid, a, identity), torch.where(valid, b, torch.zeros_like(b))
    x = torch.cat([a, b], dim=-1)
    z, last = run_kernel(CHUNK_SCAN, cell.is_complex, None, x, call.h[:, :width], call.dt)
    y = cell.readout(torch.cat([z, *others], dim=-1))
    if call.mask is None:
        return y, torch.cat([last, *(part[:, -1] for part in others)], dim=-1)
    # held, not computed again: products round each row of a batch in their own way
    latest = _latest_valid(call.mask)
    if others:
        u = torch.cat(others, dim=-1)
        last = torch.cat([last, _select(call.h[:, width:], u, latest[:, -1:]).squeeze(1)], dim=-1)
    return _select(cell.readout(call.h), y, latest), last


def _latest_valid(mask: Tensor) -> Tensor:
    """Return the number of the last valid step up to each, counted from 1; 0 before the first."""
    steps = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return torch.where(mask, steps, torch.zeros_like(steps)).cummax(1).values


def _select(first: Tensor, values: Tensor, steps: Tensor) -> Tensor:
    """Return what stood at steps (B, T'), counted from 1; ``first`` for 0."""
    both = torch.cat([first.unsqueeze(1), values], dim=1)
    return both.gather(1, steps.unsqueeze(-1).expand(-1, -1, values.shape[2]))


class ChunkScan(BoolConfigKernel):
    """The recurrence z' = a z + b, entry by entry, by torch's operations on any device.

    A step reads [a; b], (B, T, 2 K), and not the time step. The config is whether numbers are
    complex: K real parts and imaginary ones, in halves.
    """

    name = "scan/torch"
    needs_y = True

    @staticmethod
    def update(config: bool, h: Tensor, x: Tensor, dt: Tensor) -> Tensor:
        """Take one step."""
        a, b = x.chunk(2, dim=-1)
        return (complex_multiply(a, h) if config else a * h) + b

    def allocate(self, config: bool, inputs: Inputs, needs_input_grad: NeedsInputGrad) -> Outputs:
        """Return memory for the states."""
        x, h, _ = inputs
        return Outputs(h.new_empty(*x.shape[:2], h.shape[1]), h.new_empty(h.shape))

    def _step_by_step(self, config: bool, x: Tensor, h: Tensor) -> Tensor:
        states = []
        for step in x.unbind(1):
            h = self.update(config, h, step, step)
            states.append(h)
        return torch.stack(states, dim=1)

    def forward(
        self,
        config: bool,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        x, h, _ = inputs
        a, b = x.chunk(2, dim=-1)
        with torch.no_grad():
            states = scan_in_chunks(a, b, h, is_complex=config)
            if not states.isfinite().all():  # products of factors spread infinities otherwise
                states = self._step_by_step(config, x, h)
            out.y[:] = states
            out.last[:] = out.y[:, -1]

    def backward(
        self,
        config: bool,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        x, h, _ = inputs
        (y,) = saved_tensors
        grad_y = torch.zeros_like(y) if grad_outputs.y is None else grad_outputs.y.clone()
        if grad_outputs.last is not None:
            grad_y[:, -1] += grad_outputs.last
        a, _ = x.chunk(2, dim=-1)
        grad_a, grad_b, grad_h = scan_gradients(a, y, h, grad_y, is_complex=config)
        grad_x = torch.cat([grad_a, grad_b], dim=-1) if needs_input_grad[X] else None
        return [grad_x, grad_h if needs_input_grad[STATE] else None, None]


CHUNK_SCAN = OPERATORS[ChunkScan.name] = ChunkScan()
