"""Seeded damage: to the bytes of a file, and to the values of a tree of JSON or TOML."""

import copy
import random
from typing import Any

# What a careless program, a broken disk or an attacker writes in place of a value.
ABSURD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    10**9,
    10**30,
    -(10**9),
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "None",
    "../..",
    "\x1b[31m",
    "'\"<script>",
    "\u202e",
    "a" * 10_000,
    [],
    [1],
    [[]],
    ["x", 1, None],
    {},
    {"a": 1},
    {"name": "ltc"},
)

_PIECES = (b"", b"\0", b"\xff", b"\n", b"\r", b'"', b",", b"{", b"[", b"NaN", b"1e999", b"-")


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with one to four random damages: flips, cuts, repeats, insertions."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(damaged) + 1)
        end = min(len(damaged), start + int(rng.expovariate(1 / 20)))
        match rng.randrange(6):
            case 0 if damaged:
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            case 1:
                del damaged[start:]
            case 2:
                del damaged[start:end]
            case 3:
                damaged[end:end] = damaged[start:end] * rng.randint(1, 3)
            case 4:
                damaged[start:start] = rng.choice(_PIECES) * rng.randint(1, 8)
            case _:
                damaged[start:end] = rng.randbytes(end - start)
    return bytes(damaged)


def mutate_tree(tree: Any, rng: random.Random) -> Any:
    """Return a copy of ``tree`` in which one to three random places were damaged.

    A place gets an absurd value or that of another place, is taken away, or a key is renamed.
    """
    damaged = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 3)):
        places = _places(damaged)
        if not places:
            return rng.choice(ABSURD)
        parent, key = rng.choice(places)
        match rng.randrange(8):
            case 0:
                del parent[key]
            case 1:
                other, place = rng.choice(places)
                parent[key] = copy.deepcopy(other[place])
            case 2 if isinstance(parent, dict):
                parent[rng.choice(("x", "", key.upper(), key + "s"))] = parent.pop(key)
            case _:
                parent[key] = copy.deepcopy(rng.choice(ABSURD))
    return damaged


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key or index) of the tree."""
    keys: Any = ()
    if isinstance(tree, dict):
        keys = list(tree)
    elif isinstance(tree, list):
        keys = range(len(tree))
    places = [(tree, key) for key in keys]
    for key in keys:
        places += _places(tree[key])
    return places
