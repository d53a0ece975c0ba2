"""Compare the speed of two commits on one machine, in turns.

Each commit is checked out into a separate folder and runs in a separate process, which stays
and times one case whenever it is asked to, so that a machine that slows down slows both. A case is
a forward pass without gradients, a training step (forward, mean square, backward) or the step of a
stream. Its time is the least of its turns; a turn is the mean of so many calls as take 50 ms.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMER = Path(__file__).with_name("timer.py")
SIZES = ((16, 1, 17, 32), (16, 32, 17, 32), (128, 64, 18, 64))
KINDS = ("forward", "training")
SLOWER = 1.03


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("before", help="commit to compare with")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each case")
    parser.add_argument("--only", nargs="*", metavar="MODEL", help="catalog names; default all")
    parser.add_argument("--results", type=Path, help="folder for a JSON and a Markdown file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep the numbers if there is a folder for them."""
    names = arguments.only
    if not names:
        from tauflow.cells.registry import MODELS

        names = list(MODELS)
    timed_cases: list[dict[str, Any]] = []
    lacking: set[str] = set()
    print("| case | before, us | after, us | after / before |\n| --- | ---: | ---: | ---: |")
    with (
        started(arguments.before, arguments.threads) as before,
        started(arguments.after, arguments.threads) as after,
    ):
        for case in cases(names):
            if case["model"] in lacking:
                continue
            times = measure(case, before, after, arguments.rounds)
            if times is None:
                if case["kind"] == KINDS[0]:
                    lacking.add(case["model"])
                continue
            timed_cases.append({**case, "before": times[0], "after": times[1]})
            print(line(timed_cases[-1]), flush=True)
    report = {
        "before": commit(arguments.before),
        "after": commit(arguments.after),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "isa": os.environ.get("ATEN_CPU_CAPABILITY", "as the machine is"),
        "load average at the end": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "machine": describe(),
        "cases": timed_cases,
    }
    text = summary(report)
    print("\n" + text)
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        stem = f"regress-{date.today().isoformat()}"
        if "ATEN_CPU_CAPABILITY" in os.environ:
            stem += f"-{report['isa']}"
        (arguments.results / f"{stem}.json").write_text(json.dumps(report, indent=1) + "\n")


def cases(names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what is timed: model, size and kind."""
    for name in names:
        for size in SIZES:
            for kind in KINDS:
                yield {"model": name, "size": size, "kind": kind}
        yield {"model": name, "size": (1, 1, 17, 32), "kind": "stream"}


@contextmanager
def started(revision: str, threads: int) -> Iterator["subprocess.Popen[str]"]:
    """Start a process that times the code of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(folder) / "src"),
            "OMP_NUM_THREADS": str(threads),
        }
        process = subprocess.Popen(
            [sys.executable, str(TIMER)],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def measure(
    case: dict[str, Any],
    before: "subprocess.Popen[str]",
    after: "subprocess.Popen[str]",
    rounds: int,
) -> tuple[float, float] | None:
    """Return the least microseconds of both, or None where one of them lacks the model."""
    least = [float("inf"), float("inf")]
    for turn in range(rounds + 1):
        for index in (0, 1) if turn % 2 else (1, 0):
            answer = ask((before, after)[index], case)
            if "error" in answer:
                which = ("before", "after")[index]
                print(f"{case['model']} {case['kind']} left out, {which}: {answer['error'][:90]}")
                return None
            if turn:  # the first turn compiles and warms up
                least[index] = min(least[index], answer["microseconds"])
    return least[0], least[1]


def ask(process: "subprocess.Popen[str]", case: dict[str, Any]) -> dict[str, Any]:
    """Return what a process answers to a case."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(case) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        sys.exit(f"regress: a process ended at {case}")
    result: dict[str, Any] = json.loads(answer)
    return result


def line(case: dict[str, Any]) -> str:
    """Return a row of the table."""
    ratio = case["after"] / case["before"]
    size = ", ".join(str(n) for n in case["size"])
    mark = " (slower)" if ratio > SLOWER else ""
    return (
        f"| {case['model']} {size} {case['kind']} | {case['before']:.1f} "
        f"| {case['after']:.1f} | {ratio:.2f}{mark} |"
    )


def summary(report: dict[str, Any]) -> str:
    """Return how many cases are slower, and which."""
    slower = [case for case in report["cases"] if case["after"] > SLOWER * case["before"]]
    faster = [case for case in report["cases"] if case["before"] > SLOWER * case["after"]]
    return (
        f"{len(report['cases'])} cases, {report['before'][:8]} to {report['after'][:8]}, "
        f"{report['threads']} threads, {report['rounds']} turns: {len(slower)} slower by more than "
        f"3 %, {len(faster)} faster. Load average at the end {report['load average at the end']}; "
        f"{report['isa']}."
    )


def commit(revision: str) -> str:
    """Return the hash of a commit."""
    return subprocess.run(
        ["git", "rev-parse", revision], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def describe() -> dict[str, Any]:
    """Return the machine and versions."""
    from tauflow.runs.results import describe_machine, get_versions

    return {**describe_machine(), **get_versions()}
