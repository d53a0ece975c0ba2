"""One step of a model in integers: from its graph and calibration data to loops of operations."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tauflow.errors import ExportError

from .evaluate import evaluate
from .fixed_code import FixedModel
from .fixed_ops import Op
from .fixed_point import lower
from .fixed_rewrite import add_copies, find_soft, fold_affine, rewrite_gaps, scale_lanes, walk_items
from .fixed_values import MAX_Q, Formats, fit_q
from .graph_passes import Item, Repeat, find_repeats, fold_products
from .loops import Body, make_layout, walk
from .step_graph import Array, Ref, StepGraph, StepNode

Q15 = 15
_ACTIVATION_RANGE = {"tanh": 8.0, "sigmoid": 16.0, "exp": 16.0}


@dataclass(frozen=True)
class CalibrationSequences:
    """Samples to calibrate with.

    Args:
        x: inputs, (T, I) each.
        dt: time steps, (T,) each.
        observed: which were measured, (T, I) each, or none.
        h: states before the first sample, (B, S).
    """

    x: Sequence[Array]
    dt: Sequence[Array]
    observed: Sequence[Array]
    h: Array

    def steps(self) -> Iterator[tuple[Array, dict[str, Array]]]:
        """Return, for one sample after another, which sequences have it, and the samples."""
        lengths = np.array([len(dt) for dt in self.dt])
        for step in range(int(lengths.max())):
            rows = np.flatnonzero(lengths > step)
            places = [int(row) for row in rows]
            inputs = {
                "x": np.stack([self.x[row][step] for row in places]).astype(np.float64),
                "dt": np.array([[self.dt[row][step]] for row in places], np.float64),
            }
            if self.observed:
                inputs["observed"] = np.stack([self.observed[r][step] for r in places]) * 1.0
            yield rows, inputs


@dataclass(frozen=True)
class IOFormats:
    """What integers of a sample mean: x = (int + x_zero) / 2^x_q, y alike.

    Args:
        x_q: (I,).
        x_zero: (I,), integers.
        x_mean: (I,), what is read where a number is missing, NaN.
        y_q: (O,).
        y_zero: (O,), integers.
    """

    x_q: Array
    x_zero: Array
    x_mean: Array
    y_q: Array
    y_zero: Array

    def pack(self, x: Array) -> Array:
        """Return the integers of inputs, (..., I)."""
        x = np.where(np.isnan(x), self.x_mean, x)
        integers: Array = np.rint(x * 2.0**self.x_q) - self.x_zero
        return np.clip(integers, -32768, 32767).astype(np.int64)

    def unpack(self, y: Array) -> Array:
        """Return the numbers of outputs, (..., O)."""
        numbers: Array = (y + self.y_zero) * 2.0**-self.y_q
        return numbers


@dataclass(frozen=True)
class IntegerStep:
    """A step in integers.

    Args:
        body: its loops.
        sizes: lanes of its arrays, by name.
        io: what integers of samples mean.
        state_q: format of the state, (S,).
        state_bits: of a number of the state.
        state_limit: the largest magnitude of each, (S,).
    """

    body: Body[Op]
    sizes: Mapping[str, int]
    io: IOFormats
    state_q: Array
    state_bits: int
    state_limit: Array

    def model(self) -> FixedModel:
        """Return the step as NumPy computes it."""
        return FixedModel(self.body, self.sizes, len(self.io.y_q), self.state_limit)

    @property
    def has_relaxation(self) -> bool:
        """Whether it has the semi-implicit step of an LTC."""
        return any(op.name == "relax" for loop in walk(self.body) for op in loop.statements)

    def largest_sum(self) -> float:
        """Return how much of 32 bits the sums of products may take, by their weights."""
        dots = [op.values for loop in walk(self.body) for op in loop.statements if op.name == "dot"]
        worst = [(np.abs(w).sum(1) * 32768 + np.abs(b)).max() / 2**31 for w, b, _, _ in dots]
        return float(max(worst, default=0.0))


def pack_gap(dt: Array) -> tuple[Array, Array]:
    """Return mantissas below 2^15 and exponents of time steps."""
    exponent = np.frexp(dt)[1].astype(np.int64) - 15
    mantissa = np.rint(dt * 2.0**-exponent).astype(np.int64)
    is_large = mantissa > 32767
    mantissa, exponent = np.where(is_large, mantissa >> 1, mantissa), exponent + is_large
    return mantissa, np.where(mantissa == 0, 0, exponent)


def compile_fixed_step(
    graph: StepGraph,
    sequences: CalibrationSequences,
    *,
    outputs: Array,
    scales: Sequence[Array],
    wide_lanes: Array,
    parts: Sequence[int],
    is_int8: bool,
) -> IntegerStep:
    """Return a step in integers.

    Args:
        graph: of the model in double precision; changed.
        sequences: calibration data, in the units before scaling.
        outputs: what the model says to them, (N, O), in the units before scaling.
        scales: mean and scale of inputs, then of outputs, or nothing.
        wide_lanes: which numbers of the state are a flow's, (S,).
        parts: where each part of the state begins, whose numbers have one format.
        is_int8: whether weights have 8 bits.

    Raises:
        ExportError: the step has no integers, and why.
    """
    count = sequences.x[0].shape[1]
    mean, scale = scales[:2] if scales else (np.zeros(count), np.ones(count))
    x = np.concatenate(list(sequences.x))
    low, high = x.min(0), x.max(0)
    if scales:  # of missing numbers the mean is read
        low, high = np.minimum(low, mean), np.maximum(high, mean)
    x_q, x_zero = _choose_io_formats(low, high, margin=1.1)
    x_factor = 2.0 ** (Q15 - x_q) / scale
    x_offset = (x_zero * 2.0**-x_q - mean) / scale
    y_low, y_high = outputs.min(0), outputs.max(0)
    y_mean, y_scale = scales[2:] if len(scales) > 2 else (0 * y_low, 1 + 0 * y_low)
    y_q, y_zero = _choose_io_formats(y_low, y_high, 1.25)
    y_factor = y_scale * 2.0 ** (y_q - Q15)
    y_offset = (y_mean * 2.0**y_q - y_zero) * 2.0**-Q15
    scale_lanes(graph, x_factor, x_offset, y_factor, y_offset)
    fold_affine(graph)
    fold_products(graph, fold_offsets=True)
    rewrite_gaps(graph)
    soft = find_soft(graph.nodes)
    items = find_repeats(graph)
    wide = _find_wide(items, graph.outputs["h_out"], wide_lanes)
    state_bits = 32 if wide_lanes.any() else 16

    def needs_copy(ref: Ref) -> bool:
        node = ref.node
        is_wide = id(node) in wide or node.op in ("sum", "max") or node.name == "observed"
        is_state = node.name == "h_in" and state_bits == 32
        is_run = len(ref.index) == 1 or bool((np.diff(ref.index) == 1).all())
        return is_wide or is_state or not is_run

    items = add_copies(items, needs_copy)
    ranges = _Ranges()
    io = IOFormats(x_q, x_zero, mean, y_q, y_zero)
    states = _run_float(items, graph.outputs, sequences, io, ranges)
    if sequences.observed and all(v.all() for v in sequences.observed):  # one day some will not be
        draw = np.random.default_rng(0).integers
        some = [np.asarray(draw(0, 2, v.shape)) for v in sequences.x]
        partly = replace(sequences, observed=some)
        states = np.concatenate([states, _run_float(items, graph.outputs, partly, io, ranges)])
    ranges.join_carries(items)
    state_q = _choose_state_formats(states, wide_lanes, parts)
    formats = Formats(ranges.low, ranges.high, state_q, wide, soft, Q15, {}, is_int8, state_bits)
    formats.needs = _find_needs(items, graph.outputs, formats)

    def array_of(node: StepNode) -> str:
        return "sums" if node.op in ("sum", "max") else "wide" if id(node) in wide else "narrow"

    layout = make_layout(items, graph.outputs, homes={"h_out": "h_in"}, arrays=array_of)
    body = lower(layout, formats)
    limit = np.where(wide_lanes, 2**30, 32768)
    return IntegerStep(body, layout.sizes, io, state_q, state_bits, limit)


def _choose_io_formats(low: Array, high: Array, margin: float) -> tuple[Array, Array]:
    """Return the formats of inputs or outputs, and the zeros of those whose range is far from 0.

    These hold four times their range in the calibration data, as no other number is near it.
    """
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-6 * np.abs(high) + 1e-12)
    is_far = np.abs(middle) > 8 * half
    span = np.where(is_far, 4 * half, margin * np.maximum(np.abs(low), np.abs(high)))
    q = np.array([fit_q(v) for v in span])
    return q, np.where(is_far, np.rint(middle * 2.0**q), 0.0)


class _Ranges:
    """Smallest and largest number of each node."""

    def __init__(self) -> None:
        self.low: dict[int, float] = defaultdict(lambda: np.inf)
        self.high: dict[int, float] = defaultdict(lambda: -np.inf)

    def __call__(self, node: StepNode, lanes: Array) -> None:
        self.low[id(node)] = min(self.low[id(node)], float(lanes.min()))
        self.high[id(node)] = max(self.high[id(node)], float(lanes.max()))

    def join_carries(self, items: list[Item]) -> None:
        """Give what is carried to the next pass the range of both, as they may share memory."""
        for carry, node in (
            pair for item in items if isinstance(item, Repeat) for pair in item.carries
        ):
            for bounds, join in ((self.low, min), (self.high, max)):
                bounds[id(carry)] = bounds[id(node)] = join(bounds[id(carry)], bounds[id(node)])


def _run_float(
    items: list[Item],
    outputs: Mapping[str, list[Ref]],
    sequences: CalibrationSequences,
    io: IOFormats,
    see: _Ranges,
) -> Array:
    """Return the states that occur in double precision, (N, S)."""
    h = sequences.h.copy()
    states = [h.copy()]
    leaves = {id(r.node): r.node for node in walk_items(items) for r in node.args}
    for rows, inputs in sequences.steps():
        x = (inputs["x"] * 2.0**io.x_q - io.x_zero) / 2.0**Q15
        feeds = {**inputs, "x": x, "h_in": h[rows]}
        out = evaluate(items, outputs, feeds, see)
        for node in leaves.values():
            if node.op == "input":
                see(node, feeds[node.name][:, node.offset : node.offset + node.count])
        h[rows] = out["h_out"]
        states.append(out["h_out"])
    every = np.concatenate(states)
    if not np.isfinite(every).all():
        raise ExportError(
            "what was made of the model is not finite on the calibration data, the model itself "
            "is. Please report it with the model's options."
        )
    return every


def _choose_state_formats(states: Array, wide_lanes: Array, parts: Sequence[int]) -> Array:
    top = np.abs(states).max(0)
    q = np.zeros(len(top), int)
    bounds = [*parts, len(top)]
    for start, stop in pairwise(bounds):
        most = float(top[start:stop].max())
        q[start:stop] = fit_q(1.0 if 0.5 < most <= 1.0 else 1.5 * most)
    formats: Array = q + 15 * wide_lanes
    return formats


def _find_wide(items: list[Item], h_out: Sequence[Ref], wide_lanes: Array) -> set[int]:
    """Return the ids of nodes that are a flow's state and what is added to it."""
    bounds = np.cumsum([0, *(len(ref.index) for ref in h_out)])
    wide = {
        id(ref.node)
        for ref, lanes in zip(h_out, map(slice, bounds, bounds[1:]), strict=False)
        if wide_lanes[lanes].all() and ref.node.op not in ("input", "const")
    }

    def is_wide(ref: Ref) -> bool:
        if ref.node.name == "h_in":
            lanes = ref.node.offset + np.arange(ref.node.count)
            if wide_lanes[lanes].all():
                wide.add(id(ref.node))
        return id(ref.node) in wide

    for item in items:
        if isinstance(item, Repeat):
            for carry, node in item.carries:
                if is_wide(carry.args[0]):
                    wide |= {id(carry), id(node)}
        for node in walk_items([item]):
            reads = [is_wide(ref) for ref in node.args]
            if node.op in ("relax", "add", "sub") and any(reads[:2]):
                wide.add(id(node))
    return wide


def _find_needs(
    items: list[Item], outputs: Mapping[str, list[Ref]], formats: Formats
) -> dict[int, float]:
    """Return beyond which magnitude a number saturates whatever reads it."""
    needs: dict[int, float] = {}
    free = [ref.node for refs in outputs.values() for ref in refs]
    for item in items:
        if isinstance(item, Repeat):
            for carry, node in item.carries:
                free += [node, *(ref.node for ref in carry.args)]
    needs.update((id(node), np.inf) for node in free)
    for node in reversed(walk_items(items)):
        need = needs.get(id(node), np.inf)
        for place, ref in enumerate(node.args):
            size = _need_of_operand(node, place, need, formats)
            needs[id(ref.node)] = max(needs.get(id(ref.node), 0.0), size)
    return {key: max(size, 2.0**-MAX_Q) for key, size in needs.items() if np.isfinite(size)}


def _need_of_operand(node: StepNode, place: int, need: float, formats: Formats) -> float:
    if node.op in ("neg", "relu"):
        return need
    if node.op not in ("add", "sub") or not np.isfinite(need):
        return _ACTIVATION_RANGE.get(node.op, np.inf)
    other = node.args[1 - place].node
    if other.value is not None and other.op == "const":
        return need + float(np.abs(other.value).max())
    return need + formats.most(other)
