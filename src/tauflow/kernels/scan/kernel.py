"""Linear diagonal recurrences over sequences, and the cells that are nothing else."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.diagonal import AbstractScanCell, complex_multiply
from tauflow.kernels.cpu.binding import (
    import_kernels,
    initial_grad_state,
    input_array,
    log_compilation,
    parallel_for,
)
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_spec import (
    STATE,
    BoolConfigKernel,
    Gradients,
    GradOutputs,
    Inputs,
    KernelCall,
    NeedsInputGrad,
    Outputs,
    X,
    is_under_transform,
)
from tauflow.kernels.engine.requirements import NUMBA, TORCH_SCAN
from tauflow.kernels.scan import ScanGradients

from .chunks import scan_gradients, scan_in_chunks

_MIN_BLOCK = 16  # neurons of a thread, at least: a vector or two


def numba_scan_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of a scan cell."""
    return NUMBA.unsupported_reason(call)


def torch_scan_unsupported_reason(call: KernelCall) -> str | None:
    """Return why a scan by torch's operations cannot serve a call of a scan cell."""
    if is_under_transform(call):
        return "scans do not run under torch.func transforms"
    return TORCH_SCAN.unsupported_reason(call)


def run_numba_scan(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a scan cell in compiled loops."""
    return _run(call, NUMBA_SCAN)


def run_torch_scan(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a scan cell by torch's operations on chunks of time side by side."""
    return _run(call, CHUNK_SCAN)


def _run(call: KernelCall, kernel: "DiagonalScan") -> tuple[Tensor, Tensor]:
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
    z, last = run_kernel(kernel, cell.is_complex, None, x, call.h[:, :width], call.dt)
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


class DiagonalScan(BoolConfigKernel):
    """The recurrence z' = a z + b, entry by entry.

    A step reads [a; b], (B, T, 2 K), and not the time step. The config is whether numbers are
    complex: K real parts and imaginary ones, in halves.
    """

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


class NumbaScan(DiagonalScan):
    """The recurrence in compiled loops: threads share sequences, and neurons if these are few."""

    name = "scan/numba"

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
        tasks, blocks = _split(h, config)
        loops = _load_kernels()
        loop = loops.complex_forward if config else loops.real_forward
        parallel_for(loop, tasks, blocks, input_array(x), input_array(h), out.y)
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
        tasks, blocks = _split(h, config)
        grad_y = torch.zeros_like(y) if grad_outputs.y is None else grad_outputs.y
        grad_x = x.new_empty(x.shape)
        gradients = ScanGradients(grad_x, initial_grad_state(grad_outputs.last, h))
        loops = _load_kernels()
        loop = loops.complex_backward if config else loops.real_backward
        read = (input_array(tensor) for tensor in (x, h, y, grad_y))
        parallel_for(loop, tasks, blocks, *read, gradients)
        return [grad_x, gradients.first if needs_input_grad[STATE] else None, None]


class ChunkScan(DiagonalScan):
    """The recurrence by torch's operations, on any device."""

    name = "scan/torch"

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


NUMBA_SCAN = OPERATORS[NumbaScan.name] = NumbaScan()
CHUNK_SCAN = OPERATORS[ChunkScan.name] = ChunkScan()


def _split(h: Tensor, is_complex: bool) -> tuple[int, int]:
    """Return how many tasks threads share, and in how many blocks of neurons they cut each row."""
    rows, neurons = h.shape[0], h.shape[1] // (2 if is_complex else 1)
    blocks = min(-(-torch.get_num_threads() // rows), max(1, neurons // _MIN_BLOCK))
    return rows * blocks, blocks


@cache
def _load_kernels() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = import_kernels("scan.numba_loop")
    log_compilation("diagonal scan", loops.complex_forward, loops.complex_backward)
    return loops
