"""``python -m tauflow.pretraining``: train the forecaster on generated series."""

import math
import subprocess
from pathlib import Path
from typing import Annotated

import torch
import typer

from .train import PretrainingRun, TrainingOptions
from .weights import export_training

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
Folder = Annotated[Path, typer.Argument(help="Of the checkpoint and the record.")]


@app.command()
def train(
    folder: Folder,
    hours: Annotated[float, typer.Option(help="Process hours of this run.")] = math.inf,
    steps: Annotated[int, typer.Option(min=1, help="Of the optimizer, in all.")] = 1_000_000,
    decay_steps: Annotated[
        int, typer.Option(min=0, help="Last steps, over which the learning rate falls to zero.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and series.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 1000,
) -> None:
    """Train on one thread; a folder with a checkpoint is taken up where it stopped."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    options = TrainingOptions(
        steps=steps, decay_steps=decay_steps, seed=seed, every=every, hours=hours
    )
    PretrainingRun(folder, options, _find_commit(), typer.echo).run()


@app.command()
def export(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help="Where the weights go, .safetensors.")],
) -> None:
    """Write the averaged weights of a training run, with its record beside them."""
    export_training(folder, file)


def _find_commit() -> str:
    """Return the commit of the source, with what tells whether files differ from it."""
    run = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
    ]
    completed = subprocess.run(run, capture_output=True, text=True, check=False)
    return completed.stdout.strip() if completed.returncode == 0 else "unknown"


if __name__ == "__main__":
    app()
