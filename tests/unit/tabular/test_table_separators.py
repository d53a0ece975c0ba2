"""Commas in numbers: before decimals, or between thousands, which a reader must not guess."""

import numpy as np
import pytest
from own_tables import unpadded, visits, write

from tauflow.data import from_table, read_csv
from tauflow.errors import DataError

SAID = {"id": "patient", "time": "hours", "target": "died", "features": ["a"], "scale": False}


def counted(**columns):
    """Return visits in which all other numbers are whole ones."""
    rows = range(36)
    defaults = {"hours": [0, 1, 2] * 12, "a": list(rows), "b": [row % 5 for row in rows]}
    return visits(**{**defaults, **columns})


@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (["36,625", "1,050", "-2,125"], r"Write numbers without signs .* decimal=','"),
        (["1,05", "0,125", "36"], r"decimals with a point\. Or pass decimal=','"),
    ],
)
def test_commas_before_three_digits_may_be_either(tmp_path, cells, advice):
    with pytest.raises(DataError, match=rf"'a' holds '\d+,\d+', expected .* {advice}"):
        read_csv(write(tmp_path / "t.csv", counted(a=cells * 12)), **SAID)


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize(
    "cells",
    [
        ["0,125", "36,625", "-1,5"],
        ["0,125", "0,250", "900"],
        ["36,625", "37", "1,125"],
        ["36,625", "137,0", "1,125"],
        ["36,625", "137", "1370"],  # thousands have no sign here
        ["1,050", "1,100", "2,350"],
        [",5", "1,5e2", ""],
    ],
)
def test_decimal_commas_are_read(tmp_path, cells, delimiter):
    path = write(tmp_path / "t.csv", counted(a=cells * 12), delimiter)
    data = read_csv(path, delimiter=delimiter, decimal=",", **SAID)
    want = [float(cell.replace(",", ".")) if cell else np.nan for cell in cells]
    np.testing.assert_allclose(unpadded(data)["p03"][:, 0], want, rtol=1e-5)


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_commas_are_before_decimals_where_that_is_said(tmp_path, delimiter):
    path = write(tmp_path / "t.csv", counted(a=["900", "1,050", "1,100"] * 12), delimiter)
    data = read_csv(path, delimiter=delimiter, decimal=",", **SAID)
    np.testing.assert_allclose(unpadded(data)["p03"][:, 0], [900, 1.05, 1.1], rtol=1e-5)


GROUPED = [
    (["1.150,5", "1.250,5", "12.000,0"], ","),
    (["1.150,5", "950,5", "1.250,5"], ","),
    (["1,150.5", "1,250.5", "1,000"], "."),
    (["1,150.5", "950.5", "1,250.5"], "."),
    (["1,234,567", "2,234,567", "3,234,567"], "."),
    (["1 150", "1 250", "1 350"], "."),
    (["1\u00a0150,5", "1\u00a0250", "1\u202f350"], ","),
    (["1'150.5", "1'250", "1'350"], "."),
]


@pytest.mark.parametrize(("cells", "decimal"), GROUPED)
@pytest.mark.parametrize("target", [False, True])
def test_numbers_with_signs_between_thousands_are_no_categories(tmp_path, cells, decimal, target):
    path = write(tmp_path / "t.csv", counted(a=cells * 12), ";")
    options = {**SAID, "delimiter": ";", "decimal": decimal}
    if target:
        options |= {"target": "a", "features": ["b"]}
    with pytest.raises(DataError, match=r"'a' holds .1.*Write numbers without signs between"):
        read_csv(path, **options)


@pytest.mark.parametrize("from_file", [True, False])
@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (["1,250", "1,500", "1,250"], "Write numbers without signs between thousands"),
        (["2,5", "3,5", "3"], "decimals with a point"),
    ],
)
def test_numbers_that_cannot_be_read_are_classes_if_that_is_said(
    tmp_path, cells, advice, from_file
):
    options = {**SAID, "target": "y"}
    source = counted(y=cells * 12)
    source = write(tmp_path / "t.csv", source) if from_file else source
    message = rf"'y' holds '[12],.*no number as it is written.*{advice}.*--task"
    with pytest.raises(DataError, match=message):
        from_table(source, **options)
    data = from_table(source, task="classification", **options)
    assert data.schema.outputs == tuple(sorted(set(cells)))


def test_texts_that_only_resemble_such_numbers_are_categories():
    for cells in (["1.150,5", "none", "1.250,5"], ["1,2", "1,2,3", "a"]):
        data = from_table(counted(y=cells * 12), **{**SAID, "target": "y"})
        assert data.schema.outputs == tuple(sorted(cells))
    data = from_table(counted(a=["1.2.3", "1.100.200", "2.0.1"] * 12), **SAID)
    assert data.schema.inputs == ("a=1.100.200", "a=1.2.3", "a=2.0.1")
