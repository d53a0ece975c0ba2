"""Triton source of the kernels of a step."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from tauflow.kernels.gpu.plan import next_power_of_two
from tauflow.kernels.trace import program as codes

from .phases import PhaseKernel, Phases, StoreTarget
from .values import (
    CONSTANT,
    GIVEN,
    GRAD,
    MAX,
    OUTSIDE,
    PRODUCT,
    SPREAD,
    STATE,
    SUM,
    Value,
    ValueGraph,
    to_kernel_storage,
)

_ELEMENTWISE = {
    codes.ADD: "{} + {}",
    codes.SUB: "{} - {}",
    codes.MUL: "{} * {}",
    codes.DIV: "{} / {}",
    codes.TANH_BACKWARD: "{0} * (1.0 - {1} * {1})",
    codes.SIGMOID_BACKWARD: "{0} * (1.0 - {1}) * {1}",
    codes.MAXIMUM: "maximum({}, {})",
    codes.MINIMUM: "minimum({}, {})",
    codes.LESS: "({} < {}).to(tl.float32)",
    codes.LESS_EQUAL: "({} <= {}).to(tl.float32)",
    codes.EQUAL: "({} == {}).to(tl.float32)",
    codes.WHERE: "tl.where({} != 0.0, {}, {})",
    codes.LERP: "{0} + {2} * ({1} - {0})",
    codes.ADD_PRODUCT: "{} + {} * {}",
    codes.TANH: "tanh({})",
    codes.SIGMOID: "sigmoid({})",
    codes.EXP: "tl.exp({})",
    codes.RELU: "tl.where({0} <= 0.0, 0.0, {0})",
    codes.SOFTPLUS: "softplus({})",
    codes.ABS: "tl.abs({})",
    codes.SQRT: "tl.sqrt({})",
    codes.FLOOR: "tl.floor({})",
    codes.ROUND: "rounded({})",
    codes.SIGN: "sign({})",
    codes.LOG: "tl.log({})",
    codes.EXPM1: "expm1({})",
    codes.SIN: "tl.sin({})",
    codes.COS: "tl.cos({})",
    codes.GELU: "gelu({})",
}

_MIN_DOT_SIZE = 16  # of each side of a product that matrix units take

ARGUMENTS = ["steps", "before", "saved", "input_grads", "start", "y", "last", "mask"]


class Sizes(NamedTuple):
    """Columns of the tensors that kernels read and write.

    Args:
        widths: of what steps are given, but for the state, side by side in ``steps``.
        state: of the state.
        lengths: see :func:`list_read_tensors`.
    """

    widths: tuple[int, ...]
    state: int
    lengths: dict["TensorSource", int]

    @property
    def tensors(self) -> tuple["TensorSource", ...]:
        """That are read, in order."""
        return tuple(self.lengths)


class TensorSource(NamedTuple):
    """A tensor as kernels read it.

    Args:
        number: of the tensor among the captured ones, -1 for constants.
        turned: 0, or the stride of columns, which follow one another where they are read.
    """

    number: int
    turned: int

    @property
    def name(self) -> str:
        """Of the argument."""
        of = "constants" if self.number < 0 else f"m{self.number}"
        return f"{of}_turned_{self.turned}" if self.turned else of


def list_read_tensors(step: ValueGraph, captured: Sequence[Tensor]) -> dict[TensorSource, int]:
    """Return which of the tensors that a step captures its kernels read.

    Returns:
        Sources, and of each that is turned how many columns become rows.
    """
    sources: dict[TensorSource, int] = {}
    for value in step.values:
        if value.code == OUTSIDE:
            sources[TensorSource(value.extra[0], 0)] = 0
        elif value.code == PRODUCT:
            for number, _, (down, across), _ in value.extra:
                turned = 0
                if number >= 0 and down == 1 and across > 1 and captured[number].ndim == 2:
                    sides = dict(
                        zip(captured[number].stride(), captured[number].shape, strict=True)
                    )
                    turned = sides.get(across, 0) if sides.keys() == {1, across} else 0
                sources[TensorSource(number, across if turned else 0)] = turned
    return dict(sorted(sources.items()))


def to_kernel_layout(source: TensorSource, tensor: Tensor) -> Tensor:
    """Return a tensor that the step captures as kernels read it."""
    if not source.turned:
        return to_kernel_storage(tensor)
    return (tensor if tensor.stride(0) == 1 else tensor.T).contiguous()


def generate_source(
    step: ValueGraph, phases: Phases, sizes: Sizes, carried: int, *, resident: bool
) -> str:
    """Return the source of kernels ``before``, ``loop`` and ``after``, those that do anything.

    Args:
        step: as values.
        phases: which kernel computes them.
        sizes: of the tensors.
        carried: what the loop carries, the state or a gradient.
        resident: whether the loop keeps matrices on the chip.
    """
    writers = []
    for name in ("before", "loop", "after"):
        kernel: PhaseKernel = getattr(phases, name)
        if name == "loop" or kernel.keeps or kernel.input_grads:
            writers.append(_Writer(name, step, phases, sizes, carried, resident).source())
    return "\n\n".join(writers)


class _Writer:
    """Writes a kernel."""

    def __init__(
        self,
        name: str,
        step: ValueGraph,
        phases: Phases,
        sizes: Sizes,
        carried: int,
        resident: bool,
    ) -> None:
        self.name, self.step, self.values = name, step, step.values
        self.kernel: PhaseKernel = getattr(phases, name)
        self.phases, self.sizes, self.carried, self.resident = phases, sizes, carried, resident
        self.starts = [sum(sizes.widths[:i]) for i in range(len(sizes.widths))]
        self.prologue: list[str] = []
        self.body: list[str] = []
        self.ahead: dict[str, str] = {}
        self.tiles: set[int] = set()
        self.known: set[str] = set()

    def source(self) -> str:
        """Return the source."""
        roots = [*self.kernel.keeps, *self.kernel.input_grads]
        fixed = self._fixed(roots)
        for number in fixed:
            self._write(number, self.prologue)
        for number in self.kernel.values:
            self._write(number, self.body)
        for name, targets in (
            ("saved", self.kernel.keeps),
            ("input_grads", self.kernel.input_grads),
        ):
            width = self.phases.width if name == "saved" else sum(self.sizes.widths)
            self.body += [self._store(name, f"at * {width}", target) for target in targets]
        arguments = [*ARGUMENTS, *(tensor.name for tensor in self.sizes.tensors), "B", "T"]
        flags = ["MASKED", "KEEP", "PRECISION", "ROWS"]
        lines = [
            '@triton.jit(do_not_specialize=["B", "T"])',
            f"def {self.name}(",
            *(f"    {argument}," for argument in arguments),
            *(f"    {flag}: tl.constexpr," for flag in flags),
            "):",
        ]
        inside = self._loop() if self.name == "loop" else self._parallel()
        return "\n".join([*lines, *(f"    {line}" for line in inside)]) + "\n"

    def _fixed(self, roots: Sequence[StoreTarget]) -> list[int]:
        """Return the values without rows that are needed, in order."""
        numbers: set[int] = set()
        waiting = [
            arg
            for n in self.kernel.values
            if n not in self.kernel.saved
            for arg in self.values[n].args
        ]
        waiting += [root.value for root in roots]
        if self.name == "loop":
            waiting += [atom.value for atom in self.step.state]
        while waiting:
            number = waiting.pop()
            if number not in numbers and not self.values[number].is_per_row:
                numbers.add(number)
                waiting += self.values[number].args
        return sorted(numbers)

    def _ranges(self) -> list[str]:
        return [f"c{n} = tl.arange(0, {n})[None, :]" for n in sorted(self.tiles)]

    def _parallel(self) -> list[str]:
        return [
            "at = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]",
            "live = at < B.to(tl.int64) * T",
            *self._ranges(),
            *self.prologue,
            *self.body,
        ]

    def _read(self, name: str, load: str) -> str:
        """Return what a step reads at ``at``; the loop reads it one step ahead."""
        if self.name != "loop":
            return load
        self.ahead[name] = load
        return f"now_{name}"

    def _loop(self) -> list[str]:
        S, forwards = self.sizes.state, self.carried == STATE
        begin, first, last, end = [], [], [], []
        for atom in self.step.state:
            name, check = f"s{atom.start}", self._check(atom.width)
            address = f"{S} + {atom.start} + {self._tile(atom.width)}"
            begin.append(f"{name} = tl.load(start + row * {address}, {check}, other=0.0)")
            if forwards:
                first += ["if KEEP:", f"    tl.store(before + at * {address}, {name}, {check})"]
            else:
                pull = f"tl.load(y + at * {address}, {check} & KEEP, other=0.0)"
                first += ["if KEEP:", f"    {name} += {self._read(f'y{atom.start}', pull)}"]
                first.append(f"e{atom.start} = tl.where(valid, {name}, 0.0)")
            new = self._broadcast(atom.value, atom.width)
            last.append(f"{name} = tl.where(valid, {new}, {name})")
            if forwards:
                last.append(f"tl.store(y + at * {address}, {name}, {check})")
            end.append(f"tl.store(last + row * {address}, {name}, {check})")
        marks = self._read("mask", "tl.load(mask + at, live & MASKED, other=0)")
        inside = [
            *(f"now_{name} = next_{name}" for name in self.ahead),
            f"then = at {'+' if forwards else '-'} (t + 1 < T).to(tl.int64)",
            *(f"next_{name} = {load.replace(' at', ' then')}" for name, load in self.ahead.items()),
            *("valid = live", "if MASKED:", f"    valid = live & ({marks} != 0)"),
            *(*first, *self.body, *last, f"at {'+' if forwards else '-'}= 1"),
        ]
        return [
            "row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]",
            "live = row < B",
            *(*self._ranges(), *self.prologue, *begin),
            "at = row * T" if forwards else "at = row * T + T - 1",
            *(f"next_{name} = {load}" for name, load in self.ahead.items()),
            "for t in range(T):",
            *(f"    {line}" for line in inside),
            *end,
        ]

    def _tile(self, width: int) -> str:
        size = next_power_of_two(width)
        self.tiles.add(size)
        return f"c{size}"

    def _check(self, width: int) -> str:
        tile = self._tile(width)
        return "live" if width == next_power_of_two(width) else f"live & ({tile} < {width})"

    def _broadcast(self, number: int, width: int) -> str:
        value = self.values[number]
        if value.is_per_row and value.width == width:
            return f"v{number}"
        return f"tl.broadcast_to(v{number}, (ROWS, {next_power_of_two(width)}))"

    def _store(self, buffer: str, row: str, target: StoreTarget) -> str:
        tile, check = self._tile(target.width), self._check(target.width)
        value = self._broadcast(target.value, target.width)
        return f"tl.store({buffer} + {row} + {target.start} + {tile}, {value}, {check})"

    def _write(self, number: int, lines: list[str]) -> None:
        """Write the line that computes a value."""
        value = self.values[number]
        if number in self.kernel.saved:
            load = self._load("saved", self.phases.width, self.kernel.saved[number], value.width)
            right = self._read(f"v{number}", load)
        elif value.code == GIVEN:
            right = self._given(number, value)
        elif value.code == CONSTANT:
            right = f"tl.full((1, 1), {_literal(value.extra[0])}, tl.float32)"
        elif value.code == OUTSIDE:
            right = self._outside(value)
        elif value.code == PRODUCT:
            self._product(number, value, lines)
            return
        elif value.code == SPREAD:
            size = next_power_of_two(value.width)
            self._tile(value.width)
            right = f"v{value.args[0]} + tl.zeros((1, {size}), tl.float32)"
        elif value.code in (SUM, MAX):
            right = self._column_sum(value)
        else:
            assert isinstance(value.code, int)
            right = _ELEMENTWISE[value.code].format(*(f"v{arg}" for arg in value.args))
        lines.append(f"v{number} = {right}")

    def _load(self, buffer: str, stride: int, start: int, width: int) -> str:
        address = f"{buffer} + at * {stride} + {start} + {self._tile(width)}"
        return f"tl.load({address}, {self._check(width)}, other=0.0)"

    def _given(self, number_of_value: int, value: Value) -> str:
        number, start = value.extra
        if number == GRAD:
            return f"e{start}"
        if number == STATE and self.carried == STATE:
            return f"s{start}"
        if number == STATE:
            load = self._load("before", self.sizes.state, start, value.width)
        else:
            width, first = sum(self.sizes.widths), self.starts[number] + start
            load = self._load("steps", width, first, value.width)
        return self._read(f"v{number_of_value}", load)

    def _outside(self, value: Value) -> str:
        tensor, first, step = value.extra
        tile = self._tile(value.width)
        check = f"{tile} < {value.width}"
        name = TensorSource(tensor, 0).name
        return f"tl.load({name} + {first} + {tile} * {step}, {check}, other=0.0)"

    def _column_sum(self, value: Value) -> str:
        (arg,) = value.args
        width = self.values[arg].width
        tile, full = self._tile(width), width == next_power_of_two(width)
        filler = "0.0" if value.code == SUM else 'float("-inf")'
        of = f"v{arg}" if full else f"tl.where({tile} < {width}, v{arg}, {filler})"
        return f"tl.{'sum' if value.code == SUM else 'max'}({of}, 1)[:, None]"

    def _product(self, number: int, value: Value, lines: list[str]) -> None:
        bias, *rows = value.args
        n = value.width
        N = next_power_of_two(n)
        total = f"tl.broadcast_to(v{bias}, (ROWS, {N}))"
        parts: dict[int, list[str]] = {}  # of products that are added before they are summed
        for row, piece in zip(rows, value.extra, strict=True):
            k = piece[-1]
            K = next_power_of_two(k)
            left, weights = self._factor(row, k), self._matrix(piece, n)
            if self.name != "loop" and min(K, N) >= _MIN_DOT_SIZE:
                total = f"tl.dot({left}, {weights}, {total}, input_precision=PRECISION)"
            else:
                parts.setdefault(K, []).append(f"({left})[:, :, None] * ({weights})[None, :, :]")
        for products in parts.values():
            total = f"{total} + tl.sum({' + '.join(products)}, 1)"
        lines.append(f"v{number} = {total}")

    def _factor(self, number: int, width: int) -> str:
        """Return a tile without anything where it is wider than its columns."""
        value, size = self.values[number], next_power_of_two(width)
        tile = self._tile(width)
        text = f"v{number}" if value.is_per_row else f"tl.broadcast_to(v{number}, (ROWS, {size}))"
        if width == size or value.code == GIVEN or number in self.kernel.saved:
            return text
        return f"tl.where({tile} < {width}, {text}, 0.0)"

    def _matrix(self, piece: tuple[int, int, tuple[int, int], int], n: int) -> str:
        tensor, first, (down, across), k = piece
        K, N = next_power_of_two(k), next_power_of_two(n)
        tile = self._tile(n)
        source = TensorSource(tensor, across if down == 1 else 0)
        if source not in self.sizes.lengths:
            source = TensorSource(tensor, 0)
        if source.turned:
            rows = self.sizes.lengths[source]
            first = first % across * rows + first // across
            down, across = rows, 1
        name = f"w_{source.name}_{first}_{k}_{n}"
        i = f"tl.arange(0, {K})[:, None]"
        checks = [f"({i} < {k})"] * (k < K) + [f"({tile} < {n})"] * (n < N)
        check = f", {' & '.join(checks)}, other=0.0" if checks else ""
        load = f"tl.load({source.name} + {first} + {i} * {down} + {tile} * {across}{check})"
        if not self.resident or self.name != "loop":
            return load
        if name not in self.known:
            self.known.add(name)
            self.prologue.append(f"{name} = {load}")
        return name


def _literal(value: float) -> str:
    text = repr(value)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text
