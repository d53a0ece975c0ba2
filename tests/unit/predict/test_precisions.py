"""Models in other precisions than single predict from tables in their own."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import tauflow
from tauflow.data import from_table
from tauflow.errors import DataError, DtypeError
from tauflow.predict import Predictor

SAID = {"id": "patient", "time": "hours", "features": ["b"]}


def untrained(table, **options):
    """Return the predictor of a model in single precision."""
    data = from_table(table, **SAID, **options)
    torch.manual_seed(0)
    rnn = tauflow.CfC(data.card.input_size, 4, return_sequences=data.card.per_step)
    return Predictor.from_data(tauflow.SequenceModel(rnn, data.card.target_size), data)


def by_hand(predictor, table):
    """Return what a model in double precision says of each patient, (B, O), scaled here."""
    info, predictions = predictor.schema, []
    for _, rows in table.groupby("patient"):
        x = (torch.tensor(rows[["b"]].to_numpy()) - info.x_mean) / info.x_scale
        gaps = np.diff(rows["hours"], prepend=rows["hours"].iloc[0]) / info.gap
        with torch.no_grad():
            predictions.append(
                predictor.model(x.unsqueeze(0), dt=torch.from_numpy(gaps).unsqueeze(0))[0]
            )
    return torch.cat(predictions)


@pytest.mark.parametrize("reload", [False, True])
def test_chances_in_double_precision(reload, table, tmp_path):
    predictor = untrained(table, target="died")
    predictor.model.double().eval()
    if reload:
        predictor.save(tmp_path / "p.safetensors")
        predictor = tauflow.load_predictor(tmp_path / "p.safetensors")
        predictor.model.eval()
    probabilities = predictor.predict_proba(table)[["no", "yes"]].to_numpy()
    expected = by_hand(predictor, table).softmax(-1).numpy()
    np.testing.assert_allclose(probabilities, expected, rtol=1e-13)


def test_values_keep_the_digits_of_double_precision(table):
    dose = table["patient"] * 1e3 / 7
    predictor = untrained(table.assign(dose=dose), target="dose", task="regression")
    predictor.model.double().eval()
    doses = predictor.predict(table)["dose"].to_numpy()
    expected = predictor.schema.unscale(by_hand(predictor, table))[:, 0].numpy()
    np.testing.assert_allclose(doses, expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_answers_about_what_single_does(dtype, table):
    predictor = untrained(table, target="died")
    expected = predictor.predict_proba(table)[["no", "yes"]].to_numpy()
    predictor.model.to(dtype)
    probabilities = predictor.predict_proba(table)[["no", "yes"]].to_numpy()
    np.testing.assert_allclose(probabilities, expected, atol=0.02)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-6)
    assert len(predictor.predict(table)) == 20


def test_values_of_a_forecast_with_gaps_ahead_in_half_precision(table):
    predictor = untrained(table)
    expected = predictor.predict(table, lead_time=1.0)["b"].to_numpy()
    predictor.model.half()
    np.testing.assert_allclose(predictor.predict(table, lead_time=1.0)["b"], expected, atol=0.02)


def test_what_half_precision_cannot_hold_is_refused(table):
    predictor = untrained(table, target="died")
    far = table.assign(b=table["b"].where(table.index != 3, 1e6))
    assert len(predictor.predict(far)) == 20
    predictor.model.half()
    with pytest.raises(DataError, match=r"'b' is 1e\+06 in a row, .* for half precision"):
        predictor.predict(far)


def test_a_batch_of_the_user_is_not_converted_in_silence(table):
    predictor = untrained(table, target="died")
    batch = predictor.read_table(table).batch()
    predictor.model.double()
    with pytest.raises(DtypeError, match=r"Convert the input with x\.to\(torch\.float64\)"):
        predictor.predict(batch)
    assert predictor.predict(replace(batch, x=batch.x.double())).shape == (20,)
