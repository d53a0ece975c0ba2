"""``python -m benchmarks NAME``: how fast it is, and whether kernels compute what they did."""

import argparse

from . import cpu, deploy, fixed_points, frozen_kernels, gpu, growth, long, records, zoo

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
commands = parser.add_subparsers(dest="command", required=True)
cpu.add_arguments(commands.add_parser("cpu", help=cpu.__doc__))
gpu.add_arguments(commands.add_parser("gpu", help=gpu.__doc__))
growth.add_arguments(commands.add_parser("growth", help=growth.__doc__))
long.add_arguments(commands.add_parser("long", help=long.__doc__))
records.add_arguments(commands.add_parser("records", help=records.__doc__))
zoo.add_arguments(commands.add_parser("zoo", help=zoo.__doc__))
fixed_points.add_arguments(commands.add_parser("fixed-points", help=fixed_points.__doc__))
deploy.add_arguments(commands.add_parser("deploy", help=deploy.__doc__))
frozen_kernels.add_arguments(
    commands.add_parser("frozen-kernels", help="whether kernels compute what they did before")
)
arguments = parser.parse_args()
arguments.run(arguments)
