"""``python -m benchmarks NAME``: how fast it is, and whether kernels compute what they did."""

import argparse
import sys
from importlib import import_module

from .bare import stand_in

COMMANDS = (
    *("cpu", "ends", "freeze", "gpu", "growth", "long", "records", "streaming", "table", "trees"),
    *("defaults", "wide", "zoo", "fixed-points", "deploy", "frozen-kernels", "graphs", "others"),
    *(
        "fine-tuning",
        "fixed",
        "forecasts",
        "functions",
        "integers",
        "leave-one-out",
        "libraries",
        "microcontroller",
        "peers",
        "plot-models",
        "plot-pretrained",
        "plot-speed",
        "portfolio",
        "pretrained",
        "products",
        "regress",
        "sample-size",
        "scan",
        "truth",
        "calibration",
        "coverage",
    ),
)

stand_in()
parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
commands = parser.add_subparsers(dest="command", required=True)
# One of them alone, if it was named, needs no more than its own imports.
for name in [name for name in COMMANDS if name in sys.argv[1:2]] or COMMANDS:
    module = import_module("." + name.replace("-", "_"), __package__)
    summary = (module.__doc__ or "").partition("\n\n")[0].replace("%", "%%")
    module.add_arguments(commands.add_parser(name, help=summary))
arguments = parser.parse_args()
arguments.run(arguments)
