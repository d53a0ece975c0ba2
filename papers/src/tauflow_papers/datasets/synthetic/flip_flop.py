"""The n-bit flip-flop: remember the last pulse on each channel; generated, never downloaded.

A trial is silent but for short pulses. The output of a channel is the height of its last pulse.
With fixed heights a network needs one stable fixed point for each of the 2^n memories; with
variable ones it needs a continuum of them, whose shape follows from the heights that occur.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import (
    check_at_least,
    check_bool,
    check_finite,
    check_one_of,
    check_seed,
    check_within,
)
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.datasets.sizes import check_sizes
from tauflow.errors import ArgumentError

Floats = NDArray[np.float64]

AMPLITUDES = ("fixed", "variable")
SHAPES = ("square", "rectangle", "disk", "ring")
RECTANGLE_SIDE = 2.0  # of the first channel, the others keep 1
DISK_RADII = (1.0, 2.0)
RING_RADIUS = 2.0

FLIP_FLOP = DatasetCard(
    name="flip-flop",
    title="Flip-flop",
    task="regress",
    input_size=3,
    target_size=3,
    targets=("channel 1", "channel 2", "channel 3"),
    time_unit="10 ms",
    sizes=(500, 100, 100),
    source=(
        "generated; Kim et al. 2022, Gated neural ODEs: trainability, expressivity and "
        "interpretability, Section 5.2 and Appendix E"
    ),
    licence="none needed (generated)",
    split="every trial is independent; each part has its random stream",
    loss="mse",
    metric="mse",
    notes=(
        "There is no dt: every time step is one bin of 10 ms, the paper's time constant.",
        "The paper trains on 500 trials and reports the lowest error on 100 validation trials. It "
        "has no test part; the one here is ours.",
        "Pulses last 20 ms in the paper and 30 ms in the authors' code, followed here; the option "
        "pulse_width=2 gives the paper's.",
        "The paper draws first bins without replacement, the authors' code with, followed here; "
        "the option replacement=False gives the paper's.",
        "A pulse that would outlast the trial is left out, as in the authors' code. Pulses are "
        "applied in the order of their first bins.",
        "Before the first pulse of a channel its target is 'initial': by default +1 with fixed "
        "heights, as in the authors' code, and 0 with variable ones. The authors' code starts the "
        "disk at (1.5, 0) and the ring at (2, 0); the paper's Figures 2D and 10A at (0, 0).",
        "The authors' trials come from Julia's generator and cannot be drawn again in Python.",
    ),
)


@dataclass(frozen=True)
class FlipFlop:
    """One task of the family.

    Args:
        bits: channels n.
        amplitude: ``"fixed"``: heights are -1 or +1; ``"variable"``: real numbers.
        shape: where variable heights come from. ``"square"``: each channel by itself, uniform on
            [-1, 1]; ``"rectangle"``: the same, but the first channel uniform on [-2, 2];
            ``"disk"``: all channels at once, uniform on the shell 1 < |c| < 2; ``"ring"``: all
            channels at once, uniform on the sphere |c| = 2.
        radii: inner and outer radius of the shell of ``"disk"``.
        pulses: mean number of pulses in a trial, Poisson distributed.
        pulse_width: bins that a pulse lasts.
        replacement: whether two pulses may begin in the same bin.
        initial: target of each channel before its first pulse.
        steps: bins of a trial.
    """

    bits: int
    amplitude: str
    shape: str
    radii: tuple[float, float]
    pulses: float
    pulse_width: int
    replacement: bool
    initial: tuple[float, ...]
    steps: int

    @property
    def is_simultaneous(self) -> bool:
        """Whether a pulse comes on all channels at once."""
        return self.shape in ("disk", "ring")


def load_flip_flop(
    root: str | Path | None = None,
    *,
    download: bool = True,
    bits: int = 3,
    amplitude: str = "fixed",
    shape: str = "square",
    radii: Sequence[float] | None = None,
    pulses: float | None = None,
    pulse_width: int = 3,
    replacement: bool = True,
    initial: Sequence[float] | None = None,
    steps: int = 100,
    seed: int = 0,
    sizes: Sequence[int] = FLIP_FLOP.sizes,
) -> TaskData:
    """Generate a flip-flop task; :class:`FlipFlop` explains its options.

    Args:
        root: not used; nothing is stored.
        download: not used; nothing is downloaded.
        bits: number of channels.
        amplitude: ``"fixed"`` or ``"variable"``.
        shape: of variable heights: ``"square"``, ``"rectangle"``, ``"disk"`` or ``"ring"``.
        radii: of the disk; by default 1 and 2. Other radii test generalisation.
        pulses: mean number of pulses; by default 6 for the disk, 12 otherwise.
        pulse_width: 3 as in the authors' code, 2 as in the paper.
        replacement: ``True`` as in the authors' code, ``False`` as in the paper.
        initial: target of each channel before its first pulse; see the card.
        steps: bins of a trial.
        seed: of everything random; a part does not depend on the sizes of the others.
        sizes: number of training, validation (may be 0) and test trials.

    Raises:
        ArgumentError: an option is outside its range, or two options contradict each other.
        UnknownNameError: no such amplitude or shape.
    """
    check_one_of(AMPLITUDES, amplitude=amplitude)
    check_one_of(SHAPES, shape=shape)
    task = FlipFlop(
        bits=check_at_least(1, bits=bits),
        amplitude=amplitude,
        shape=shape,
        radii=_check_radii(radii, shape),
        pulses=check_within(
            0.0, 1000.0, pulses=_get_default_pulses(shape) if pulses is None else pulses
        ),
        pulse_width=check_at_least(1, pulse_width=pulse_width),
        replacement=check_bool(replacement=replacement),
        initial=_check_initial(initial, bits, 1.0 if amplitude == "fixed" else 0.0),
        steps=check_at_least(1, steps=steps),
    )
    _check_shape(task)
    check_seed(32, seed=seed)
    counts = check_sizes(sizes)
    train, valid, test = (
        _make_split(task, size, np.random.RandomState([seed, stream])) if size else None
        for stream, size in enumerate(counts)
    )
    assert train is not None
    assert test is not None
    return TaskData(_make_card(task, counts), train, valid, test)


def sample_trial(task: FlipFlop, rng: np.random.RandomState) -> tuple[Floats, Floats]:
    """Draw one trial.

    Returns:
        Pulses and targets, (T, n) each. A target changes in the first bin of its pulse.
    """
    inputs = np.zeros((task.steps, task.bits))
    targets = np.tile(np.array(task.initial), (task.steps, 1))
    count = rng.poisson(task.pulses)
    if not task.replacement:
        count = min(count, task.steps)
    starts = np.sort(rng.choice(task.steps, count, replace=task.replacement))
    for start in starts:
        channels = slice(None) if task.is_simultaneous else rng.randint(task.bits)
        height = _sample_height(task, channels, rng)
        if start + task.pulse_width <= task.steps:
            inputs[start : start + task.pulse_width, channels] = height
            targets[start:, channels] = height
    return inputs, targets


def _sample_height(
    task: FlipFlop, channel: int | slice, rng: np.random.RandomState
) -> float | Floats:
    """Draw the height of a pulse: one number, or with a slice one for each channel."""
    if task.amplitude == "fixed":
        return float(rng.choice([-1.0, 1.0]))
    if task.shape == "ring":
        direction = rng.standard_normal(task.bits)
        on_sphere: Floats = RING_RADIUS * direction / np.linalg.norm(direction)
        return on_sphere
    if task.shape == "disk":
        inner, outer = task.radii
        while True:  # uniform on the cube around the shell, until it falls into the shell
            heights = rng.uniform(-outer, outer, task.bits)
            if inner < np.linalg.norm(heights) < outer:
                return heights
    side = RECTANGLE_SIDE if task.shape == "rectangle" and channel == 0 else 1.0
    return float(rng.uniform(-side, side))


def _make_split(task: FlipFlop, size: int, rng: np.random.RandomState) -> SequenceBatch:
    trials = [sample_trial(task, rng) for _ in range(size)]
    x, y = (np.stack(arrays).astype(np.float32) for arrays in zip(*trials, strict=True))
    return SequenceBatch(x=torch.from_numpy(x), y=torch.from_numpy(y))


def _make_card(task: FlipFlop, sizes: tuple[int, int, int]) -> DatasetCard:
    kind = "fixed" if task.amplitude == "fixed" else task.shape
    default = task.bits == FLIP_FLOP.input_size and kind == "fixed"
    return replace(
        FLIP_FLOP,
        title=FLIP_FLOP.title
        if default
        else f"Flip-flop, {format_count(task.bits, 'bit')}, {kind}",
        input_size=task.bits,
        target_size=task.bits,
        targets=tuple(f"channel {channel + 1}" for channel in range(task.bits)),
        sizes=sizes,
    )


def _get_default_pulses(shape: str) -> float:
    return 6.0 if shape == "disk" else 12.0


def _check_radii(radii: Sequence[float] | None, shape: str) -> tuple[float, float]:
    if radii is None:
        return DISK_RADII
    if shape != "disk":
        raise ArgumentError(f"radii belong to shape='disk', but shape={shape!r}. Leave them out.")
    if isinstance(radii, str) or not isinstance(radii, Sequence) or len(radii) != 2:
        raise ArgumentError(f"radii must be two numbers, inner and outer, got {radii!r}.")
    inner, outer = check_finite(inner_radius=radii[0]), check_finite(outer_radius=radii[1])
    if not 0.0 <= inner < outer:
        raise ArgumentError(f"radii must be 0 <= inner < outer, got {inner:g} and {outer:g}.")
    return inner, outer


def _check_initial(initial: Sequence[float] | None, bits: int, default: float) -> tuple[float, ...]:
    if initial is None:
        return (default,) * bits
    if isinstance(initial, str) or not isinstance(initial, Sequence) or len(initial) != bits:
        raise ArgumentError(
            f"initial must be {format_count(bits, 'number')}, one per channel, got {initial!r}."
        )
    return tuple(check_finite(initial=value) for value in initial)


def _check_shape(task: FlipFlop) -> None:
    if task.amplitude == "fixed" and task.shape != "square":
        raise ArgumentError(
            f"shape={task.shape!r} is of variable heights, but amplitude='fixed'. Give "
            "amplitude='variable', or leave the shape out."
        )
    # In many dimensions a thin shell fills next to nothing of the cube that heights are drawn from.
    if task.shape == "disk" and task.bits > 8:
        raise ArgumentError(f"shape='disk' takes at most 8 bits, got {task.bits}.")
    if task.pulse_width > task.steps:
        raise ArgumentError(
            f"pulse_width={task.pulse_width} does not fit into a trial of "
            f"{format_count(task.steps, 'step')}."
        )
