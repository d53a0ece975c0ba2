"""Schemas of tables whose JSON was damaged: refused, or a schema that reads a table."""

import json
import random

import pytest
import torch
from guard import MIB
from mutate import mutate_tree
from survive import seeds, survives
from test_damaged_predictors import SAID, TABLE

from tauflow.data import Schema, from_table
from tauflow.errors import DataError, TauflowError

PARTS = range(2)
ALL = {
    **SAID,
    "several": {"target": ["y", "level"], "features": ["ward"]},
    "dates": {"features": ["a", "ward"]},
}


def get_table(name):
    more = {
        "dates": {"time": [f"2024-01-{1 + row % 4:02d}" for row in range(48)]},
        "several": {"level": ["low" if row // 4 % 3 else "high" for row in range(48)]},
    }
    return {**TABLE, **more.get(name, {})}


@pytest.fixture(scope="module")
def schemas():
    """Return the facts of a fitted schema of every task."""
    fitted = {
        name: from_table(get_table(name), id="id", time="time", **options).schema
        for name, options in ALL.items()
    }
    return {name: json.loads(schema.to_json()) for name, schema in fitted.items()}


def use(name, schema):
    """Read a table, and show the schema; return the batch."""
    assert f"{schema}{schema!r}{schema.reasons}{schema.roles}"
    ahead = 1.0 if name in ("next", "dates") else None
    batch = schema.transform(get_table(name), lead_time=ahead)
    schema.unscale_inputs(batch.x)
    if not schema.is_class:
        schema.unscale(torch.zeros(1, len(schema.outputs)))
    return batch


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("part", PARTS)
def test_absurd_metadata(part, schemas, tries):
    refused = 0
    for seed in seeds(part, tries("schemas", few=60, full=3000)):
        rng = random.Random(seed)
        name = rng.choice(sorted(schemas))
        text = json.dumps(mutate_tree(schemas[name], rng))
        what = f"{name}, seed {seed}"
        result = survives(lambda text=text: Schema.from_json(text), what, memory=64 * MIB)
        if isinstance(result, TauflowError):
            assert isinstance(result, DataError), what
            refused += 1
            continue
        survives(lambda name=name, schema=result: use(name, schema), f"{what}, used")
    assert refused > 10


@pytest.mark.parametrize(
    "change",
    [
        {"x_mean": [5.0], "x_scale": [3.0]},
        {"x_mean": [5.0, 1.0, 1.0]},
        {"x_scale": [-1.0, 1.0]},
        {"x_scale": [1.0, float("inf")]},
        {"y_mean": [0.0], "y_scale": None},
        {"y_mean": [0.0, 1.0], "y_scale": [1.0, 1.0]},
        {"y_scale": [0.0]},
        *({"gap": gap} for gap in (0.0, -1.0, float("nan"), float("inf"))),
        {"features": ["ward", "ward"]},
        {"inputs": ["ward=north", "ward=north"]},
        {"inputs": ["ward=south", "ward=north"]},
        {"categories": [["ward", ["south", "south"]]]},
        {"fill": "next"},
        {"kind": "colours"},
    ],
)
def test_what_no_table_could_have_left_is_refused(change, schemas):
    content = schemas["values"]
    assert use("values", Schema.from_json(json.dumps(content))).x.isfinite().all()
    with pytest.raises(DataError, match="no schema that to_json wrote"):
        Schema.from_json(json.dumps({**content, **change}))
