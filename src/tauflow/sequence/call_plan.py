"""What a call of a sequence module does, worked out once for all calls alike.

Most of what stands between a call and its kernel follows from metadata: which cell it is and what
it consists of, shapes, dtypes, devices, what wants gradients. A plan keeps the answers for the
calls of one signature; what is left for every call is to see that the signature is the same, and
to look at the values that are checked: gaps, states, missing features. Parameters are read in every
call.

A plan serves the usual call alone: one layer of a catalogued cell in one direction, in float32 on
the CPU, on tensors of torch's own, with nothing around it that follows what runs. All else, and
every call that looks as if it were in error, is left to ``SequenceModule.forward``.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from tauflow._internal.fixed_options import FixedOptionsModule
from tauflow._internal.module_hooks import HOOKS
from tauflow.cells.base import AbstractCell
from tauflow.cells.contract import call_initial_state
from tauflow.cells.snapshot import find_modification
from tauflow.errors import BackendError, TauflowError
from tauflow.kernels import KernelCall, KernelSpec, select_kernel
from tauflow.kernels.cpu.binding import import_kernels
from tauflow.kernels.engine.autograd import run_kernel
from tauflow.kernels.engine.kernel_spec import KernelFunction, SequenceKernel
from tauflow.kernels.engine.requirements import is_builtin_cell
from tauflow.kernels.engine.torch_state import is_followed

from .finite_checks import check_finite_states
from .inputs import SequenceInputs
from .unroll import run_steps

if TYPE_CHECKING:
    from .layers import SequenceModule

_PLAIN_TENSOR_TYPES = (Tensor, nn.Parameter)
_MAX_PLANS = 64
"""Signatures that a module keeps plans for; sequences of many lengths have one each."""


class _Part(NamedTuple):
    """A module of a cell, as it was when its plans were made.

    Args:
        module: the module.
        kind: its class.
        size: how many attributes it has.
        children: its own parts by name.
        options: of a module of PyTorch, which can be set; those of the library's are fixed.
    """

    module: nn.Module
    kind: type[nn.Module]
    size: int
    children: tuple[tuple[str, nn.Module | None], ...]
    options: tuple[tuple[str, Any], ...]


class _TensorPlace(NamedTuple):
    """Where a module keeps a parameter or buffer, and what may stand there."""

    holder: dict[str, Tensor | None]
    name: str
    shape: tuple[int, ...]
    floating: bool


class _CellRecord(NamedTuple):
    """What a cell consists of, compared by identity."""

    cell: AbstractCell
    parts: tuple[_Part, ...]
    places: tuple[_TensorPlace, ...]

    def find_modes(self, cell: object) -> tuple[bool, ...] | None:
        """Return which parts are in training mode; ``None`` if the cell is not what it was."""
        if cell is not self.cell:
            return None
        modes = []
        for module, kind, size, children, options in self.parts:
            own = module.__dict__
            if module.__class__ is not kind or len(own) != size:
                return None
            if own[HOOKS[0]] or own[HOOKS[1]] or own[HOOKS[2]] or own[HOOKS[3]]:
                return None
            parts = own["_modules"]
            if len(parts) != len(children):
                return None
            for name, child in children:
                if parts.get(name) is not child:
                    return None
            for name, value in options:
                if own.get(name) is not value:
                    return None
            modes.append(own["training"])
        return tuple(modes)

    def needs_grad(self) -> bool | None:
        """Whether a parameter wants gradients; ``None`` if one is not what a kernel can read."""
        learns = False
        for holder, name, shape, floating in self.places:
            tensor = holder.get(name)
            if type(tensor) not in _PLAIN_TENSOR_TYPES or tensor.shape != shape:  # type: ignore[union-attr]
                return None
            assert tensor is not None
            if floating and (tensor.dtype is not torch.float32 or not tensor.is_cpu):
                return None
            learns = learns or tensor.requires_grad
        return learns


def _record_cell(cell: AbstractCell) -> _CellRecord | None:
    """Return what a cell consists of, if it is as its constructor made it."""
    if not is_builtin_cell(cell):
        return None
    try:
        if find_modification(cell) is not None:
            return None
    except TauflowError:
        return None  # which its forward pass raises
    parts, places = [], []
    for snapshot in cell.__dict__["_parts_when_built"]:
        module: nn.Module = cell.get_submodule(".".join(snapshot.path))
        own = module.__dict__
        if module.__class__ is not snapshot.kind or any(own[kind] for kind in HOOKS):
            return None  # a parametrisation, or a hook that computes a parameter
        options = () if isinstance(module, FixedOptionsModule) else snapshot.options
        children = tuple(module._modules.items())
        parts.append(_Part(module, module.__class__, len(own), children, options))
        for name, shape, floating in snapshot.tensors:
            holder: dict[str, Any] = module._parameters
            if holder.get(name) is None:
                holder = module._buffers
            places.append(_TensorPlace(holder, name, shape, floating))
    return _CellRecord(cell, tuple(parts), tuple(places))


class _PlannedKernel(NamedTuple):
    """A kernel that reads the parameters of a cell where they are.

    Args:
        kernel: the kernel.
        config: of the cell.
        places: holder and name of each parameter that it reads, or an empty tensor and no name.
    """

    kernel: SequenceKernel
    config: Any
    places: tuple[tuple[Any, str], ...]

    def run(self, x: Tensor, h: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
        """Run the kernel."""
        parameters = [holder[name] if name else holder for holder, name in self.places]
        return run_kernel(self.kernel, self.config, None, x, h, dt, *parameters)


def _plan_kernel(row: KernelSpec | None, record: _CellRecord) -> _PlannedKernel | None:
    """Return the kernel of a row, if it reads the cell's parameters as they are."""
    cell: Any = record.cell
    if row is None or row.kernel is None:
        return None
    known = {id(place.holder[place.name]): place for place in record.places}
    places: list[tuple[Any, str]] = []
    for tensor in cell.packed_parameters():
        place = known.get(id(tensor))
        if place is not None:
            places.append((place.holder, place.name))
        elif tensor.numel() == 0:
            places.append((tensor.detach(), ""))
        else:
            return None  # it is computed
    return _PlannedKernel(row.kernel, cell.static_config(), tuple(places))


class _Plan(NamedTuple):
    """What serves the calls of a signature.

    Args:
        run: the kernel, or the cell's own steps.
        is_compiled: whether that is a compiled loop, which any gaps may be given; they are looked
            at when it is done.
        gaps_shape: (B, T, 1).
        state_shape: (B, S).
        starts_at_zero: whether sequences without a state begin with zeros.
        kernel: what ``run`` comes to, if that is known.
    """

    run: KernelFunction
    is_compiled: bool
    gaps_shape: tuple[int, int, int]
    state_shape: tuple[int, int]
    starts_at_zero: bool
    kernel: _PlannedKernel | None


class CallPlans:
    """The plans of a sequence module. A copy of the module, or what is loaded, begins without."""

    def __init__(self) -> None:
        self._record: _CellRecord | None = None
        self._plans: dict[tuple[Any, ...], _Plan | str] = {}

    def __reduce__(self) -> tuple[type["CallPlans"], tuple[()]]:
        """Copy and pickle as one without plans."""
        return CallPlans, ()

    def run(self, rnn: "SequenceModule", x: Any, hx: Any, dt: Any) -> tuple[Tensor, Tensor] | None:
        """Return outputs at every step and the last state, or ``None`` where no plan serves.

        Args:
            rnn: the module.
            x: as it was given.
            hx: likewise.
            dt: likewise.
        """
        found = self.find(rnn, x, hx, dt)
        return None if isinstance(found, str) else _run_plan(rnn, *found, x, hx)

    def find(
        self, rnn: "SequenceModule", x: Any, hx: Any, dt: Any
    ) -> tuple[AbstractCell, _Plan, Tensor] | str:
        """Return the cell, the plan and the gaps, (B, T, 1), of a call; or why there is no plan."""
        if is_followed():
            return "a compiler, transform, trace, mode or autocast follows what runs"
        own, record = rnn.__dict__, self._record
        modes = None
        if record is not None:
            modes = record.find_modes(own["_modules"]["cells"]._modules.get("0"))
        if record is None or modes is None:
            self._plans = {}
            self._record = record = _record_cell(rnn.cell)
            if record is None:
                return "the cell is a user's own, or not as its constructor made it"
            modes = record.find_modes(record.cell)
        learns = record.needs_grad()
        if learns is None or not _is_readable(x, getattr(x, "shape", ())):
            return "x and parameters have to be float32, on the CPU, and of no class of their own"
        if torch.is_grad_enabled():
            learns = learns or _needs_grad(x) or _needs_grad(dt) or _needs_grad(hx)
        else:
            learns = None
        layers = own["num_layers"], own["bidirectional"], own["proj_size"]
        mode = learns, torch.is_inference_mode_enabled(), own["backend"], own["checkpoint_every"]
        plan = self._find((x.shape, modes, layers, mode), rnn, record, x)
        if isinstance(plan, str):
            return plan
        gaps = _read_gaps(plan, dt, x)
        if gaps is None:
            return "dt has to be a number or float32 gaps, (B, T), finite and not negative"
        if not (hx is None or _is_readable(hx, plan.state_shape)):
            return "hx has to be a float32 state, (B, S)"
        return record.cell, plan, gaps

    def _find(
        self, key: tuple[Any, ...], rnn: "SequenceModule", record: _CellRecord, x: Tensor
    ) -> _Plan | str:
        """Return the plan for calls of a signature, or why there is none."""
        plans = self._plans
        try:
            return plans[key]
        except KeyError:
            if len(plans) >= _MAX_PLANS:
                plans.clear()
            plan = plans[key] = _make_plan(rnn, record, x, learns=bool(key[-1][0]))
            return plan


def _needs_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _is_readable(tensor: Any, shape: tuple[int, ...]) -> bool:
    """Whether something is a tensor of torch's own that kernels read; by metadata."""
    return (
        type(tensor) in _PLAIN_TENSOR_TYPES
        and tensor.shape == shape
        and tensor.dtype is torch.float32
        and tensor.is_cpu
        and not tensor.is_neg()
        and tensor.layout is torch.strided
    )


def _read_gaps(plan: _Plan, dt: Any, x: Tensor) -> Tensor | None:
    """Return the gaps of a call, (B, T, 1), or ``None`` where they are odd or in error."""
    if dt is None:
        return x.new_ones(plan.gaps_shape)
    kind = type(dt)
    if kind is float or kind is int:
        return x.new_full(plan.gaps_shape, dt) if 0 <= dt < math.inf else None
    if not _is_readable(dt, plan.gaps_shape[:2]):
        return None
    if not plan.is_compiled:
        low, high = torch.aminmax(dt.detach())
        if not 0.0 <= low.item() <= high.item() < math.inf:
            return None
    gaps: Tensor = dt.contiguous().unsqueeze(-1)
    return gaps


def _make_plan(
    rnn: "SequenceModule", record: _CellRecord, x: Tensor, *, learns: bool
) -> _Plan | str:
    """Return the plan for calls like one, or why there is none."""
    cell = record.cell
    if rnn.num_layers != 1 or rnn.bidirectional or rnn.proj_size:
        return "the module has several layers or directions, or a projection"
    if x.ndim != 3 or x.shape[2] != cell.input_size or x.numel() == 0:
        return f"x has to be (B, T, {cell.input_size})"
    B, T, _ = x.shape
    if learns and rnn.checkpoint_every is not None and rnn.checkpoint_every < T:
        return "checkpoint_every cuts the sequences"
    state, gaps = x.new_zeros(B, cell.state_size).requires_grad_(learns), x.new_ones(B, T, 1)
    try:
        row = select_kernel(KernelCall(cell, x, state, gaps), rnn.backend)
    except TauflowError as error:
        return str(error)
    # without the checks that a plan has made
    run = run_steps if row is None else getattr(row.run, "__wrapped__", row.run)
    is_compiled = row is not None and row.backend == "numba"
    starts_at_zero = type(cell).initial_state is AbstractCell.initial_state
    kernel = _plan_kernel(row, record) if is_compiled else None
    return _Plan(run, is_compiled, (B, T, 1), (B, cell.state_size), starts_at_zero, kernel)


def _run_plan(
    rnn: "SequenceModule", cell: AbstractCell, plan: _Plan, dt: Tensor, x: Tensor, hx: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Return what the module returns, or ``None`` if gaps are bad or features are missing."""
    if cell.uses_observed and bool(x.isnan().any()):
        return None
    if hx is not None:
        start = hx
    elif plan.starts_at_zero:
        start = x.new_zeros(plan.state_shape)
    else:
        start = call_initial_state(cell, x[:, 0])
    if plan.kernel is not None:
        y, last = plan.kernel.run(x, start, dt)
    else:
        try:
            y, last = plan.run(KernelCall(cell, x, start, dt))
        except BackendError:
            return None  # its step can no longer be traced; another kernel may serve
    if plan.is_compiled:
        find = import_kernels("cpu.values").find_bad_values
        bad = find(dt.data_ptr(), dt.numel(), last.data_ptr(), last.numel())
        if bad & 1:
            return None
    else:
        last = torch.cat([last], dim=-1)  # it may be part of something else
        bad = not math.isfinite(last.detach().sum().item())
    if bad:
        inputs = SequenceInputs(x, dt, None, None, batched=True, packed=None)
        check_finite_states(f"{type(rnn).__name__}.forward", cell, hx, last, inputs)
    return y if rnn.return_sequences else y[:, -1], last
