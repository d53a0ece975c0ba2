"""Compile the generated C code and compare it with the model."""

import math
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tauflow.errors import ExportError

from .parity import Parity

SAMPLE_COUNT = 1000
"""How many samples the code is run on."""
_COMPILERS = ("cc", "gcc", "clang")


def find_compiler() -> list[str] | None:
    """Return the command of a C compiler, its path first, or ``None`` without a compiler.

    It is ``$CC``, which may hold options too, as for ``make``; if that is not set, or empty, the
    first of cc, gcc and clang.

    Raises:
        ExportError: ``$CC`` is set, and is no program that is here.
    """
    cc = os.environ.get("CC", "").strip()
    if not cc:
        return next(
            ([path] for path in map(_resolve_program, _COMPILERS) if path is not None), None
        )
    if (path := _resolve_program(cc)) is not None:  # whose folders may have spaces in their names
        return [path]
    try:
        program, *options = shlex.split(cc)
    except ValueError:  # a quotation without an end
        program, options = cc, []
    if (path := _resolve_program(program)) is None:
        raise ExportError(
            f"the environment variable CC is {cc!r}, and {program} is no program that is here. "
            f"Set it to a C compiler, perhaps with options, or unset it to take one of "
            f"{', '.join(_COMPILERS)}."
        )
    return [path, *options]


def check_compiled_parity(
    files: Mapping[str, str],
    name: str,
    compiler: Sequence[str],
    *,
    tolerance: float,
    rounding: float,
) -> Parity:
    """Compile files, and run them on their test vector.

    Args:
        files: texts by name, ``test_vector.csv`` of :data:`SAMPLE_COUNT` samples among them.
        name: of the model.
        compiler: its command.
        tolerance: largest difference.
        rounding: how far the model is from itself in double precision, for messages.

    Raises:
        ExportError: it does not compile, does not run, or differs by more.
    """
    with tempfile.TemporaryDirectory() as place:
        for file, text in files.items():
            (Path(place) / file).write_text(text, encoding="utf-8")
        program = Path(place) / "checked"
        sources = ["main.c", f"{name}.c"]
        command = [*compiler, "-std=c99", "-O1", "-o", str(program), *sources, "-lm"]
        built = _run_command(command, "the compiler", cwd=place)
        if built.returncode:
            raise ExportError(f"{compiler[0]} does not compile the code: {built.stderr[:500]}")
        with (Path(place) / "test_vector.csv").open() as vector:
            ran = _run_command([str(program), "--check"], f"what {compiler[0]} makes", stdin=vector)
    match = re.search(r"largest difference (\S+)", ran.stdout)
    worst = float(match[1]) if match else math.nan
    if ran.returncode or not worst <= tolerance:
        message = f"the compiled code differs from the model by {worst:.1e}, more than "
        message += f"{tolerance:.2g}. {ran.stderr.strip()}"
        if not rounding <= tolerance:
            message += (
                f"Single precision takes the model itself {rounding:.1e} from double precision on "
                "the same samples: its flow is unstable there, or it hardly forgets. "
            )
        raise ExportError(f"{message.rstrip()} A larger tolerance (--tolerance) lets it pass.")
    return Parity(worst, tolerance, 1, SAMPLE_COUNT)


def _resolve_program(program: str) -> str | None:
    """Return where a program is, wherever it is called from, or ``None``."""
    path = shutil.which(program)
    return None if path is None else os.path.abspath(path)


def _run_command(
    command: list[str], what: str, **options: Any
) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)
    except OSError as error:  # such as code for another machine
        raise ExportError(
            f"{what} does not run here: {error.strerror}. Set the environment variable CC to a "
            "compiler for this machine, which the code is checked with; any other can compile it "
            "afterwards."
        ) from error
