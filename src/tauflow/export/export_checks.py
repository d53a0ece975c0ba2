"""Check that a model can be exported: no adaptive solver, dropout or hooks."""

from torch import nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from tauflow.cells import AbstractCell
from tauflow.errors import ExportError
from tauflow.models import SequenceModel
from tauflow.models.wrappers import AbstractModelWrapper
from tauflow.sequence import SequenceModule
from tauflow.sequence.streaming.parts import find_extra_behaviour, has_active_dropout
from tauflow.solvers import FlowSolver

from .files import find_non_tensor

Model = SequenceModule | SequenceModel
_WEIGHT_HOOKS = (BasePruningMethod, SpectralNorm, WeightNorm)


def check_exportable(model: Model) -> SequenceModule:
    """Return the sequence module of a model that can be exported.

    Raises:
        ExportError: it has no sequence module, active dropout, behaviour beside that of its parts,
            parameters that hooks compute, or a solver whose number of steps depends on the data.
    """
    body = model.rnn if isinstance(model, SequenceModel) else model
    if not isinstance(body, SequenceModule):
        advice = " Wrap it: tauflow.RNN(cell)." if isinstance(body, AbstractCell) else ""
        if isinstance(body, AbstractModelWrapper):
            advice = (
                " It wraps trained models: train a single one, such as --model cfc, without "
                "--ensemble and --calibrate."
            )
        raise ExportError(
            f"{type(body).__name__} is no sequence module, and only those, with or without a head "
            f"of tauflow.models.SequenceModel, become programs.{advice}"
        )
    if has_active_dropout(model):
        raise ExportError("a program has no dropout. Call model.eval() first.")
    for module in (model, body):
        if reason := find_extra_behaviour(module):
            raise ExportError(
                f"{type(module).__name__} has {reason}, which a program would leave out. Move it "
                "into a part, such as the head."
            )
    _check_weight_hooks(model)
    for part in body.modules():
        for name, solver in vars(part).items():
            if isinstance(solver, FlowSolver) and not solver.has_fixed_steps:
                raise ExportError(
                    f"{type(part).__name__} solves with {solver.solver!r} ({name}), whose number "
                    "of steps depends on the data; a program has a fixed one. Build the model with "
                    "solver='rk4' and enough substeps, and load the same weights."
                )
    return body


def _check_weight_hooks(model: nn.Module) -> None:
    """Raise if a hook computes a parameter, which tracers do not take.

    Raises:
        ExportError: one does.
    """
    for part in model.modules():
        if any(isinstance(hook, _WEIGHT_HOOKS) for hook in part._forward_pre_hooks.values()):
            raise ExportError(
                f"a parameter of a {type(part).__name__} is computed by a hook. Make it permanent "
                "first, by prune.remove, remove_weight_norm or remove_spectral_norm of "
                "torch.nn.utils."
            )


def check_exported_state(model: nn.Module) -> None:
    """Refuse a state dict with something else than tensors, or with numbers that are not finite.

    Raises:
        ExportError: it has one, and what to do.
    """
    state = model.state_dict()
    if other := find_non_tensor(state):
        raise ExportError(
            f"{type(model).__name__}: {other}. No graph can be made of that: export the model "
            "before it is quantised, and quantise the graph."
        )
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ExportError(f"{name} holds a number that is not finite. Train the model again.")
