"""Memory length: how long the state depends on the initial state."""

import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_positive
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch, check_batch
from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule
from tauflow.sequence.inputs import SequenceInputs, prepare_inputs
from tauflow.sequence.states import State, resolve_initial_states
from tauflow.training.eval_mode import evaluation_mode
from tauflow.training.evaluation_loop import predict

from .unwrap import iter_layer_steps, resolve_observed, unwrap_forward_module


@dataclass(frozen=True, eq=False)
class MemoryLength:
    """Rate at which two states of a network converge under the same inputs.

    Args:
        steps: samples after which the slowest sequence has forgotten its start; ``None`` if it had
            not by its end.
        time: the same in the unit of the time steps, for the slowest sequence; ``None`` likewise.
        rate: mean logarithmic growth of the difference, per sample, of the slowest sequence while
            the difference could be told from rounding; negative where the network forgets.
        samples: how many samples the slowest sequence has.
        after: numbers of samples at which the difference was looked at.
        differences: largest difference of the two states there, or at the end of a shorter
            sequence, for every sequence. Each part of the state is compared with what it began
            with itself, as parts have different units: that of ages is time.
    """

    steps: int | None
    time: float | None
    rate: float
    samples: int
    after: tuple[int, ...]
    differences: Float[Tensor, "B L"]

    def __str__(self) -> str:
        if self.steps is None:
            return (
                f"remembers longer than {format_count(self.samples, 'sample')} (rate "
                f"{self.rate:+.3g} a sample)"
            )
        text = f"remembers {format_count(self.steps, 'sample')}, {self.time:.4g} in time"
        return f"{text} (rate {self.rate:+.3g} a sample)"


@torch.no_grad()
def memory_length(
    model: nn.Module,
    data: SequenceBatch,
    *,
    tolerance: float = 1e-6,
    max_sequences: int = 64,
) -> MemoryLength:
    """Return how many samples, and how much time, a network remembers on given data.

    Every sequence is run from two states: the one that the model starts it from, and the one in
    which another sequence left it. A sequence has forgotten its start where the two differ by less
    than ``tolerance`` times what they differed by in the beginning, or by no more than rounding, in
    each part of the state (:attr:`~tauflow.cells.AbstractCell.state_parts`). Samples are counted,
    not padding or other masked steps. A sequence that ended before it had forgotten says no more
    than that it takes longer: it counts if no other sequence took as long to forget.

    Args:
        model: a sequence module that runs in one direction, or a model with one as ``rnn``, which
            gets a sample for each of the data, with the time steps of the data.
        data: sequences to run it on; the longer, the longer a memory can be told.
        tolerance: share of the first difference at which the start counts as forgotten.
        max_sequences: sequences looked at, from the first on.

    Raises:
        ArgumentError: the model has no such sequence module, runs backwards too, reads ahead, or
            takes no ``dt=``; what its module gets has other samples or time steps than the data;
            or ``data`` is empty.
        DtypeError: ``data`` is no batch.
    """
    check_positive(tolerance=tolerance)
    rnn = unwrap_forward_module("memory_length", model, takes_cells=False)
    check_batch("memory_length: data", data)
    if not len(data):
        raise ArgumentError("memory_length: the data have no sequence to run the network on.")
    batch = data[: check_at_least(1, max_sequences=max_sequences)]
    with evaluation_mode(model):
        inputs, start, last = _capture_module_inputs(model, rnn, batch)
        _check_same_samples(model, rnn, inputs, batch)
        return _compare_trajectories(rnn, inputs, (start, last.roll(1, 0)), tolerance)


@dataclass(frozen=True, eq=False)
class _ModuleInputs:
    """What a sequence module gets, the samples of each sequence in front and padding behind.

    Args:
        x: the inputs, (B, T, I).
        aligned_inputs: time steps and whatever else goes with the inputs, each (B, T) or (B, T, I).
        counts: samples of each sequence, (B,).
    """

    x: Tensor
    aligned_inputs: dict[str, Tensor]
    counts: Tensor

    @property
    def span(self) -> Tensor:
        """Time from the first sample of each sequence to its last, (B,)."""
        return self.aligned_inputs["dt"][:, 1:].sum(1)

    def describe_row(self, row: int) -> str:
        """Say how many samples a sequence has, over what time."""
        return (
            f"{format_count(int(self.counts[row]), 'sample')} over {float(self.span[row]):.4g} in "
            "time"
        )

    def slice_steps(self, begin: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Return inputs and companions of the samples from one number up to another."""
        places = torch.arange(begin, end, device=self.counts.device)
        parts = {name: value[:, begin:end] for name, value in self.aligned_inputs.items()}
        return self.x[:, begin:end], {**parts, "mask": places < self.counts.unsqueeze(1)}


def _capture_module_inputs(
    model: nn.Module, rnn: SequenceModule, batch: SequenceBatch
) -> tuple[_ModuleInputs, Tensor, Tensor]:
    """Return what a model hands to its sequence module, and the states it starts from and ends in.

    Embeddings, convolutional heads and whatever else a model does before are its own business, so
    the call is overheard instead of repeated.
    """
    calls: list[tuple[dict[str, Any], Tensor]] = []
    signature = inspect.signature(rnn.forward)

    def overhear(
        _: nn.Module, args: Any, keywords: dict[str, Any], out: tuple[Tensor, Tensor]
    ) -> None:
        calls.append((signature.bind(*args, **keywords).arguments, out[1]))

    arguments = inspect.signature(model.forward).parameters.values()
    if not any(a.name == "dt" or a.kind is a.VAR_KEYWORD for a in arguments):
        raise ArgumentError(
            f"memory_length: {type(model).__name__} takes no dt=. Pass the {type(rnn).__name__} "
            "inside of it, with data of the inputs that it gets."
        )
    handle = rnn.register_forward_hook(overhear, with_kwargs=True)
    try:
        predict(model, batch)
    finally:
        handle.remove()
    if not calls:
        raise ArgumentError(
            f"memory_length: {type(model).__name__} does not call its rnn. Pass the sequence "
            "module that it calls, with data of what that gets."
        )
    keywords, last = calls[-1]
    hx, where = keywords.get("hx"), type(rnn).__name__
    names = ("x", "dt", "t", "mask", "lengths", "observed", "episode_start")
    inputs = prepare_inputs(
        where,
        rnn.input_size,
        **{name: keywords[name] for name in names if name in keywords},
        has_initial_state=hx is not None,
    )
    inputs = resolve_observed(where, rnn.cell, inputs)
    seen = _remove_masked_steps(inputs)
    return seen, _resolve_initial_state(rnn, hx, inputs, seen), last


def _resolve_initial_state(
    rnn: SequenceModule, hx: State | None, inputs: SequenceInputs, module_inputs: _ModuleInputs
) -> Tensor:
    """Return the state that a call starts from, (B, S): the one given, or each layer's own."""
    if hx is not None:
        known = resolve_initial_states(type(rnn).__name__, rnn.each_cell, hx, inputs)
    else:  # a layer's own may depend on the first sample that it reads
        x, parts = module_inputs.slice_steps(0, 1)
        observed = parts["observed"][:, 0] if "observed" in parts else None
        steps = iter_layer_steps(rnn, x[:, 0], None, parts["dt"], observed)
        known = [before for _, _, before, _ in steps]
    return torch.cat(known, dim=-1)


def _check_same_samples(
    model: nn.Module, rnn: SequenceModule, module_inputs: _ModuleInputs, batch: SequenceBatch
) -> None:
    """Raise unless what a module got are the samples of the data, with their time steps."""
    x = module_inputs.x.new_zeros(*batch.x.shape[:2], 1)
    data = _remove_masked_steps(prepare_inputs("memory_length", 1, x, dt=batch.dt, mask=batch.mask))
    if len(module_inputs.counts) != len(data.counts):
        got, had = f"{format_count(len(module_inputs.counts), 'sequence')}", f"{len(data.counts)}"
    else:
        alike = (module_inputs.counts == data.counts) & module_inputs.span.isclose(
            data.span, rtol=1e-3, atol=0.0
        )
        if bool(alike.all()):
            return
        row = int((~alike).nonzero()[0])
        got, had = module_inputs.describe_row(row), f"{data.describe_row(row)} in sequence {row}"
    name = type(rnn).__name__
    raise ArgumentError(
        f"memory_length: the {name} inside of {type(model).__name__} gets {got}, where the data "
        f"have {had}, so that what it remembers is not counted in samples of the data. Pass the "
        f"{name} itself, with data of the inputs and time steps that it gets."
    )


def _remove_masked_steps(inputs: SequenceInputs) -> _ModuleInputs:
    """Return the samples of a call without the masked steps between them, which change nothing."""
    x, B, T = inputs.x, *inputs.x.shape[:2]
    companions = {
        "dt": inputs.dt.squeeze(-1),
        "observed": inputs.observed,
        "episode_start": inputs.episode_start,
    }
    known = {name: value for name, value in companions.items() if value is not None}
    if inputs.mask is None:
        return _ModuleInputs(x, known, torch.full((B,), T, device=x.device))
    order = inputs.mask.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    counts = inputs.mask.sum(1)
    order = order[:, : int(counts.max())]
    if not order.numel():
        raise ArgumentError("memory_length: all steps of the data are masked.")
    row = torch.arange(B, device=x.device).unsqueeze(1)
    return _ModuleInputs(x[row, order], {name: v[row, order] for name, v in known.items()}, counts)


def _compare_trajectories(
    rnn: SequenceModule,
    module_inputs: _ModuleInputs,
    starts: tuple[Tensor, Tensor],
    tolerance: float,
) -> MemoryLength:
    """Run all sequences from both starts, a stretch at a time, and compare at its end."""
    widths = [width for cell in rnn.each_cell for width in cell.state_parts.values()]

    def largest(values: Tensor) -> Tensor:  # of each part, (B, P)
        return torch.stack(
            [entries.abs().amax(1) for entries in values.split(widths, dim=1)], dim=1
        )

    first = largest(starts[0] - starts[1])
    rounding = 16 * torch.finfo(module_inputs.x.dtype).eps
    ends = _choose_checked_steps(module_inputs.x.shape[1])
    h, recorded, floor, done = starts, [], rounding * largest(starts[0]).clamp_min(1.0), 0
    # A part that both starts have alike is told by the others.
    unit = torch.where(first > floor, first, first.amax(1, keepdim=True))
    for end in ends:
        x, gaps_and_masks = module_inputs.slice_steps(done, end)
        h = tuple(rnn(x, part, **gaps_and_masks)[1] for part in h)
        recorded.append(largest(h[0] - h[1]))
        floor = torch.maximum(floor, rounding * largest(h[0]).clamp_min(1.0))
        done = end
    parts = torch.stack(recorded, dim=1)  # (B, L, P)
    forgotten = parts <= torch.maximum(tolerance * first, floor).unsqueeze(1)
    index = _find_first_permanent(forgotten.all(2))
    shares = parts / unit.clamp_min(torch.finfo(unit.dtype).tiny).unsqueeze(1)
    differences = shares.amax(2)
    is_measurable = (parts > floor.unsqueeze(1)) & parts.isfinite()
    clear = torch.where(is_measurable, shares, torch.zeros_like(shares)).amax(2)
    looks = torch.tensor(ends, device=index.device)
    forgot = index < len(ends)
    # A sequence is looked at on after its end, where nothing changes any more.
    passed = module_inputs.counts.minimum(looks[index.clamp_max(len(ends) - 1)])
    slowest = _find_slowest(forgot, passed)
    steps = int(passed[slowest]) if bool(forgot[slowest]) else None
    counted = module_inputs.counts[slowest].minimum(looks)
    return MemoryLength(
        steps=steps,
        time=None
        if steps is None
        else float(module_inputs.aligned_inputs["dt"][slowest, :steps].sum()),
        rate=_compute_growth_rate(clear[slowest], counted),
        samples=int(module_inputs.counts[slowest]),
        after=ends,
        differences=differences,
    )


def _find_slowest(forgot: Tensor, passed: Tensor) -> int:
    """Return which sequence remembered longest, given the samples until it forgot, or its end.

    Of two that took as long the one that had not forgotten is the slower.
    """
    return int((2 * passed + (~forgot)).argmax())


def _choose_checked_steps(steps: int) -> tuple[int, ...]:
    """Return where to look: at every step first, then every sixteenth of the way."""
    ends, end = [], 0
    while end < steps:
        end = min(steps, end + max(1, end // 16))
        ends.append(end)
    return tuple(ends)


def _find_first_permanent(forgotten: Tensor) -> Tensor:
    """Return from which look on all are true, (B,); the number of looks if the last is not."""
    return forgotten.shape[1] - forgotten.flip(1).long().cumprod(1).sum(1)


def _compute_growth_rate(clear: Tensor, counted: Tensor) -> float:
    """Return the mean logarithmic growth per sample until the last look above rounding.

    Args:
        clear: shares of the first difference, (L,), 0 where they are no more than rounding.
        counted: samples until each look, (L,).
    """
    if not bool((clear > 0).any()):
        return -math.inf
    last = int((clear > 0).nonzero()[-1])
    return float(clear[last].log()) / max(1, int(counted[last]))
