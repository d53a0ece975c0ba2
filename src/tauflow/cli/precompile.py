"""``tauflow precompile``: compile kernels now rather than at their first use."""

from typing import Annotated

import typer


def precompile(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models; by default one of every cell that has compiled kernels."),
    ] = None,
) -> None:
    """Compile the CPU kernels of models and keep them on disk, as for an image of a container."""
    from tauflow.kernels.cpu.cache import get_cache_folder
    from tauflow.sequence.precompile import precompile

    from .output import print_line

    def show(name: str, seconds: float) -> None:
        print_line(f"{name}: {seconds:.1f} s")

    precompile(*(models or ()), done=show)
    folder = get_cache_folder()
    print_line(
        f"Kernels are kept in {folder}." if folder else "No folder to keep kernels can be written."
    )
