"""Values that are missing only when a model answers, and none of which was when it learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import tauflow
from tauflow.data import TableOptions, from_table
from tauflow.errors import ArgumentError
from tauflow.models import WHOLE_MODELS
from tauflow.predict import Predictor
from tauflow.runs.run import DEFAULT_RECIPE, CsvFile, Run
from tauflow.runs.task import run_task

SAID = {"id": "patient", "time": "hours", "target": "died", "features": ["a", "b"]}


@pytest.fixture
def complete(table):
    """Return the visits with no value missing."""
    return table.assign(a=table["a"].fillna(0.5))


@pytest.fixture
def gappy(complete):
    """Return those of the first two patients, each with one value missing, of either feature."""
    new = complete[complete["patient"] < 2].drop(columns=["died", "level"])
    new.loc[1, "a"] = np.nan
    new.loc[new.index[-1], "b"] = np.nan
    return new


def of_nan(model, info, frame):
    """Return a model's probabilities for each patient, told by NaN in x what is missing, (B, C)."""
    probabilities = []
    for _, rows in frame.groupby("patient"):
        x = (torch.tensor(rows[["a", "b"]].to_numpy()) - info.x_mean) / info.x_scale
        t = torch.tensor(rows["hours"].to_numpy()) / info.gap
        with torch.no_grad():
            y, _ = model.eval()(x.float().unsqueeze(0), t=t.unsqueeze(0))
        probabilities.append(y[0].softmax(-1))
    return torch.stack(probabilities).numpy()


BODIES = {
    "gru-d": lambda: tauflow.GRUD(2, 4, return_sequences=False),
    "mtan": lambda: WHOLE_MODELS["mtan"].build(2, 4),
}


@pytest.mark.parametrize("name", BODIES)
def test_models_that_take_it_are_told(name, complete, gappy, tmp_path):
    data = from_table(complete, **SAID)
    assert data.train.observed is None
    torch.manual_seed(0)
    predictor = Predictor.from_data(tauflow.SequenceModel(BODIES[name](), 2), data)
    expected = of_nan(predictor.model, data.schema, gappy)
    filled = of_nan(predictor.model, data.schema, gappy.fillna(complete[["a", "b"]].mean()))
    assert np.abs(expected - filled).max() > 1e-3  # else nothing would be tested
    # The file says of the batches, as older ones do, that they did not tell what was missing.
    predictor.save(tmp_path / "p.safetensors")
    for each in (predictor, tauflow.load_predictor(tmp_path / "p.safetensors")):
        assert each.observed is False
        probabilities = each.predict_proba(gappy)[list(data.schema.outputs)]
        np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def test_a_run_of_such_a_model_leaves_a_predictor_that_answers(complete, gappy, tmp_path):
    complete.to_csv(tmp_path / "visits.csv", index=False)
    gappy.to_csv(tmp_path / "new.csv", index=False)
    run = run_task(
        Run(
            CsvFile(tmp_path / "visits.csv", TableOptions(**SAID)),
            "gru-d",
            hidden_size=3,
            recipe=replace(DEFAULT_RECIPE, epochs=1, batch_size=8),
            runs_dir=tmp_path / "runs",
            progress=False,
        )
    )
    probabilities = tauflow.load_predictor(run.directory).predict_proba(tmp_path / "new.csv")
    expected = of_nan(run.model, run.data.schema, gappy)
    np.testing.assert_allclose(probabilities[list(run.data.schema.outputs)], expected, atol=1e-6)


class Wrapped(nn.Module):
    """A module of a user, which takes no mask of features, whatever is inside."""

    def __init__(self, rnn):
        super().__init__()
        self.rnn, self.head = rnn, nn.Linear(rnn.output_size, 2)

    def forward(self, x, *, dt, mask):
        y, h = self.rnn(x, dt=dt, mask=mask)
        return self.head(y), h


@pytest.mark.parametrize("wrap", [lambda rnn: tauflow.SequenceModel(rnn, 2), Wrapped])
def test_models_that_take_no_mask_refuse(wrap, complete, gappy):
    kind = tauflow.GRUD if wrap is Wrapped else tauflow.CfC
    predictor = Predictor.from_data(
        wrap(kind(2, 3, return_sequences=False)), from_table(complete, **SAID)
    )
    assert len(predictor.predict(complete)) == 20
    with pytest.raises(ArgumentError, match="'a' has missing values, and in the other table it"):
        predictor.predict(gappy)
