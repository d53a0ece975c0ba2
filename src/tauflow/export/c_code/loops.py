"""Put the nodes of a step into loops over lanes, and their values into memory for reuse."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from .graph_passes import Item, Repeat
from .step_graph import Ref, StepNode

S = TypeVar("S")
"""What a loop does: a :class:`Statement`, or an operation on integers."""


@dataclass(frozen=True)
class Statement:
    """What one pass of a loop does.

    Args:
        node: the node.
        place: of a sum's operand that is added to its target; -1 to compute the node, of a sum to
            write where it starts; -2 to copy lanes of it to an output.
        ref: the operand, or what is copied.
        output: name of the output, and the first lane there.
    """

    node: StepNode
    place: int = -1
    ref: Ref | None = None
    output: tuple[str, int] = ("", 0)

    @property
    def reads(self) -> tuple[Ref, ...]:
        """What it reads."""
        if self.ref is not None:
            return (self.ref,)
        return () if self.node.op in ("sum", "max") else self.node.args


@dataclass(eq=False)
class Loop(Generic[S]):
    """A loop over ``count`` lanes."""

    count: int
    statements: list[S] = field(default_factory=list)


@dataclass(eq=False)
class Passes(Generic[S]):
    """Loops that are run ``times`` times.

    Args:
        times: how often.
        body: the loops.
        carries: nodes that hold what the node beside them had in the pass before.
        shared: ids of those that are in the same memory as that node, and need no copy.
    """

    times: int
    body: "Body[S]"
    carries: list[tuple[StepNode, StepNode]] = field(default_factory=list)
    shared: set[int] = field(default_factory=set)


Body = list[Loop[S] | Passes[S]]


@dataclass(frozen=True)
class ArraySlot:
    """Where a node's lanes are: an array, and the first of them there."""

    array: str
    offset: int


@dataclass
class Layout:
    """Loops in order, where each node that outlives its loop is, and the size of each array."""

    body: Body[Statement]
    slots: dict[int, ArraySlot]
    sizes: dict[str, int]


def make_layout(
    items: Sequence[Item],
    outputs: Mapping[str, list[Ref]],
    *,
    homes: Mapping[str, str],
    arrays: Callable[[StepNode], str],
) -> Layout:
    """Plan the loops of a step.

    Args:
        items: its nodes in order.
        outputs: what it returns, by name.
        homes: outputs that hold nodes as other memory does, and the input that is the same array,
            or ``""``.
        arrays: says which array a node that outlives its loop is in.
    """
    body = _schedule(items)
    slots: dict[int, ArraySlot] = {}
    _place_outputs(body, slots, outputs, homes)
    _share_carries(body, slots)
    return Layout(body, slots, _allocate(body, slots, arrays))


# --- loops --------------------------------------------------------------------------------------


def _schedule(items: Sequence[Item]) -> Body[Statement]:
    """Put nodes into as few loops as their order allows."""
    schedule = _Schedule()
    sums = [item for item in items if isinstance(item, StepNode) and item.op in ("sum", "max")]
    for node in sums:  # first, so that their operands are added where they are computed
        schedule.add(schedule.place(node.count, 0), Statement(node))
    begun = len(schedule.body)
    for item in items:
        if isinstance(item, Repeat):
            schedule.repeat(item)
        elif item.op in ("sum", "max"):
            schedule.gather(item, begun)
        else:
            schedule.compute(item)
    return schedule.body


class _Schedule:
    def __init__(self) -> None:
        self.body: Body[Statement] = []
        self.ready: dict[int, tuple[int, bool]] = {}  # the loop, and whether a later one must read
        self.first = 0  # loops before a repetition are closed

    def place(self, count: int, lowest: int) -> int:
        """Return the last loop over so many lanes from one on, or a new one."""
        for index in range(len(self.body) - 1, max(lowest, self.first) - 1, -1):
            loop = self.body[index]
            if isinstance(loop, Loop) and loop.count == count:
                return index
        self.body.append(Loop(count))
        return len(self.body) - 1

    def earliest(self, ref: Ref, count: int, *, is_whole: bool) -> int:
        """Return the first loop that can read a reference."""
        if id(ref.node) not in self.ready:
            return 0
        index, is_late = self.ready[id(ref.node)]
        is_same = ref.is_identity and ref.node.count == count and not is_whole
        return index if is_same and not is_late else index + 1

    def add(self, index: int, statement: Statement) -> None:
        """Add a statement to a loop."""
        loop = self.body[index]
        assert isinstance(loop, Loop)
        loop.statements.append(statement)

    def repeat(self, item: Repeat) -> None:
        """Add a repetition."""
        self.body.append(Passes(item.times, _schedule(item.nodes), item.carries))
        self.first = len(self.body)
        for node in item.nodes:
            self.ready[id(node)] = (len(self.body) - 1, True)

    def gather(self, node: StepNode, begun: int) -> None:
        """Add each operand of a sum to its target where it is computed."""
        index = begun - 1
        for k, ref in enumerate(node.args):
            count = len(ref.index)
            lowest = max(index + 1, self.earliest(ref, count, is_whole=False))
            index = self.place(count, lowest)
            self.add(index, Statement(node, k, ref))
        self.ready[id(node)] = (index, True)

    def compute(self, node: StepNode) -> None:
        """Add a node to the last loop that can hold it."""
        is_whole = node.is_reduction
        lowest = max([0, *(self.earliest(r, node.count, is_whole=is_whole) for r in node.args)])
        index = self.place(node.count, lowest)
        self.add(index, Statement(node))
        self.ready[id(node)] = (index, False)


def walk(body: Body[S]) -> Iterator[Loop[S]]:
    """Return all loops in order, those of repetitions once."""
    for item in body:
        if isinstance(item, Loop):
            yield item
        else:
            yield from walk(item.body)


# --- memory -------------------------------------------------------------------------------------


def _place_outputs(
    body: Body[Statement],
    slots: dict[int, ArraySlot],
    outputs: Mapping[str, list[Ref]],
    homes: Mapping[str, str],
) -> None:
    """Compute nodes where an output is, or copy them there, in their own loop if that is safe."""
    last = {id(s.node): loop for loop in walk(body) for s in loop.statements}
    inner = {id(loop) for item in body if isinstance(item, Passes) for loop in walk(item.body)}
    copies = []
    for name, refs in outputs.items():
        place = 0
        for ref in refs:
            node, loop = ref.node, last.get(id(ref.node))
            twin = homes.get(name, "")
            is_free = loop is not None and ref.is_identity
            is_free = is_free and not (twin and _reads_input(body, node, twin, place))
            if is_free and name in homes and id(node) not in slots:
                slots[id(node)] = ArraySlot(name, place)
            else:
                copy = Statement(node, -2, ref, (name, place))
                is_here = is_free and node.op not in ("sum", "max") and id(loop) not in inner
                if is_here and loop is not None:
                    loop.statements.append(copy)
                else:
                    copies.append(Loop(len(ref.index), [copy]))
            place += len(ref.index)
    body += copies


def _reads_input(body: Body[Statement], node: StepNode, name: str, place: int) -> bool:
    """Whether lanes of an input are read once a node is written over them."""
    is_written = False
    for item in body:
        loops = list(walk([item]))
        is_inside = isinstance(item, Passes) and any(
            s.node is node for loop in loops for s in loop.statements
        )
        is_written |= is_inside  # in the pass before
        for loop in loops:
            writes = any(s.node is node for s in loop.statements)
            for statement in loop.statements:
                for ref in statement.reads:
                    if ref.node.op != "input" or ref.node.name != name:
                        continue
                    lanes = ref.node.offset + ref.index
                    if not ((lanes >= place) & (lanes < place + node.count)).any():
                        continue
                    is_same = len(lanes) == node.count and bool(
                        (lanes == place + np.arange(node.count)).all()
                    )
                    if is_written or (writes and (_is_whole(statement) or not is_same)):
                        return True
                is_written |= statement.node is node
    return False


def _is_whole(statement: Statement) -> bool:
    """Whether each pass reads all lanes of the operands."""
    return statement.node.is_reduction and statement.place == -1


def _share_carries(body: Body[Statement], slots: dict[int, ArraySlot]) -> None:
    """Write what is carried to the next pass where it is read, if nothing reads it after that."""
    for item in body:
        if isinstance(item, Passes):
            nodes = [id(node) for _, node in item.carries]
            for carry, node in item.carries:
                if nodes.count(id(node)) == 1 and not _reads_carry(item.body, carry, node):
                    item.shared.add(id(carry))
                    if id(node) in slots:
                        slots[id(carry)] = slots[id(node)]


def _reads_carry(body: Body[Statement], carry: StepNode, node: StepNode) -> bool:
    """Whether the value of the pass before is read once that of this one is written."""
    if node.op in ("sum", "max"):
        return True
    is_written = False
    for loop in walk(body):
        writes = any(s.node is node for s in loop.statements)
        for statement in loop.statements:
            for ref in statement.reads:
                is_other = _is_whole(statement) or not ref.is_identity
                if ref.node is carry and (is_written or (writes and is_other)):
                    return True
            is_written |= statement.node is node
    return False


@dataclass
class _Life:
    node: StepNode
    start: int
    stop: int
    twins: list[int] = field(default_factory=list)
    is_stored: bool = False
    is_scalar: bool = False  # a variable of the function


def _allocate(
    body: Body[Statement], slots: dict[int, ArraySlot], arrays: Callable[[StepNode], str]
) -> dict[str, int]:
    """Give every node that outlives its loop lanes of an array; return the sizes of the arrays."""
    lives: dict[int, _Life] = {}
    _find_lives(body, lives, 0)
    sizes: dict[str, int] = {}
    taken: dict[str, list[tuple[int, int, int, int]]] = {}
    for life in sorted(lives.values(), key=lambda life: -life.node.count):
        if not life.is_stored or life.is_scalar or id(life.node) in slots:
            continue
        array, count = arrays(life.node), life.node.count
        others = sorted(
            (offset, size)
            for start, stop, offset, size in taken.get(array, [])
            if start <= life.stop and life.start <= stop
        )
        place = 0
        for offset, size in others:
            if place + count <= offset:
                break
            place = max(place, offset + size)
        taken.setdefault(array, []).append((life.start, life.stop, place, count))
        sizes[array] = max(sizes.get(array, 0), int(place + count))
        for twin in (id(life.node), *life.twins):
            slots[twin] = ArraySlot(array, place)
    return sizes


def _find_lives(
    body: Body[Statement], lives: dict[int, _Life], at: int, *, is_inside: bool = False
) -> int:
    """Fill in from which loop to which a node is needed, and whether one after its own reads it."""
    for item in body:
        if isinstance(item, Passes):
            at = _find_lives_of_passes(item, lives, at)
            continue
        here: set[int] = set()
        for statement in item.statements:
            for ref in statement.reads:
                if id(ref.node) not in here or not ref.is_identity or _is_whole(statement):
                    _read(lives, ref.node, at)
            node = statement.node
            if statement.place == -1:
                is_sum = node.op in ("sum", "max")
                is_read_whole = is_sum or node.op == "copy"
                is_scalar = node.count == 1 and not is_inside and not is_read_whole
                life = lives.setdefault(id(node), _Life(node, at, at, is_scalar=is_scalar))
                life.is_stored |= is_sum
                life.stop = max(life.stop, at)
                here.add(id(node))
            elif statement.place >= 0:
                lives[id(node)].stop = at
        at += 1
    return at


def _find_lives_of_passes(item: Passes[Statement], lives: dict[int, _Life], begin: int) -> int:
    for carry, node in item.carries:
        lives[id(carry)] = life = _Life(carry, begin, begin, is_stored=True)
        if id(carry) in item.shared:
            lives[id(node)] = life
            life.twins.append(id(node))
        for ref in carry.args:
            _read(lives, ref.node, begin)
    at = _find_lives(item.body, lives, begin, is_inside=True)
    inside = {id(s.node) for loop in walk(item.body) for s in loop.statements}
    for key, life in lives.items():
        if key not in inside and life.stop >= begin:  # the next pass needs it again
            life.stop = at
    for carry, node in item.carries:
        lives[id(carry)].stop = at
        _read(lives, node, at)
        lives[id(node)].is_scalar = False
    return at + 1


def _read(lives: dict[int, _Life], node: StepNode, at: int) -> None:
    if id(node) in lives:
        life = lives[id(node)]
        life.stop = max(life.stop, at)
        life.is_stored = True
