"""The callback that writes the course of a training for TensorBoard."""

import importlib
from pathlib import Path

from tauflow._internal.checks import check_one_of
from tauflow.errors import MissingExtraError

from .callbacks import Callback, Training


class _TensorBoardLogger(Callback):
    """Event files beside the run's own, for ``tensorboard --logdir``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_start(self, training: Training) -> None:
        try:  # the user's own library, and no extra of this one
            board = importlib.import_module("torch.utils.tensorboard")
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "tensorboard is not installed. Install it with: pip install tensorboard"
            ) from error
        # What an earlier call wrote of epochs that were not saved is not shown.
        self.writer = board.SummaryWriter(str(self.folder), purge_step=training.epoch + 1)

    def on_epoch(self, training: Training) -> None:
        row = training.history[-1]
        for name, value in row.items():
            if value is not None and name != "epoch":
                self.writer.add_scalar(name, value, row["epoch"])
        self.writer.flush()

    def on_end(self, training: Training) -> None:
        if hasattr(self, "writer"):
            self.writer.close()


def log_to(kind: str, folder: Path) -> Callback:
    """Return a callback that logs every epoch with the writer of another library.

    The library is imported when training begins, and must be installed. For other trackers pass a
    function to ``callbacks``, which is called with each row of the history.

    Args:
        kind: ``"tensorboard"``.
        folder: where files go; it must be there by the time that training begins.

    Raises:
        UnknownNameError: there is no such kind.
    """
    check_one_of(("tensorboard",), log=kind)
    return _TensorBoardLogger(folder)
