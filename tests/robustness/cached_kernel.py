"""A kernel that compiles quickly, and a program that runs it."""

import logging
import sys

import numpy as np

from tauflow.kernels.cpu.jit import f4, kernel


def fresh():
    """Return the kernel as a new process has it: not compiled yet."""

    def total(values):
        s = f4(0.0)
        for value in values:
            s += value
        return s

    return kernel(total)


def right(compiled) -> bool:
    """Whether a kernel computes what it should."""
    return compiled(np.arange(5, dtype=np.float32)) == 10.0


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.stdout.write("begins\n")
    sys.stdout.flush()
    sys.exit(0 if right(fresh()) else 1)
