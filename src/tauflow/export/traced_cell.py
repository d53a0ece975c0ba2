"""One step of a cell as a flat graph, and that graph scanned over time, as programs hold it.

PyTorch's ``scan`` is a prototype. Nothing else in the library touches it, and :func:`scan_steps` is
the only place that would change with it.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from tauflow.cells import AbstractCell
from tauflow.errors import ExportError, TauflowError


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
    # The state comes in as it goes out: in memory of its own, and not as a part of other cells'.
    last, states = scan(
        body, h.contiguous(), tuple(tensor.transpose(0, 1) for tensor in every), dim=0
    )
    return states.transpose(0, 1), last


class _StepModule(nn.Module):
    def __init__(self, cell: AbstractCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, h: Tensor, dt: Tensor, observed: Tensor | None = None) -> Tensor:
        seen = () if observed is None else (observed,)
        after: Tensor = cast(Any, self.cell).step(x, h, dt, *seen)
        return after


def _trace_step(
    cell: AbstractCell, example_inputs: tuple[Tensor, ...]
) -> torch.export.ExportedProgram:
    """Return the program of a cell's step, for any number of sequences.

    Raises:
        ExportError: torch cannot trace it, or it draws random numbers.
    """
    name = f"{type(cell).__name__}.step"
    shapes = tuple({0: torch.export.Dim("B")} for _ in example_inputs)
    with torch.no_grad():
        try:
            program = torch.export.export(_StepModule(cell), example_inputs, dynamic_shapes=shapes)
        except TauflowError:  # which says itself what is wrong
            raise
        except Exception as error:  # of many classes, and of what the step calls
            reason = next(iter(str(error).strip().splitlines()), "").rstrip(".")
            raise ExportError(
                f"torch cannot trace {name}: {type(error).__name__}: {reason}. Files hold steps of "
                "torch's operations alone, without branches on values and without gradients."
            ) from error
    drawn = [node for node in program.graph.nodes if _is_random(node)]
    if drawn and _is_nondeterministic(program, example_inputs):
        raise ExportError(
            f"{name} draws random numbers ({drawn[0].target}), and what a file computes is the "
            "same at every call. Draw in training only: if self.training."
        )
    return program


def _is_random(node: fx.Node) -> bool:
    """Whether an operation draws random numbers, or would in training, as dropout."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _is_nondeterministic(
    program: torch.export.ExportedProgram, example_inputs: Sequence[Tensor]
) -> bool:
    """Whether a program gives something else when it is called again."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        inputs = [
            torch.rand_like(one) if one.is_floating_point() else one for one in example_inputs
        ]
        first, second = (program.module()(*inputs) for _ in range(2))
    return not torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)


class TracedCell(nn.Module):
    """A cell's step traced once, in two graphs: of what no step changes, and of the rest.

    Args:
        cell: the cell; its parameters stay where they are.
        observed: whether its step gets the mask of measured features.
        is_folded: whether what only parameters enter, such as the exponential of a matrix of them,
            is computed now, and constant from then on.
    """

    def __init__(self, cell: AbstractCell, *, observed: bool, is_folded: bool) -> None:
        super().__init__()
        like = next((p for p in cell.parameters() if p.is_floating_point()), torch.empty(0))
        B = 3  # not a size that tracers specialise on, and unlike most sizes of cells
        x = like.new_zeros(B, cell.input_size)
        given = [x, like.new_zeros(B, cell.state_size), like.new_ones(B, 1)]
        if observed:
            given.append(torch.ones_like(x, dtype=torch.bool))
        traced = _trace_step(cell, tuple(given))
        self.cell = cell
        self._targets: list[str] = []
        signature = traced.graph_signature
        self._sources = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        for name, target in signature.inputs_to_lifted_tensor_constants.items():
            self._sources[name] = f"_{name}"
            self.register_buffer(f"_{name}", traced.constants[target], persistent=False)
        self._fixed, self._step = _split_graph(traced.graph, set(signature.user_inputs))
        self._folded_count = 0
        if is_folded:
            with torch.no_grad():
                values = self.fixed()
            self._folded_count = len(values)
            for index, value in enumerate(values):
                self.register_buffer(f"folded_{index}", value, persistent=False)

    def fixed(self) -> tuple[Tensor, ...]:
        """Return what only parameters enter."""
        if self._folded_count:
            return tuple(self.get_buffer(f"folded_{index}") for index in range(self._folded_count))
        values: tuple[Tensor, ...] = self._fixed(*map(self._get_tensor, self._sources.values()))
        return values

    def _get_tensor(self, target: str) -> Tensor:
        owner, _, name = target.rpartition(".")
        tensor: Tensor = getattr(self.get_submodule(owner), name)
        return tensor


class SteppedCell(TracedCell):
    """A cell, taken one step at a time."""

    def step(self, x: Tensor, h: Tensor, dt: Tensor, *observed: Tensor) -> Tensor:
        """Return the state after one step."""
        after: Tensor = self._step(x, h, dt, *observed, *self.fixed())
        return after

    def readout(self, h: Tensor) -> Tensor:
        """Return what the cell emits in a state."""
        return self.cell.readout(h)


class ScannedCell(TracedCell):
    """A cell, taken over sequences of any length.

    Tracing the flat graph again inside a loop takes a fifth of the time that the cell's own step
    takes, and what only parameters enter, such as the conductances of all synapses, is computed
    once and not at every step.
    """

    def forward(
        self,
        x: Tensor,
        h: Tensor,
        dt: Tensor,
        mask: Tensor | None,
        observed: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the states after every step, (B, T, S), and the last one, for gaps (B, T, 1)."""
        fixed = self.fixed()

        def step(h: Tensor, x: Tensor, dt: Tensor, *observed: Tensor) -> Any:
            return self._step(x, h, dt, *observed, *fixed)

        seen = () if observed is None else (observed,)
        return scan_steps(step, h, (x, dt, *seen), mask)


def _split_graph(
    graph: fx.Graph, varying_inputs: set[Any]
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a flat graph into what its inputs do not touch, and the rest, which reads that."""
    varies = {
        node for node in graph.nodes if node.op == "placeholder" and node.name in varying_inputs
    }
    for node in graph.nodes:
        if not varies.isdisjoint(node.all_input_nodes):
            varies.add(node)
    fixed, copies = _copy_fixed_nodes(graph, varies)
    read = [n for n in copies if any(u in varies or u.op == "output" for u in n.users)]
    rest = fx.Graph()
    inside = {
        n: rest.placeholder(n.name) for n in graph.nodes if n in varies and _is_placeholder(n)
    }
    given = {copies[n]: rest.placeholder(f"fixed_{n.name}") for n in _unique_copies(read, copies)}
    inside |= {node: given[copies[node]] for node in read}
    for node in graph.nodes:
        if node.op == "output":
            rest.output(inside[node.args[0][0]])
        elif node in varies and not _is_placeholder(node):
            inside[node] = rest.node_copy(node, inside.__getitem__)
    # Cloned, as what enters a loop must not share memory, and some of these are views of others.
    fixed.output(tuple(fixed.call_function(torch.clone, (copy,)) for copy in given))
    return fx.GraphModule({}, fixed), fx.GraphModule({}, rest)


def _is_placeholder(node: fx.Node) -> bool:
    return node.op == "placeholder"


def _unique_copies(nodes: list[fx.Node], copies: dict[fx.Node, fx.Node]) -> list[fx.Node]:
    """Return one node for each of their copies, in order."""
    return list({copies[node]: node for node in nodes}.values())


def _copy_fixed_nodes(
    graph: fx.Graph, varies: set[fx.Node]
) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """Copy the nodes that do not vary; those that compute the same, in every sub-step, once."""
    fixed = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    same: dict[str, fx.Node] = {}
    for node in graph.nodes:
        if node.op == "output" or node in varies:
            continue
        copy = fixed.node_copy(node, copies.__getitem__)
        first = copy
        if node.op != "placeholder":
            first = same.setdefault(f"{copy.target}{copy.args}{copy.kwargs}", copy)
        if first is not copy:
            fixed.erase_node(copy)
        copies[node] = first
    return fixed, copies
