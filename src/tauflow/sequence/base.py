"""Parameters of a sequence module as they are drawn, and those of torch's that do not fit."""

from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.fixed_options import is_method, part_error
from tauflow._internal.init_args import check_settable
from tauflow._internal.rebuild import rebuild
from tauflow.cells.base import AbstractCell
from tauflow.cells.reinitialise import reset_submodules

from .explain import CallExplanation, explain_call
from .inputs import Lengths, PaddedOrPacked, TimeSteps
from .states import State

_Module = TypeVar("_Module", bound="SequenceModuleBase")
_SIZES = {"input_size", "hidden_size", "cell"}
"""Options whose attributes may say something else, such as the neurons of a wiring."""


class SequenceModuleBase(nn.Module):
    """What sequence modules have in common: parameters are drawn again, or loaded."""

    cells: nn.ModuleList
    projections: nn.ModuleList
    options: dict[str, Any]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; of an option of the module or its cell this may be an error."""
        options = self.__dict__.get("options")
        if name in ("cells", "projections") and options is not None:
            raise part_error(type(self).__name__, name)
        if options is not None:
            options = {**getattr(self.cells[0], "options", {}), **options}
        check_settable(self, name, options)
        super().__setattr__(name, value)

    def replace(self: _Module, **options: Any) -> _Module:
        """Return a module of the same class with other options and copies of the same parameters.

        See :meth:`AbstractCell.replace`; options are those of the module, with those of its cell
        where it builds its cell itself, as ``tauflow.LTC`` does.

        Args:
            **options: arguments of the constructor; the others are as this module has them.

        Raises:
            OptionError: there is no such option, or the value is not one.
            ArgumentError: parameters would have other shapes, or parts of the module were replaced,
                parametrized or given hooks.
        """
        current = {
            name: value
            if name in _SIZES or is_method(type(self), name)
            else getattr(self, name, value)
            for name, value in self.options.items()
        }
        return rebuild(self, current, options)

    def reset_parameters(self) -> None:
        """Draw all parameters again, from the global generator, as when the module was built.

        Raises:
            ArgumentError: a cell has parameters that no ``reset_parameters`` draws.
        """
        for cell in self.cells:
            assert isinstance(cell, AbstractCell)
            if type(cell).reset_parameters is AbstractCell.reset_parameters:
                reset_submodules(cell)
            else:
                cell.reset_parameters()
        reset_submodules(self.projections)

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each cell, layer by layer, forward first, as ``torch.nn.LSTM`` has."""
        return [list(cell.parameters()) for cell in self.cells]

    def flatten_parameters(self) -> None:
        """Do nothing: kernels read parameters where they are. Code for ``torch.nn`` calls it."""

    def explain(
        self,
        x: Tensor | PackedSequence,
        hx: State | None = None,
        *,
        dt: TimeSteps | None = None,
        t: PaddedOrPacked | None = None,
        mask: Tensor | None = None,
        lengths: Lengths | None = None,
        observed: PaddedOrPacked | None = None,
        episode_start: PaddedOrPacked | None = None,
    ) -> CallExplanation:
        """Return which kernel serves a call of each cell, and why the others do not.

        Nothing is run. Gradients, autocast and what else surrounds the call count as they are now.
        The result is a table when printed: ``print(rnn.explain(x, dt=dt))``.

        Args:
            x: as for ``forward``.
            hx: likewise.
            dt: likewise.
            t: likewise.
            mask: likewise.
            lengths: likewise.
            observed: likewise.
            episode_start: likewise.

        Raises:
            ShapeError, DtypeError, ArgumentError, TimeError: as ``forward`` raises.
        """
        masks = {"mask": mask, "lengths": lengths, "observed": observed}
        return explain_call(self, x, hx, dt=dt, t=t, **masks, episode_start=episode_start)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, *args: Any
    ) -> None:  # of torch, which collects the errors of all modules in the last argument
        super()._load_from_state_dict(state_dict, prefix, *args)
        if f"{prefix}weight_ih_l0" in state_dict:
            args[-1].append(
                f"{prefix}weight_ih_l0 is a weight of torch.nn.LSTM, GRU or RNN. Convert such a "
                "module with tauflow.from_torch(module)."
            )
