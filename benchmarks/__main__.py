"""``python -m benchmarks cpu``: how fast the library is on this machine."""

import argparse

from . import cpu

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
commands = parser.add_subparsers(dest="command", required=True)
cpu.add_arguments(commands.add_parser("cpu", help=cpu.__doc__))
arguments = parser.parse_args()
arguments.run(arguments)
