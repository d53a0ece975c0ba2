"""Time one sample at a time, as a control loop would run it, beside ``ncps``."""

from collections.abc import Callable

import numpy as np
import torch

import tauflow

from .timing import Timing, interleaved

INPUTS = 17
NEURONS = {"LTC": 32, "CfC": 64}


def measure(rounds: int) -> list[dict[str, object]]:
    """Return one row for each family: B = 1, the state carried from step to step."""
    return [row(family, neurons, rounds) for family, neurons in NEURONS.items()]


def row(family: str, neurons: int, rounds: int) -> dict[str, object]:
    """Return medians in microseconds and the ratio to ncps."""
    torch.manual_seed(0)
    x = np.random.default_rng(0).standard_normal(INPUTS).astype(np.float32)
    ours = _ours(family, neurons, x)
    timings = interleaved({"tauflow": ours, "ncps": _ncps(family, neurons, x)}, rounds=rounds)
    own: Timing = timings["tauflow"]
    return {
        "model": f"{family}-{neurons}",
        "us": {name: timing.seconds * 1e6 for name, timing in timings.items()},
        "ratio": own.ratio(timings["ncps"]),
    }


def _ours(family: str, neurons: int, x: np.ndarray) -> Callable[[], object]:
    if family == "LTC":
        module: tauflow.SequenceModule = tauflow.LTC(INPUTS, neurons)
    else:
        module = tauflow.CfC(INPUTS, neurons, backbone_units=neurons)
    stream = module.stream()
    expected, _ = module(torch.from_numpy(x).view(1, 1, -1), dt=0.5)
    np.testing.assert_allclose(stream.step(x, 0.5), expected[0, 0].detach(), rtol=1e-4, atol=1e-5)
    return lambda: stream.step(x, 0.5)


def _ncps(family: str, neurons: int, x: np.ndarray) -> Callable[[], object]:
    import ncps.torch

    if family == "LTC":
        module = ncps.torch.LTC(INPUTS, neurons)
    else:
        module = ncps.torch.CfC(INPUTS, neurons, backbone_units=neurons, backbone_layers=1)
    sample, state = torch.from_numpy(x).view(1, 1, -1), [None]

    def step() -> None:
        with torch.no_grad():
            _, state[0] = module(sample, state[0])

    return step


def table(rows: list[dict[str, object]]) -> list[str]:
    """Return the rows as Markdown lines."""
    lines = [
        "| one sample, B = 1 | tauflow, µs | ncps, µs | ratio |",
        "| --- | ---: | ---: | ---: |",
    ]
    for found in rows:
        times = found["us"]
        assert isinstance(times, dict)
        lines.append(
            f"| {found['model']} | {times['tauflow']:.1f} | {times['ncps']:.0f} | "
            f"{found['ratio']:.1f}× |"
        )
    return lines
