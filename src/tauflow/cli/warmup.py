"""``tauflow warmup``: compile kernels now rather than at their first use."""

from typing import Annotated

import typer


def warmup(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models; by default one of every cell that has compiled kernels."),
    ] = None,
) -> None:
    """Compile the CPU kernels of models and keep them on disk, as for an image of a container."""
    from tauflow.kernels.cpu.cache import folder_of_kernels
    from tauflow.sequence.warm_up import warm_up

    from .output import say

    for name, seconds in warm_up(*(models or ())):
        say(f"{name}: {seconds:.1f} s")
    folder = folder_of_kernels()
    say(f"Kernels are kept in {folder}." if folder else "No folder to keep kernels can be written.")
