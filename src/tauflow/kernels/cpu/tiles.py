"""Tiles of matrix products, written as vectors of LLVM.

A tile is a few rows times a few vectors of columns of a product, whose sums stay in registers while
the terms go by.
"""

# mypy: ignore-errors

from functools import cache
from itertools import chain
from typing import NamedTuple

import llvmlite.binding
from llvmlite import ir
from numba.core import config
from numba.core.registry import cpu_target

_FLOAT, _SIZE, _INDEX = ir.FloatType(), ir.IntType(64), ir.IntType(32)


class VectorUnit(NamedTuple):
    """What a processor has for products.

    Args:
        lanes: floats of a vector.
        registers: vectors that it holds.
        fuses: whether it multiplies and adds at once.
    """

    lanes: int
    registers: int
    fuses: bool


class Tile(NamedTuple):
    """A part of a product that stays in registers.

    Args:
        rows: of the result.
        vectors: of columns.
        is_masked: whether only the first columns are there.
    """

    rows: int
    vectors: int
    is_masked: bool = False


@cache
def find_vector_unit(triple: str, cpu: str, features: str) -> VectorUnit:
    """Return the vectors of a target of LLVM, found from what it makes of a product of 16 floats.

    Args:
        triple: of the target.
        cpu: name of the processor.
        features: that it has or lacks besides those of its name.
    """
    module = ir.Module()
    vector = ir.VectorType(_FLOAT, 16)
    probe = ir.Function(module, ir.FunctionType(vector, [vector] * 3), "probe")
    builder = ir.IRBuilder(probe.append_basic_block())
    builder.ret(_multiply_add(builder, True, *probe.args))
    target = llvmlite.binding.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=cpu, features=features)
    code = machine.emit_assembly(llvmlite.binding.parse_assembly(str(module)))
    fuses = "vfmadd" in code or "fmla" in code
    if "zmm" in code:
        return VectorUnit(16, 32, fuses)
    if "ymm" in code:
        return VectorUnit(8, 16, fuses)
    return VectorUnit(4, 16 if "xmm" in code else 32, fuses)


def find_own_vector_unit() -> VectorUnit:
    """Return the vectors of the processor that numba compiles for."""
    triple, cpu, features = cpu_target.target_context.codegen().magic_tuple()
    if config.CPU_NAME and not config.CPU_FEATURES:
        features = ""  # numba lets a processor that was named have all that this one has
    return find_vector_unit(triple, cpu, features)


def _multiply_add(builder, fuses, a, b, total):
    if not fuses:  # the C library's function would be called for every float
        return builder.fadd(builder.fmul(a, b), total)
    name = f"llvm.fma.v{a.type.count}f32"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(a.type, [a.type] * 3), name)
    return builder.call(function, [a, b, total])


def _call_masked(builder, verb, result, arguments):
    vector = f"v{arguments[-1].type.count}f32"
    name = f"llvm.masked.{verb}.{vector}.p0"
    function = builder.module.globals.get(name)
    if function is None:
        kinds = [argument.type for argument in arguments]
        function = ir.Function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(function, arguments)


class _Columns:
    """Loads and stores the vectors of a row of a tile.

    Args:
        builder: of the function.
        lanes: floats of a vector.
        tile: the tile.
        columns: how many there are, if the tile is masked.
    """

    def __init__(self, builder, lanes: int, tile: Tile, columns) -> None:
        self.builder, self.lanes, self.vectors = builder, lanes, tile.vectors
        self.type, self.mask = ir.VectorType(_FLOAT, lanes), None
        if tile.is_masked:
            numbers = ir.Constant(ir.VectorType(_SIZE, lanes), list(range(lanes)))
            self.mask = builder.icmp_signed("<", numbers, _splat(builder, columns, lanes))

    def load(self, row):
        """Return the vectors that begin at an address."""
        return [self._load(place) for place in self._iter_places(row)]

    def store(self, values, row):
        """Write vectors to an address."""
        for value, place in zip(values, self._iter_places(row), strict=True):
            if self.mask is None:
                self.builder.store(value, place).align = 4
            else:
                arguments = [value, place, ir.Constant(_INDEX, 4), self.mask]
                _call_masked(self.builder, "store", ir.VoidType(), arguments)

    def _iter_places(self, row):
        for first in range(0, self.vectors * self.lanes, self.lanes):
            place = self.builder.gep(row, [ir.Constant(_SIZE, first)])
            yield self.builder.bitcast(place, self.type.as_pointer())

    def _load(self, place):
        if self.mask is None:
            value = self.builder.load(place)
            value.align = 4
            return value
        nothing = ir.Constant(self.type, [0.0] * self.lanes)
        arguments = [place, ir.Constant(_INDEX, 4), self.mask, nothing]
        return _call_masked(self.builder, "load", self.type, arguments)


def _splat(builder, value, lanes):
    """Return a vector of one value."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_INDEX, 0))
    order = ir.Constant(ir.VectorType(_INDEX, lanes), [0] * lanes)
    return builder.shuffle_vector(first, undefined, order)


def build_tile(module: ir.Module, unit: VectorUnit, tile: Tile) -> ir.Function:
    """Return the function of a module that writes a tile of a b + d to c; it is made if need be.

    Its arguments are a and the strides of its rows and terms, b and the stride of its rows, d and
    the stride of its rows, c and the stride of its rows, the number of terms, and how many columns
    are there, for a masked tile. Strides are in floats.
    """
    name = f"tauflow_tile_{tile.rows}x{tile.vectors}x{unit.lanes}{'m' if tile.is_masked else ''}"
    if name in module.globals:
        return module.globals[name]
    pointer = _FLOAT.as_pointer()
    kinds = [pointer, _SIZE, _SIZE, *[pointer, _SIZE] * 3, _SIZE, _SIZE]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    a, a_rows, a_terms, b, b_rows, d, d_rows, c, c_rows, terms, columns = function.args
    start, body, end = map(function.append_basic_block, ("start", "body", "end"))
    builder = ir.IRBuilder(start)
    rows = range(tile.rows)
    a_of, d_of, c_of = (
        [builder.gep(base, [builder.mul(stride, _SIZE(row))]) for row in rows]
        for base, stride in ((a, a_rows), (d, d_rows), (c, c_rows))
    )
    vectors = _Columns(builder, unit.lanes, tile, columns)
    nothing = ir.Constant(vectors.type, [0.0] * unit.lanes)
    builder.branch(body)

    builder.position_at_end(body)
    counters = [builder.phi(_SIZE) for _ in range(3)]  # of terms, and places in a and b
    before = [[builder.phi(vectors.type) for _ in range(tile.vectors)] for _ in rows]
    own_b = vectors.load(builder.gep(b, [counters[2]]))
    after = []
    for row in rows:
        factor = _splat(builder, builder.load(builder.gep(a_of[row], [counters[1]])), unit.lanes)
        pairs = zip(own_b, before[row], strict=True)
        after.append([_multiply_add(builder, unit.fuses, factor, *pair) for pair in pairs])
    following = [
        builder.add(*pair) for pair in zip(counters, (_SIZE(1), a_terms, b_rows), strict=True)
    ]
    for counter, value in zip(counters, following, strict=True):
        counter.add_incoming(_SIZE(0), start)
        counter.add_incoming(value, body)
    for phi, total in zip(chain(*before), chain(*after), strict=True):
        phi.add_incoming(nothing, start)
        phi.add_incoming(total, body)
    builder.cbranch(builder.icmp_signed("<", following[0], terms), body, end)

    builder.position_at_end(end)
    for values, added, place in zip(after, d_of, c_of, strict=True):
        pairs = zip(vectors.load(added), values, strict=True)
        vectors.store([builder.fadd(*pair) for pair in pairs], place)
    builder.ret_void()
    return function


def list_tiles(unit: VectorUnit) -> list[Tile]:
    """Return the tiles that products are made of."""
    widest = unit.registers // 8
    return [
        *(
            Tile(rows, vectors)
            for rows in (6, 4, 2, 1)
            for vectors in (4, 2, 1)
            if vectors <= widest
        ),
        *(Tile(rows, 1, is_masked=True) for rows in (6, 4, 2, 1)),
        *(Tile(rows, 2 * widest) for rows in (2, 1)),
        Tile(1, 4 * widest),
    ]
