"""Numbers of every kernel, kept before a change of their code and compared with those after it.

Outputs, last states and every gradient of every row and variant of the parity tests, at odd sizes,
masked and not, with and without gradients of state and time steps; on one thread, those for GPUs
through Triton's interpreter. ``--out`` writes them, ``--against`` compares with what was written:
per row how many are equal to the bit, how many within the row's tolerance, and what differs by
more.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

PARITY = Path(__file__).resolve().parents[1] / "tests" / "parity"
SIZES = [(1, 1, 1), (3, 7, 5), (2, 40, 33), (5, 4, 6)]
WANTS = ("all", "parameters", "none")
TRITON_TOLERANCES = (1e-4, 1e-4)  # of gradients; those of values are a tenth


class Case(NamedTuple):
    """One call: where it counts, what it is, and how far its numbers may move."""

    row: str
    name: str
    run: Callable[[], dict[str, Any]]
    rtol: float
    atol: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--out", type=Path, help="file to write the numbers to")
    parser.add_argument("--against", type=Path, help="file to compare with")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run in a separate process, in which Triton interprets and one thread computes."""
    if arguments.out is None and arguments.against is None:
        sys.exit("frozen-kernels: name a file with --out or --against")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.frozen_kernels", "--only", arguments.only]
    for name in ("out", "against"):
        if getattr(arguments, name) is not None:
            command += [f"--{name}", str(getattr(arguments, name))]
    sys.exit(subprocess.run(command, env=environment, check=False).returncode)


def cases(only: str) -> Iterator[Case]:
    """Yield every case whose row's name contains ``only``."""
    sys.path.insert(0, str(PARITY))
    yield from _on_any_device(only)
    yield from _through_the_interpreter(only)


def _on_any_device(only: str) -> Iterator[Case]:
    import torch
    from kernel_variants import ROWS, example, name_of, takes_double, takes_masks

    for spec, options in ROWS:
        row = name_of((spec, options))
        dtypes = [torch.float32, torch.float64] if takes_double(spec) else [torch.float32]
        masks = [False, True] if takes_masks(spec) else [False]
        if only not in row:
            continue
        for dtype, size, masked, wants in product(dtypes, SIZES, masks, WANTS):
            call = example(spec, *size, dtype, masked=masked, **options)
            single = dtype is torch.float32
            tolerances = (spec.rtol, spec.atol) if single else (1e-9, 1e-11)
            name = f"{row} {dtype} {size} {masked=} {wants}"
            yield Case(row, name, _run(spec, call, wants), *tolerances)


def _through_the_interpreter(only: str) -> Iterator[Case]:
    from kernel_variants import example
    from triton_rows import OPTIONS, TRITON

    numbers: Counter[str] = Counter()
    for spec in TRITON:
        kind = f"{spec.cell.__name__}-triton"
        numbers[kind] += 1
        for size, options in OPTIONS[spec.cell]:
            words = [f"{key}={value}" for key, value in options.items()]
            row = "-".join([kind, str(numbers[kind]), *words])
            if only not in row:
                continue
            for masked, wants in zip((True, False, False), WANTS, strict=True):
                call = example(spec, *size, masked=masked, **options)
                if spec.unsupported_reason(call) is None:
                    name = f"{row} {size} {masked=} {wants}"
                    yield Case(row, name, _run(spec, call, wants), *TRITON_TOLERANCES)


def _run(spec: Any, call: Any, wants: str) -> Callable[[], dict[str, Any]]:
    def numbers() -> dict[str, Any]:
        import torch

        leaves = {"x": call.x, "h": call.h, "dt": call.dt, **dict(call.cell.named_parameters())}
        learned = {
            "all": set(leaves),
            "parameters": set(leaves) - {"x", "h", "dt"},
            "none": set(),
        }[wants]
        for name, leaf in leaves.items():
            leaf.requires_grad_(name in learned)
        y, last = spec.run(call)
        tensors = {"y": y, "last": last}
        if learned:
            loss = sum(
                (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum()
                for out in (y, last)
            )
            wanted = [leaves[name] for name in sorted(learned)]
            gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
            tensors.update(
                (f"d {name}", gradient)
                for name, gradient in zip(sorted(learned), gradients, strict=True)
                if gradient is not None
            )
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    return numbers


def _difference(tensor: Any, other: Any, case: Case) -> str:
    """Return ``equal``, ``close``, or by how much they differ."""
    import torch

    if tensor.shape != other.shape or tensor.dtype != other.dtype:
        return f"is {tuple(tensor.shape)} {tensor.dtype}, was {tuple(other.shape)} {other.dtype}"
    if torch.equal(tensor, other):
        return "equal"
    unit = max(1.0, float(other.abs().max())) if other.numel() else 1.0
    if torch.allclose(tensor, other, rtol=case.rtol, atol=case.atol * unit, equal_nan=True):
        return "close"
    return f"differs by {float((tensor - other).abs().max()):.3g}, largest {unit:.3g}"


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(prog="frozen-kernels", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    before = {} if arguments.against is None else torch.load(arguments.against)
    after: dict[str, dict[str, Any]] = {}
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    wrong: list[str] = []
    for case in cases(arguments.only):
        results = after[case.name] = case.run()
        if arguments.against is None:
            continue
        was = before.get(case.name)
        if was is None or was.keys() != results.keys():
            counts[case.row]["new"] += 1
            if was is not None:
                wrong.append(f"{case.name}: has {sorted(results)}, had {sorted(was)}")
            continue
        for name, tensor in results.items():
            what = _difference(tensor, was[name], case)
            counts[case.row][what if what in ("equal", "close") else "different"] += 1
            if what not in ("equal", "close"):
                wrong.append(f"{case.name}: {name} {what}")
    if arguments.out is not None:
        torch.save(after, arguments.out)
        print(f"{len(after)} calls written to {arguments.out}")
    if arguments.against is None:
        return
    for row, of in counts.items():
        print(f"{row}: " + ", ".join(f"{n} {what}" for what, n in of.items()))
    gone = [name for name in before if arguments.only in name and name not in after]
    print(f"{len(gone)} calls are gone" + (f", such as {gone[0]}" if gone else ""))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
