"""Models as programs of ``torch.export``, for any batch size and length, or for one step."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from tauflow._internal.checks import check_finite, missing_features_error
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError, ExportError
from tauflow.models import SequenceModel
from tauflow.sequence import SequenceModule
from tauflow.sequence.run_call import get_last_outputs
from tauflow.sequence.time_steps import reverse_dt

from .export_checks import Model, check_exportable, check_exported_state
from .scaling import IOScaling
from .sparse import to_sparse
from .traced_cell import TRACE_SIZES, TracedCell


class ExportableModel(nn.Module):
    """A model in the form in which it is traced: tensors by name, nothing checked.

    What only parameters of its cells enter is computed, and constant from then on.

    Args:
        model: the model.
        observed: whether it takes which features were measured; by default if the cell models that.
        fixed_dt: a time step that is always the same, and then no input; ``None`` takes ``dt``.
        scaling: mean and scale of the inputs, then of the outputs, for a graph that takes and gives
            numbers as they were before scaling, and NaN where an input is missing.
        dynamic: which sizes are free, of those of :attr:`axes`, by default all; the others are 1.
        device: where to; by default where the model is.
        is_sparse: whether wired cells evaluate the synapses that exist and no others.

    Raises:
        ExportError: the model cannot leave Python, and why.
        ArgumentError: an argument makes no sense for this model.
    """

    axes: ClassVar[str]
    """The axes of the inputs before the last one: ``"BT"`` of sequences, ``"B"`` of one step."""

    def __init__(
        self,
        model: Model,
        *,
        observed: bool | None = None,
        fixed_dt: float | None = None,
        scaling: Sequence[Tensor] = (),
        dynamic: str | None = None,
        device: str | None = None,
        is_sparse: bool = False,
    ) -> None:
        super().__init__()
        self.dynamic = self.axes if dynamic is None else dynamic
        if set(self.dynamic) - set(self.axes) or len(set(self.dynamic)) < len(self.dynamic):
            raise ArgumentError(
                f"dynamic names the sizes that are free, of {self.axes!r}, or '' for none, got "
                f"{dynamic!r}."
            )
        cell = check_exportable(model).cell
        if observed and not cell.uses_observed:
            raise missing_features_error("export", cell)
        self.observed = cell.uses_observed if observed is None else observed
        self.fixed_dt = None if fixed_dt is None else check_finite(fixed_dt=fixed_dt)
        # A copy: what is exported does not change when the model is trained on, and a loop of
        # tensors that need gradients would be compiled before it runs.
        model = copy.deepcopy(model)
        model.requires_grad_(False).eval().to(device)
        check_exported_state(model)
        self._model = (model,)  # not a part, whose matrices would be exported too
        body = self.sequence_module
        self.projections = body.projections
        self.embedding = model.embedding if isinstance(model, SequenceModel) else None
        self.head = model.head if isinstance(model, SequenceModel) else None
        self.scaling = IOScaling(scaling, self.like) if scaling else None
        self.output_size = self._compute_output_size((1, 1) if body.return_sequences else (1,))
        self.traced_cells = nn.ModuleList(self._trace_cells(is_sparse=is_sparse))

    def _trace_cells(self, *, is_sparse: bool) -> Iterator[TracedCell]:
        for index, cell in enumerate(self.cells):
            yield TracedCell(
                to_sparse(copy.deepcopy(cell)) if is_sparse else cell,
                (cell.input_size, cell.state_size),
                self.like,
                observed=self.observed and index < self.sequence_module.num_directions,
                axes=self.axes,
                dynamic=self.dynamic,
            )

    @torch.no_grad()
    def _compute_output_size(self, axes: tuple[int, ...]) -> int:
        """Return the width O of the outputs, of which the body's have these axes before.

        Raises:
            ExportError: the head takes no such input, or gives something other than (*axes, O).
        """
        if self.head is None:
            return self.sequence_module.output_size
        probe = self.like.new_zeros(*axes, self.sequence_module.output_size)
        kind, inputs = (
            type(self.head).__name__,
            f"outputs of the body of shape {tuple(probe.shape)}",
        )
        try:
            y: object = self.head(probe)
        except (RuntimeError, TypeError, ValueError, LookupError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            problem = f"does not take {inputs}: {reason}"
        else:
            if isinstance(y, Tensor) and y.ndim and tuple(y.shape[:-1]) == axes:
                return y.shape[-1]
            result = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            problem = f"makes {result} of {inputs}, expected ({', '.join(map(str, axes))}, O)."
        raise ExportError(
            f"the head, a {kind}, {problem} Export the body, model.rnn, by itself, or give the "
            "model a head that works on the last axis alone."
        )

    @property
    def model(self) -> Model:
        """The model."""
        return self._model[0]

    @property
    def is_scaled(self) -> bool:
        """Whether it takes and gives numbers as they were before scaling."""
        return self.scaling is not None

    @property
    def sequence_module(self) -> SequenceModule:
        """The sequence module."""
        model = self.model
        return cast(SequenceModule, model.rnn if isinstance(model, SequenceModel) else model)

    @property
    def input_size(self) -> int:
        """Numbers of one sample; one token id is one."""
        return self.sequence_module.input_size if self.embedding is None else 1

    @property
    def cells(self) -> list[AbstractCell]:
        """Its cells, layer by layer, forward first."""
        return cast(list[AbstractCell], list(self.sequence_module.cells))

    @property
    def like(self) -> Tensor:
        """A tensor of the model's dtype, on its device."""
        return next((p for p in self.model.parameters() if p.is_floating_point()), torch.empty(0))

    @property
    def trace_sizes(self) -> tuple[int, ...]:
        """Sizes of the axes to trace with."""
        return tuple(TRACE_SIZES[axis] if axis in self.dynamic else 1 for axis in self.axes)

    def make_example_inputs(self, *sizes: int, mask: bool = False) -> dict[str, Tensor]:
        """Return inputs (*sizes, ...) and a state to trace with, in the order of a program."""
        like, body = self.like, self.sequence_module
        x = like.new_zeros(*sizes, body.input_size)
        inputs = {"x": x if self.embedding is None else x.new_zeros(*sizes, 1, dtype=torch.int64)}
        if self.fixed_dt is None:
            inputs["dt"] = like.new_ones(sizes)
        if mask:
            inputs["mask"] = like.new_ones(sizes, dtype=torch.bool)
        if self.observed:
            inputs["observed"] = torch.ones_like(x, dtype=torch.bool)
        return {**inputs, "h_in": like.new_zeros(sizes[0], body.state_size)}

    def embed_inputs(self, x: Tensor, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what the first cell reads, and the time steps with an axis at the end."""
        if dt is None:
            assert self.fixed_dt is not None
            dt = torch.full_like(x[..., 0], self.fixed_dt, dtype=self.like.dtype)
        if self.scaling is not None:
            x = self.scaling.scale_inputs(x)
        return x if self.embedding is None else self.embedding(x), dt.unsqueeze(-1)

    def apply_head(self, y: Tensor) -> Tensor:
        """Return what the model says, given what the body does."""
        y = y if self.head is None else self.head(y)
        return y if self.scaling is None else self.scaling.unscale_outputs(y)

    def starts(self, h: Tensor) -> list[Tensor]:
        """Split the state among the cells."""
        return list(h.split([cell.state_size for cell in self.cells], dim=-1))

    def apply_projection(self, index: int, y: Tensor) -> Tensor:
        """Return what a layer emits, given what its cell does."""
        projected: Tensor = self.projections[index](y) if self.sequence_module.proj_size else y
        return projected


class ExportedSequence(ExportableModel):
    """Whole sequences, (B, T, ...)."""

    axes = "BT"

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
        body, last = self.sequence_module, []
        is_padding = None if mask is None else ~mask.unsqueeze(-1)
        if is_padding is not None and self.embedding is not None:  # which looks every id up
            x = x.masked_fill(is_padding, 0)
        y, dt = self.embed_inputs(x, dt)
        if is_padding is not None:  # padding may hold anything
            y, dt = y.masked_fill(is_padding, 0.0), dt.masked_fill(is_padding, 0.0)
        starts = self.starts(h_in)
        for layer in range(body.num_layers):
            outputs = []
            for direction in range(body.num_directions):
                index = layer * body.num_directions + direction
                cell_observed = observed if layer == 0 else None
                out, h = self._scan(
                    index, y, starts[index], dt, mask, cell_observed, is_reversed=direction == 1
                )
                outputs.append(out)
                last.append(h)
            y = torch.cat(outputs, dim=-1) if body.bidirectional else outputs[0]
        if not body.return_sequences:
            y = get_last_outputs(body, y)
        return self.apply_head(y), torch.cat(last, dim=-1)

    def _scan(
        self,
        index: int,
        x: Tensor,
        h: Tensor,
        dt: Tensor,
        mask: Tensor | None,
        observed: Tensor | None,
        *,
        is_reversed: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs of a cell and its last state."""
        if is_reversed:
            x, dt = x.flip(1), reverse_dt(dt, mask)
            mask = None if mask is None else mask.flip(1)
            observed = None if observed is None else observed.flip(1)
        cell = cast(TracedCell, self.traced_cells[index])
        states, last = cell.scan(x, h, dt, mask, observed)
        # A copy, as of a view of the states the tracer would ask how it lies in memory, which
        # differs with the sizes that are to stay free.
        y = cell.readout(states).clone(memory_format=torch.contiguous_format)
        y = self.apply_projection(index, y)
        return y.flip(1) if is_reversed else y, last


class ExportedStep(ExportableModel):
    """One step, (B, ...)."""

    axes = "B"

    def __init__(self, model: Model, **options: Any) -> None:
        super().__init__(model, **options)
        if self.sequence_module.bidirectional:
            raise ExportError(
                "a bidirectional model needs the whole sequence before its first output. Export "
                "the sequence, or build the model with bidirectional=False."
            )
        self._compute_output_size((1,))  # a head may take samples with an axis of time only

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
        y, dt = self.embed_inputs(x, dt)
        for index, h in enumerate(self.starts(h_in)):
            cell_observed = () if observed is None or index else (observed,)
            cell = cast(TracedCell, self.traced_cells[index])
            states.append(cell.step(y, h, dt, *cell_observed))
            y = self.apply_projection(index, cell.readout(states[-1]))
        # Cloned, for a view of the state would be one name for two outputs.
        return self.apply_head(y).clone(), torch.cat(states, dim=-1)


EXPORTED_MODELS: dict[str, type[ExportableModel]] = {
    "sequence": ExportedSequence,
    "step": ExportedStep,
}
"""Forms of a program, by name."""
