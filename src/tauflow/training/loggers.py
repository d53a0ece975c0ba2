"""Callbacks that write the course of a training: CSV, TensorBoard, MLflow, Weights & Biases."""

import csv
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tauflow._internal.checks import check_one_of
from tauflow.errors import MissingExtraError

from .callbacks import Callback, Training


def _import_library(module: str, package: str) -> Any:
    """Import what a log is written by; it is the user's own, and no extra of this library.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{package} is not installed. Install it with: pip install {package}"
        ) from error


class _EpochLogger(Callback):
    """What the writers share: which numbers of an epoch there are to write.

    Args:
        folder: where files go.
        name: what the run is called.
        config: what the run is.
    """

    def __init__(self, folder: Path, name: str, config: dict[str, Any]) -> None:
        self.folder, self.name, self.config = folder, name, config

    def on_epoch(self, training: Training) -> None:
        """Write the latest row."""
        row = training.history[-1]
        self.write({k: v for k, v in row.items() if v is not None and k != "epoch"}, row["epoch"])

    def write(self, numbers: dict[str, float], epoch: int) -> None:
        """Write the numbers of an epoch."""
        raise NotImplementedError


class _CSVLogger(_EpochLogger):
    """``history.csv`` in the folder of the run, with a line per epoch."""

    def on_start(self, training: Training) -> None:
        self._write_all(training)

    def on_epoch(self, training: Training) -> None:
        self._write_all(training)

    def _write_all(self, training: Training) -> None:
        # Whole, as a run that goes on may have written a line for an epoch that was not saved.
        if not training.history:
            return
        with (self.folder / "history.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.DictWriter(file, list(training.history[0]))
            lines.writeheader()
            lines.writerows(training.history)


class _TensorBoardLogger(_EpochLogger):
    """Event files beside the run's own, for ``tensorboard --logdir``."""

    def on_start(self, training: Training) -> None:
        board = _import_library("torch.utils.tensorboard", "tensorboard")
        # What an earlier call wrote of epochs that were not saved is not shown.
        self.writer = board.SummaryWriter(str(self.folder), purge_step=training.epoch + 1)

    def write(self, numbers: dict[str, float], epoch: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def on_end(self, training: Training) -> None:
        if hasattr(self, "writer"):
            self.writer.close()


class _MLflowLogger(_EpochLogger):
    """A run of MLflow, where its own settings (``MLFLOW_TRACKING_URI``) say."""

    def on_start(self, training: Training) -> None:
        self.mlflow = _import_library("mlflow", "mlflow")
        self.mlflow.start_run(run_name=self.name)
        self.mlflow.log_params({k: str(v) for k, v in self.config.items()})

    def write(self, numbers: dict[str, float], epoch: int) -> None:
        self.mlflow.log_metrics(numbers, step=epoch)

    def on_end(self, training: Training) -> None:
        if hasattr(self, "mlflow"):
            self.mlflow.end_run()


class _WandbLogger(_EpochLogger):
    """A run of Weights & Biases, where its own settings (``WANDB_PROJECT``) say."""

    def on_start(self, training: Training) -> None:
        wandb = _import_library("wandb", "wandb")
        self.run = wandb.init(name=self.name, config=self.config, dir=str(self.folder))

    def write(self, numbers: dict[str, float], epoch: int) -> None:
        self.run.log(numbers, step=epoch)

    def on_end(self, training: Training) -> None:
        if hasattr(self, "run"):
            self.run.finish()


LOGGERS: dict[str, Callable[[Path, str, dict[str, Any]], Callback]] = {
    "csv": _CSVLogger,
    "tensorboard": _TensorBoardLogger,
    "mlflow": _MLflowLogger,
    "wandb": _WandbLogger,
}


def log_to(kind: str, folder: Path, *, name: str, config: dict[str, Any]) -> Callback:
    """Return a callback that logs every epoch with the writer of another library.

    The library is imported when training begins, and must be installed.

    Args:
        kind: ``"csv"``, ``"tensorboard"``, ``"mlflow"`` or ``"wandb"``.
        folder: where files go; it must be there by the time that training begins.
        name: what the run is called.
        config: what the run is, for trackers that show it.

    Raises:
        UnknownNameError: there is no such kind.
    """
    return LOGGERS[check_one_of(LOGGERS, log=kind)](folder, name, config)
