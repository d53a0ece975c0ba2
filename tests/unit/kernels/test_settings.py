"""Whatever is set again on a cell is noticed, whether or not it looks or lies as before."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import tauflow
from tauflow.kernels.trace.attribute_snapshot import AttributeSnapshot
from tauflow.solvers.flow_solver import FlowSolver


class Opaque:
    """What can be told from another one by nothing but itself."""

    __slots__ = ("__weakref__",)


def cell_with(value):
    cell = tauflow.Elman(2, 3).cell
    cell.own = value
    return cell


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, 2], lambda cell: cell.own.append(3)),
        ([[1], [2]], lambda cell: cell.own[1].__setitem__(0, 5)),
        ({"a": 1}, lambda cell: cell.own.update(a=2)),
        ({"a": 1}, lambda cell: cell.own.update(b=1)),
        (SimpleNamespace(a=1), lambda cell: setattr(cell.own, "a", 2)),
        (1.0, lambda cell: setattr(cell, "own", 2.0)),
        ("a", lambda cell: setattr(cell, "own", None)),
        (torch.tanh, lambda cell: setattr(cell, "own", torch.relu)),
        (FlowSolver("euler"), lambda cell: setattr(cell, "own", FlowSolver("rk4"))),
        (Opaque(), lambda cell: setattr(cell, "own", Opaque())),
        (torch.ones(3), lambda cell: setattr(cell, "own", torch.ones(3))),
        (1, lambda cell: delattr(cell, "own")),
        (1, lambda cell: setattr(cell, "another", 1)),
    ],
)
def test_a_change_is_noticed(value, change):
    cell = cell_with(value)
    before = AttributeSnapshot(cell)
    assert before == AttributeSnapshot(cell)
    change(cell)
    assert before != AttributeSnapshot(cell)


def test_parts_count():
    cell = cell_with(None)
    cell.part = nn.Dropout(0.1)
    before = AttributeSnapshot(cell)
    assert before == AttributeSnapshot(cell)
    cell.part.p = 0.2
    assert before != AttributeSnapshot(cell)


def test_equal_settings_may_be_other_objects():
    cell = cell_with(FlowSolver("euler", substeps=2))
    before = AttributeSnapshot(cell)
    cell.own = FlowSolver("euler", substeps=2)
    assert before == AttributeSnapshot(cell)


def test_nothing_is_kept_alive_and_an_address_is_no_object():
    cell = cell_with(Opaque())
    before, gone = AttributeSnapshot(cell), weakref.ref(cell.own)
    address = id(cell.own)
    cell.own = None
    gc.collect()
    assert gone() is None
    tried = []  # until one comes to lie where the first one lay
    while not tried or id(tried[-1]) != address:
        tried.append(Opaque())
        if len(tried) > 10_000:
            pytest.skip("the address is not used again")
    cell.own = tried[-1]
    assert before != AttributeSnapshot(cell)
