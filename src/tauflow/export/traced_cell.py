"""Traced cells: step and readout as flat graphs, and a scan of the step over time.

PyTorch's ``scan`` is a prototype. Nothing else in the library touches it, and :func:`scan_steps` is
the only place that would change with it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from tauflow.cells import AbstractCell
from tauflow.errors import ExportError, TauflowError

TRACE_SIZES = {"B": 3, "T": 5}
"""Sizes to trace with: none that tracers specialise on, and unlike most sizes of cells."""


def scan_steps(
    step: Any, h: Tensor, per_step: Sequence[Tensor], mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the states after every step, (B, T, S), and the last one.

    Args:
        step: ``step(h, *tensors)``, with tensors of one step; pure.
        h: state before the first step, (B, S).
        per_step: tensors of all steps, (B, T, ...).
        mask: (B, T), false where the state is kept; or ``None``.

    Raises:
        ExportError: this PyTorch has no scan.
    """
    try:
        from torch._higher_order_ops.scan import scan
    except ImportError as error:
        raise ExportError(
            f"PyTorch {torch.__version__} has no scan operator, which holds the loop over time. "
            "Upgrade it: pip install --upgrade torch"
        ) from error

    def body(h: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        tensors, valid = (inputs, None) if mask is None else (inputs[:-1], inputs[-1])
        after = step(h, *tensors)
        after = after.clone() if valid is None else torch.where(valid, after, h)
        return after, after.clone()  # the two must not share memory, nor with what came in

    every = (*per_step,) if mask is None else (*per_step, mask.unsqueeze(-1))
    # The state comes in as it goes out: in separate memory, and not as a part of other cells'.
    last, states = scan(
        body, h.contiguous(), tuple(tensor.transpose(0, 1) for tensor in every), dim=0
    )
    return states.transpose(0, 1), last


class TracedCell(nn.Module):
    """A cell as two flat graphs, in which what only parameters enter is computed already.

    Tracing the flat graph again inside a loop takes a fifth of the time that the cell's own step
    takes.

    Args:
        cell: the cell, or a module with the same ``step`` and ``readout``.
        sizes: widths of its input and state.
        like: a tensor of its dtype, on its device.
        observed: whether its step gets the mask of measured features.
        axes: names of the axes before the last one of what its readout gets, ``"BT"`` or ``"B"``.
        dynamic: those of them whose sizes are free; the others are 1.
    """

    def __init__(
        self,
        cell: AbstractCell,
        sizes: tuple[int, int],
        like: Tensor,
        *,
        observed: bool,
        axes: str,
        dynamic: str,
    ) -> None:
        super().__init__()
        B = TRACE_SIZES["B"]
        x, h = (like.new_zeros(B, size) for size in sizes)
        example_inputs = [x, h, like.new_ones(B, 1)]
        if observed:
            example_inputs.append(torch.ones_like(x, dtype=torch.bool))
        self._step = _FoldedFunction(cell, "step", example_inputs, {0: Dim("B")})
        lengths = (TRACE_SIZES[axis] if axis in dynamic else 1 for axis in axes)
        free = {number: Dim(axis) for number, axis in enumerate(axes) if axis in dynamic}
        states = like.new_zeros(*lengths, sizes[1])
        self._readout = _FoldedFunction(cell, "readout", [states], free)

    def step(self, x: Tensor, h: Tensor, dt: Tensor, *observed: Tensor) -> Tensor:
        """Return the state after one step."""
        return self._step(x, h, dt, *observed)  # type: ignore[no-any-return]

    def scan(
        self, x: Tensor, h: Tensor, dt: Tensor, mask: Tensor | None, observed: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the states after every step, (B, T, S), and the last one, for dt (B, T, 1)."""
        graph, constants = self._step.graph_module, self._step.constants()

        def step(h: Tensor, x: Tensor, dt: Tensor, *observed: Tensor) -> Any:
            return graph(x, h, dt, *observed, *constants)

        masks = () if observed is None else (observed,)
        return scan_steps(step, h, (x, dt, *masks), mask)

    def readout(self, h: Tensor) -> Tensor:
        """Return what the cell emits in states."""
        return self._readout(h)  # type: ignore[no-any-return]


class _FoldedFunction(nn.Module):
    """A method of a cell as a flat graph, which reads what only parameters enter as constants."""

    def __init__(
        self,
        cell: AbstractCell,
        method: str,
        example_inputs: Sequence[Tensor],
        free: Mapping[int, Any],
    ) -> None:
        super().__init__()
        program = _trace(cell, method, tuple(example_inputs), free)
        with torch.no_grad():
            self.graph_module, constants = _fold_constants(program)
        self.names = [f"constant_{index}" for index in range(len(constants))]
        for name, value in zip(self.names, constants, strict=True):
            # In separate memory: what enters a loop must not share it, nor what is saved.
            constant = value.clone(memory_format=torch.contiguous_format)
            self.register_buffer(name, constant, persistent=False)

    def constants(self) -> list[Tensor]:
        """Return what only parameters enter."""
        return [self.get_buffer(name) for name in self.names]

    def forward(self, *inputs: Tensor) -> Any:
        """Call the method."""
        return self.graph_module(*inputs, *self.constants())


class _Method(nn.Module):
    """A method of a module, as what tracers take."""

    def __init__(self, cell: nn.Module, method: str) -> None:
        super().__init__()
        self.cell, self.method = cell, method

    def forward(self, *inputs: Tensor) -> Any:
        return getattr(self.cell, self.method)(*inputs)


def _trace(
    cell: AbstractCell, method: str, example_inputs: tuple[Tensor, ...], free: Mapping[int, Any]
) -> ExportedProgram:
    """Return the program of a method of a cell, for any sizes of the free axes.

    Raises:
        ExportError: torch cannot trace it, or it draws random numbers.
    """
    name = f"{type(cell).__name__}.{method}"
    shapes = (tuple(free for _ in example_inputs),)  # of the one argument *inputs
    with torch.no_grad():
        try:
            program = torch.export.export(
                _Method(cell, method), example_inputs, dynamic_shapes=shapes
            )
        except TauflowError:  # which says itself what is wrong
            raise
        except Exception as error:  # of many classes, and of what the method calls
            reason = next(iter(str(error).strip().splitlines()), "").rstrip(".")
            raise ExportError(
                f"torch cannot trace {name}: {type(error).__name__}: {reason}. Files hold steps of "
                "torch's operations alone, without branches on values and without gradients."
            ) from error
    drawn = [node for node in program.graph.nodes if _is_random(node)]
    if drawn and _is_nondeterministic(program.module(), example_inputs):
        raise ExportError(
            f"{name} draws random numbers ({drawn[0].target}), and what a file computes is the "
            "same at every call. Draw in training only: if self.training."
        )
    return program


def _is_random(node: fx.Node) -> bool:
    """Whether an operation draws random numbers, or would in training, as dropout."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _is_nondeterministic(call: Callable[..., Tensor], example_inputs: Sequence[Tensor]) -> bool:
    """Whether a function gives something else when it is called again."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        inputs = [
            torch.rand_like(example_value) if example_value.is_floating_point() else example_value
            for example_value in example_inputs
        ]
        first, second = (call(*inputs) for _ in range(2))
    return not torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)


def _fold_constants(program: ExportedProgram) -> tuple[fx.GraphModule, list[Tensor]]:
    """Return a program's graph with what its inputs do not touch as further inputs, and these.

    What is computed alike in several places, as in every sub-step of a solver, is one constant.
    """
    graph, signature = program.graph, program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names |= signature.inputs_to_lifted_tensor_constants
    tensors = {**program.state_dict, **program.constants}
    values: dict[fx.Node, Any] = {}
    same: dict[str, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name in names:
            values[node] = tensors[names[node.name]]
        elif node.op == "call_function" and all(n in values for n in node.all_input_nodes):
            first = same.setdefault(f"{node.target}{node.args}{node.kwargs}", node)
            if first is node:
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            else:
                node.replace_all_uses_with(first)
                graph.erase_node(node)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    last, constants = placeholders[-1], list[Tensor]()
    for node in list(values):
        if any(user not in values for user in node.users):
            with graph.inserting_after(last):
                last = graph.placeholder(f"constant_{len(constants)}")
            node.replace_all_uses_with(last, delete_user_cb=lambda user: user not in values)
            constants.append(values[node])
    for node in reversed(list(values)):
        graph.erase_node(node)
    (output,) = (node for node in graph.nodes if node.op == "output")
    output.args = (output.args[0][0],)
    return fx.GraphModule({}, graph), constants
