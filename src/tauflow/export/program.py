"""Models as programs of ``torch.export``, for any batch size and length, or for one step."""

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tauflow.cells import AbstractCell
from tauflow.checks import no_missing_features
from tauflow.errors import ArgumentError, ExportError
from tauflow.models import SequenceModel
from tauflow.sequence import SequenceModule
from tauflow.sequence.gaps import gaps_reversed
from tauflow.sequence.reparametrised import make_permanent, recompute_parameters
from tauflow.sequence.stream_parts import beyond_parts, is_dropping
from tauflow.solvers import GapSolver

from .files import named_other
from .heads import head_width
from .scaling import Scaling
from .scan import ScannedCell, SteppedCell
from .sparse import thinned

Model = SequenceModule | SequenceModel
INPUTS = ("x", "dt", "mask", "observed", "h_in")
"""Names of what a program takes, in order; some are left out."""
_TRACED = {"B": 3, "T": 5}
"""Sizes to trace with: none that tracers specialise on."""


def program(
    model: Model,
    *,
    dynamic: str = "BT",
    mask: bool = True,
    observed: bool | None = None,
) -> ExportedProgram:
    """Return a model as a program of ``torch.export``.

    The loop over time is one operator, whatever the length. Call the program by names, and save it
    with ``torch.export.save``::

        run = program(model).module()
        y, h = run(x=x, dt=dt, mask=mask, h_in=h)

    ======== ============ ==========================================================
    x        (B, T, I)    inputs; token ids, integers, for a model with a vocabulary
    dt       (B, T)       gaps, in the unit of the cell's time constants
    mask     (B, T)       bool; false keeps state and output (with ``mask=True``)
    observed (B, T, I)    bool, which features were measured (with ``observed=True``)
    h_in     (B, S)       state to start from, such as ``model.cell.initial_state``
    y        (B, T, O)    outputs, or (B, O) where the model returns the last one's
    h_out    (B, S)       state after the last sample
    ======== ============ ==========================================================

    The program has a copy of the parameters as they are now. It checks nothing, such as gaps that
    run backwards.

    Args:
        model: a sequence module or a :class:`~tauflow.models.SequenceModel` around one, in
            evaluation mode if it has dropout.
        dynamic: which sizes are free, of ``"B"`` and ``"T"``; the others are 1.
        mask: whether the program takes a mask.
        observed: whether it takes which features were measured; by default if the cell models that.

    Raises:
        ExportError: the model cannot be a program, and why.
        ArgumentError: an argument makes no sense for this model.
    """
    whole = ExportedSequence(model, observed=observed)
    return export_sequence(whole, dynamic=dynamic, mask=mask)


def program_step(
    model: Model, *, dynamic: str = "B", observed: bool | None = None
) -> ExportedProgram:
    """Return one step of a model as a program of ``torch.export``, with the state in and out.

    As :func:`program`, without the axis of time and without a mask: ``x`` (B, I), ``dt`` (B,),
    ``h_in`` (B, S), and ``observed`` (B, I) give ``y`` (B, O) and ``h_out`` (B, S).

    Args:
        model: a model in one direction.
        dynamic: ``"B"`` for a free batch size, ``""`` for one sequence.
        observed: whether it takes which features were measured; by default if the cell models that.

    Raises:
        ExportError: the model cannot be a program of one step, and why.
        ArgumentError: an argument makes no sense for this model.
    """
    return export_step(ExportedStep(model, observed=observed), dynamic=dynamic)


def body_of(model: Model) -> SequenceModule:
    """Return the sequence module of a model.

    Raises:
        ExportError: it has none, or one that cannot leave Python, and why.
    """
    body = model.rnn if isinstance(model, SequenceModel) else model
    if not isinstance(body, SequenceModule):
        advice = " Wrap it: tauflow.RNN(cell)." if isinstance(body, AbstractCell) else ""
        raise ExportError(
            f"{type(body).__name__} is no sequence module, and only those, with or without a head "
            f"of tauflow.models.SequenceModel, become programs.{advice}"
        )
    if is_dropping(model):
        raise ExportError("a program has no dropout. Call model.eval() first.")
    for whole in (model, body):
        if reason := beyond_parts(whole):
            words = f"{type(whole).__name__} has {reason}, which a program would leave out"
            raise ExportError(f"{words}. Move it into a part, such as the head.")
    for part in body.modules():
        for name, solver in vars(part).items():
            if isinstance(solver, GapSolver) and not solver.has_fixed_steps:
                raise ExportError(
                    f"{type(part).__name__} solves with {solver.solver!r} ({name}), whose number "
                    "of steps depends on the data; a program has a fixed one. Build the model with "
                    "solver='rk4' and enough substeps, and load the same weights."
                )
    return body


class Exported(nn.Module):
    """A model in the form in which it is traced: tensors by name, nothing checked.

    Args:
        model: the model.
        observed: whether it takes which features were measured; by default if the cell models that.
        gap: a gap that is always the same, and then no input; ``None`` takes ``dt``.
        scaling: mean and scale of the inputs, then of the outputs, for a graph that takes and gives
            numbers as they were before scaling, and NaN where an input is missing.
        folded: whether what only parameters enter is computed now, and constant from then on.

    Raises:
        ExportError: the model cannot leave Python, and why.
        ArgumentError: an argument makes no sense for this model.
    """

    def __init__(
        self,
        model: Model,
        *,
        observed: bool | None = None,
        gap: float | None = None,
        scaling: Sequence[Tensor] = (),
        folded: bool = False,
    ) -> None:
        super().__init__()
        self.folded = folded
        cell = body_of(model).cell
        if observed and not cell.uses_observed:
            raise no_missing_features("export", cell)
        self.observed = cell.uses_observed if observed is None else observed
        self.gap = gap
        with torch.no_grad():  # for what was computed with a gradient cannot be copied
            recompute_parameters(model)
        # A copy: what is exported does not change when the model is trained on, and a loop of
        # tensors that need gradients would be compiled before it runs.
        self.model = copy.deepcopy(model)
        make_permanent(self.model)  # as tracers take no parameter that a hook puts there
        self.model.requires_grad_(False).eval()
        state = self.model.state_dict()
        if other := named_other(state):
            raise ExportError(
                f"{type(model).__name__}: {other}. No graph can be made of that: export the "
                "model before it is quantised, and quantise the graph."
            )
        for name, tensor in state.items():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                raise ExportError(
                    f"{name} holds a number that is not finite. Train the model anew."
                )
        self.scaling = Scaling(scaling, self.like) if scaling else None
        self.output_size = self._width((1, 1) if self.body.return_sequences else (1,))

    def _width(self, axes: tuple[int, ...]) -> int:
        """Return the numbers of one output, of which the body's have these axes before."""
        model = self.model
        if not isinstance(model, SequenceModel):
            return model.output_size
        return head_width(model, axes, self.like)

    @property
    def scaled(self) -> bool:
        """Whether it takes and gives numbers as they were before scaling."""
        return self.scaling is not None

    @property
    def body(self) -> SequenceModule:
        """The sequence module."""
        return body_of(self.model)

    @property
    def input_size(self) -> int:
        """Numbers of one sample; one token id is one."""
        return self.body.input_size if self.embedding is None else 1

    @property
    def cells(self) -> list[AbstractCell]:
        """Its cells, layer by layer, forward first."""
        return cast(list[AbstractCell], list(self.body.cells))

    @property
    def like(self) -> Tensor:
        """A tensor of the model's dtype, on its device."""
        return next((p for p in self.model.parameters() if p.is_floating_point()), torch.empty(0))

    @property
    def embedding(self) -> nn.Module | None:
        """What turns token ids into inputs."""
        return self.model.embedding if isinstance(self.model, SequenceModel) else None

    def example(self, B: int, T: int) -> dict[str, Tensor]:
        """Return inputs (B, T, ...) and a state to trace with, by name."""
        like, body = self.like, self.body
        x = like.new_zeros(B, T, body.input_size)
        given = {"x": x}
        if self.embedding is not None:
            given["x"] = torch.zeros(B, T, 1, dtype=torch.int64, device=like.device)
        if self.gap is None:
            given["dt"] = like.new_ones(B, T)
        if self.observed:
            given["observed"] = torch.ones_like(x, dtype=torch.bool)
        return {**given, "h_in": like.new_zeros(B, body.state_size)}

    def read(self, x: Tensor, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what the first cell reads, and the gaps with an axis at the end."""
        if dt is None:
            assert self.gap is not None
            dt = torch.full_like(x[..., 0], self.gap, dtype=self.like.dtype)
        if self.scaling is not None:
            x = self.scaling.read(x)
        return x if self.embedding is None else self.embedding(x), dt.unsqueeze(-1)

    def written(self, y: Tensor) -> Tensor:
        """Return what the model says, given what the body does."""
        y = self.model.head(y) if isinstance(self.model, SequenceModel) else y
        return y if self.scaling is None else self.scaling.written(y)

    def starts(self, h: Tensor) -> list[Tensor]:
        """Split the state among the cells."""
        return list(h.split([cell.state_size for cell in self.cells], dim=-1))

    def projected(self, index: int, y: Tensor) -> Tensor:
        """Return what a layer emits, given what its cell does."""
        return self.body.projections[index](y) if self.body.proj_size else y


class ExportedSequence(Exported):
    """Whole sequences, (B, T, ...)."""

    def __init__(self, model: Model, **options: Any) -> None:
        super().__init__(model, **options)
        first = self.body.num_directions
        self.scanned = nn.ModuleList(
            ScannedCell(cell, observed=self.observed and index < first, folded=self.folded)
            for index, cell in enumerate(self.cells)
        )

    def forward(
        self,
        *,
        x: Tensor,
        h_in: Tensor,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs and the last state."""
        body, last = self.body, []
        still = None if mask is None else ~mask.unsqueeze(-1)
        if still is not None and self.embedding is not None:  # which looks every id up
            x = x.masked_fill(still, 0)
        y, dt = self.read(x, dt)
        if still is not None:  # padding may hold anything
            y, dt = y.masked_fill(still, 0.0), dt.masked_fill(still, 0.0)
        starts = self.starts(h_in)
        for layer in range(body.num_layers):
            outputs = []
            for direction in range(body.num_directions):
                index = layer * body.num_directions + direction
                seen = observed if layer == 0 else None
                run = self._backward if direction else self._forward
                out, h = run(index, y, starts[index], dt, mask, seen)
                outputs.append(out)
                last.append(h)
            y = torch.cat(outputs, dim=-1) if body.bidirectional else outputs[0]
        if not body.return_sequences:
            y = body._at_end(y)
        return self.written(y), torch.cat(last, dim=-1)

    def _forward(
        self,
        index: int,
        x: Tensor,
        h: Tensor,
        dt: Tensor,
        mask: Tensor | None,
        observed: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        states, last = self.scanned[index](x, h, dt, mask, observed)
        # A copy, as of a view of the states the tracer would ask how it lies in memory, which
        # differs with the sizes that are to stay free.
        y = self.cells[index].readout(states).clone(memory_format=torch.contiguous_format)
        return self.projected(index, y), last

    def _backward(
        self,
        index: int,
        x: Tensor,
        h: Tensor,
        dt: Tensor,
        mask: Tensor | None,
        observed: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        marks = [None if marked is None else marked.flip(1) for marked in (mask, observed)]
        y, last = self._forward(index, x.flip(1), h, gaps_reversed(dt, mask), *marks)
        return y.flip(1), last


class ExportedStep(Exported):
    """One step, (B, ...).

    Args:
        model: the model.
        thin: whether wired cells evaluate the synapses that exist and no others.
        **options: see :class:`Exported`.
    """

    def __init__(self, model: Model, *, thin: bool = False, **options: Any) -> None:
        super().__init__(model, **options)
        steps: list[nn.Module] = [*self.cells]
        if thin:  # of a copy, as the model stays what all is held against
            steps = [thinned(cell) for cell in copy.deepcopy(self.cells)]
        if self.folded:
            steps = [
                SteppedCell(cell, observed=self.observed and not index, folded=True)
                if isinstance(cell, AbstractCell)
                else cell
                for index, cell in enumerate(steps)
            ]
        self.steps = nn.ModuleList(steps)
        if self.body.bidirectional:
            raise ExportError(
                "a bidirectional model needs the whole sequence before its first output. Export "
                "the sequence, or build the model with bidirectional=False."
            )
        self._width((1,))  # a head may take samples with an axis of time only

    def forward(
        self,
        *,
        x: Tensor,
        h_in: Tensor,
        dt: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the output and the state after one sample."""
        states: list[Tensor] = []
        y, dt = self.read(x, dt)
        for index, h in enumerate(self.starts(h_in)):
            seen = () if observed is None or index else (observed,)
            cell = cast(Any, self.steps[index])
            states.append(cell.step(y, h, dt, *seen))
            y = self.projected(index, cell.readout(states[-1]))
        # Cloned, for a view of the state would be one name for two outputs.
        return self.written(y).clone(), torch.cat(states, dim=-1)


def export_sequence(
    whole: ExportedSequence, *, dynamic: str = "BT", mask: bool = True
) -> ExportedProgram:
    """Trace whole sequences; see :func:`program`."""
    if set(dynamic) - set("BT") or len(set(dynamic)) < len(dynamic):
        raise ArgumentError(
            f"dynamic names the sizes that are free, 'BT', 'B', 'T' or '', got {dynamic!r}."
        )
    B, T = (_TRACED[size] if size in dynamic else 1 for size in "BT")
    given = whole.example(B, T)
    if mask:
        valid = torch.ones(B, T, dtype=torch.bool, device=whole.like.device)
        given = {**given, "mask": valid}
    free = {axis: Dim(size, min=1) for axis, size in enumerate("BT") if size in dynamic}
    rows = {axis: size for axis, size in free.items() if axis == 0}
    given = {name: given[name] for name in INPUTS if name in given}
    return _export(whole, given, {name: rows if name == "h_in" else free for name in given})


def export_step(step: ExportedStep, *, dynamic: str = "B") -> ExportedProgram:
    """Trace one step; see :func:`program_step`."""
    if dynamic not in ("B", ""):
        raise ArgumentError(f"dynamic must be 'B' or '' for one step, got {dynamic!r}.")
    whole = step.example(_TRACED["B"] if dynamic else 1, 1)
    given = {name: v if name == "h_in" else v[:, 0] for name, v in whole.items()}
    rows = {0: Dim("B", min=1)} if dynamic else {}
    return _export(step, given, dict.fromkeys(given, rows))


def _export(module: Exported, given: dict[str, Tensor], shapes: dict[str, Any]) -> ExportedProgram:
    from torch._dynamo.exc import UserError  # which torch.export raises; slow to import

    with torch.no_grad():
        try:
            return torch.export.export(module, (), given, dynamic_shapes=shapes)
        except UserError as error:
            raise ExportError(
                f"torch cannot leave the sizes {sorted(_named(shapes))} free in this model: "
                f"{str(error).strip().splitlines()[0]} Export it with dynamic='B', or 'T', or ''."
            ) from error


def _named(shapes: dict[str, Any]) -> set[str]:
    """Return the names of the free sizes."""
    return {size.__name__ for axes in shapes.values() for size in axes.values()}
