"""Parameters of a sequence module as they are drawn, and those of torch's that do not fit."""

from typing import Any

from torch import nn

from tauflow._internal.init_args import check_settable
from tauflow.cells.base import AbstractCell
from tauflow.cells.reinitialise import reset_submodules


class SequenceModuleBase(nn.Module):
    """What sequence modules have in common: parameters are drawn again, or loaded."""

    cells: nn.ModuleList
    projections: nn.ModuleList

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; of an option of the module or its cell this may be an error."""
        options = self.__dict__.get("options")
        if options is not None:
            options = {**getattr(self.cells[0], "options", {}), **options}
        check_settable(self, name, options)
        super().__setattr__(name, value)

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

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, *args: Any
    ) -> None:  # of torch, which collects the errors of all modules in the last argument
        super()._load_from_state_dict(state_dict, prefix, *args)
        if f"{prefix}weight_ih_l0" in state_dict:
            args[-1].append(
                f"{prefix}weight_ih_l0 is a weight of torch.nn.LSTM, GRU or RNN. Convert such a "
                "module with tauflow.from_torch(module)."
            )
