"""How surprising values of a table are to a model that predicts the next row."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tauflow.analysis.residuals import SCORE_COLUMNS, ForecastRows, score_rows
from tauflow.errors import ArgumentError
from tauflow.tabular.options import LEAD_TIME_INPUT
from tauflow.tabular.prediction_columns import check_distinct_columns
from tauflow.tabular.transform import NewTable

from .predictions import get_keys

if TYPE_CHECKING:
    from pandas import DataFrame

    from .predictor import Predictor


def score_anomalies(
    predictor: "Predictor", data: Any, calibrate_on: Any, read_options: dict[str, Any]
) -> "DataFrame":
    """Return a frame of scores; see :meth:`Predictor.score_anomalies`."""
    schema = predictor.schema
    if schema is None or schema.task != "next-step" or schema.horizon or schema.known:
        raise ArgumentError(
            f"{predictor.card.name!r} has no forecast of each next row from those before it. Train "
            "on a table with task='next-step' (--task next-step), without horizon and known."
        )
    table, forecasts = _forecast(predictor, data, read_options)
    calibration = forecasts
    if calibrate_on is not None:
        _, calibration = _forecast(predictor, calibrate_on, read_options)
    keys = get_keys(table, table.sequences.rows, table.sequences.times)
    check_distinct_columns([*keys], SCORE_COLUMNS)
    return score_rows(keys, schema.outputs, forecasts, calibration)


def _forecast(
    predictor: "Predictor", data: Any, read_options: dict[str, Any]
) -> tuple[NewTable, ForecastRows]:
    schema = predictor.schema
    assert schema is not None  # as it is of next-step prediction
    # The forecast after the last row is of no use here, and any time will do for it.
    lead_time = 1.0 if LEAD_TIME_INPUT in schema.inputs else None
    table = predictor.read_table(data, lead_time=lead_time, **read_options)
    sequences, parts = table.sequences, []
    for first, last in table.plan_batches():
        outputs = predictor.predict(table.batch(first, last))
        assert isinstance(outputs, torch.Tensor)  # of a batch
        parts.append(outputs.double().numpy()[sequences.select_range(first, last).valid])
    places = [schema.inputs.index(name) for name in schema.outputs]
    columns = [table.columns[place][sequences.rows] for place in places]
    values = np.stack(columns, axis=1, dtype=np.float64, casting="unsafe")
    return table, ForecastRows.from_next(
        values, np.concatenate(parts), sequences.compute_dt(), sequences.starts
    )
