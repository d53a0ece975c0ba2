"""Find the sequence module inside a model, and step all its layers."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from tauflow._internal.checks import missing_features_error
from tauflow.cells.base import AbstractCell
from tauflow.cells.contract_checks import call_initial_state
from tauflow.errors import ArgumentError
from tauflow.sequence import RNN, SequenceModule
from tauflow.sequence.inputs import SequenceInputs, infer_observed


def unwrap_sequence_module(where: str, model: Any) -> Any:
    """Return the sequence module of a model around one, and anything else as it is.

    Whole models (:class:`tauflow.models.AbstractWholeModel`) are known by their ``is_causal``, as
    this folder does not import theirs. One that makes its answer of a sequence module, sample by
    sample, is a model around it, such as a convolutional one.

    Args:
        where: name of the caller, for messages.
        model: a cell, a sequence module, a model or anything else.

    Raises:
        ArgumentError: it is a whole model, or around one, without a state that goes on from each
            sample to the next.
    """
    if isinstance(model, AbstractCell | SequenceModule):
        return model
    body, is_causal = getattr(model, "rnn", None), getattr(model, "is_causal", None)
    if isinstance(body, SequenceModule) and is_causal is not False:
        return body
    if is_causal is not None:
        raise _no_recurrent_state_error(where, model, body)
    is_model = hasattr(body, "is_causal") or hasattr(body, "rnn")
    return unwrap_sequence_module(where, body) if is_model else model


def _no_recurrent_state_error(where: str, model: object, inner: object) -> ArgumentError:
    name = type(model).__name__
    instead = "Give a cell, or a sequence module such as tauflow.LTC"
    if isinstance(inner, SequenceModule):
        instead += f"; the rnn inside of {name} is one, with its own inputs"
    return ArgumentError(
        f"{where}: {name} is no network with a state that goes on from each sample of the data to "
        f"the next. {instead}."
    )


def unwrap_forward_module(where: str, model: Any, *, takes_cells: bool = True) -> SequenceModule:
    """Return the sequence module of one direction that a model is, or is around.

    Args:
        where: name of the caller, for messages.
        model: a sequence module, a model around one, or a cell, which is wrapped in a module.
        takes_cells: whether it may be a cell.

    Raises:
        ArgumentError: it is anything else, or the module is bidirectional.
    """
    module = unwrap_sequence_module(where, model)
    if isinstance(module, AbstractCell) and takes_cells:
        # single steps do not repay a fused kernel's compilation
        return RNN(module, backend="reference")
    if not isinstance(module, SequenceModule):
        expected = "a cell or " * takes_cells + "a sequence module of one direction"
        raise ArgumentError(
            f"{where}: expected {expected}, such as tauflow.LTC, or a model around one, got "
            f"{type(model).__name__}."
        )
    if module.bidirectional:
        raise ArgumentError(
            f"{where}: a bidirectional module reads a sequence from its end too, and has no state "
            "that goes on. Give a module of one direction; module.cells[0] is the forward cell of "
            "layer 0."
        )
    return module


def resolve_observed(where: str, cell: AbstractCell, inputs: SequenceInputs) -> SequenceInputs:
    """Return a call as a module of the cell runs it: NaN is missing, where the cell knows of that.

    Args:
        where: name of the caller, for messages.
        cell: of the first layer.
        inputs: the call.

    Raises:
        ArgumentError: it says what was measured, which the cell does not take.
    """
    if cell.uses_observed:
        return infer_observed(inputs)
    if inputs.observed is not None:
        raise missing_features_error(where, cell)
    return inputs


def iter_layer_steps(
    module: SequenceModule,
    x: Tensor,
    h: Tensor | None,
    dt: Tensor,
    observed: Tensor | None = None,
) -> Iterator[tuple[AbstractCell, Tensor, Tensor, Tensor]]:
    """Step all layers, each reading what the one below emits; yield cell, input, before, after.

    Args:
        module: of one direction, in evaluation mode: nothing is dropped between layers.
        x: a sample of each sequence, (B, I).
        h: states of all layers, (B, S); ``None`` to start each from its own initial one.
        dt: time steps, (B, 1).
        observed: (B, I) bool, which features were measured.
    """
    cells = module.each_cell
    starts = [None] * len(cells) if h is None else h.split([c.state_size for c in cells], dim=-1)
    features = () if observed is None else (observed,)  # of the data, which layer 0 alone reads
    for layer, (cell, start) in enumerate(zip(cells, starts, strict=True)):
        before = call_initial_state(cell, x) if start is None else start
        after = cell.step(x, before, dt, *features)
        yield cell, x, before, after
        x, features = cell.readout(after), ()
        if module.proj_size:
            x = module.projections[layer](x)
