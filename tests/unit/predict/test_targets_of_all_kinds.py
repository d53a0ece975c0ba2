"""Tables with several targets of different kinds: read, trained on, scored and predicted."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import cohen_kappa_score, mean_absolute_error, roc_auc_score
from typer.testing import CliRunner

from tauflow import load_predictor
from tauflow.cli.main import app
from tauflow.data import Schema, TableOptions, from_table
from tauflow.errors import ArgumentError, DataError
from tauflow.runs.run import CsvFile, Run
from tauflow.runs.task import run_task
from tauflow.training import Recipe
from tauflow.training.multioutput import list_metrics

TARGETS = ["died", "grade", "days"]
SAID = {"id": "id", "time": "hour", "target": TARGETS, "ordinal": ["grade=low<mid<high"]}


def visits(count=80):
    """Return a table whose targets stand in different rows of an id, some of them nowhere."""
    rng, rows = np.random.default_rng(0), []
    for person in range(count):
        level = rng.normal()
        grade = ["low", "mid", "high"][int(np.digitize(level, [-0.5, 0.5]))]
        for hour in range(4):
            died = level > 0.2 if hour == 0 else None
            days = 3 * level + 10.25 if hour == 1 and person % 4 else np.nan
            x = level + 0.3 * rng.normal()
            rows.append((person, hour, x, died, grade if hour == 2 and person % 5 else None, days))
    return pd.DataFrame(rows, columns=["id", "hour", "x", *TARGETS])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("targets")
    visits().to_csv(path / "visits.csv", index=False)
    return run_task(
        Run(
            CsvFile(path / "visits.csv", TableOptions(**SAID)),
            "gru",
            hidden_size=8,
            recipe=Recipe(epochs=30, lr=0.02),
            runs_dir=path,
            progress=False,
        )
    )


def truth_of(ids):
    firsts = visits().groupby("id")[TARGETS].first()
    return firsts.loc[[int(name) for name in ids]]


def test_targets_are_those_of_the_table_and_masked_where_there_are_none():
    data = from_table(visits(), **SAID)
    truth = truth_of(data.schema.ids["train"])
    known = data.train.y_mask[:, 0].numpy()
    assert (known == truth.notna().to_numpy()).all()
    y = data.schema.unscale(data.train.y).numpy()
    np.testing.assert_allclose(y[known[:, 2], 2], truth["days"].dropna().astype(float), rtol=1e-6)
    grades = np.array(["low", "mid", "high"])[y[known[:, 1], 1].astype(int)]
    assert (grades == truth["grade"].dropna()).all()
    assert data.card.task == "multioutput"
    assert data.card.target_size == 1 + 2 + 1
    again = Schema.from_json(data.schema.to_json())
    assert again.target_specs == data.schema.target_specs
    batch = data.schema.transform(visits(), targets=True)
    rows = [int(name) for name in data.schema.ids["train"]]
    torch.testing.assert_close(batch.y[rows], data.train.y)


def test_targets_of_rows_are_masked_one_by_one():
    table = visits()
    table["died"] = table["x"] > 0
    table["days"] = table["x"].where(table["hour"] != 1)
    data = from_table(table, id="id", time="hour", target=["died", "days"], features=["x"])
    assert data.card.per_step
    assert data.train.y_mask[0].tolist() == [[True, hour != 1] for hour in range(4)]


def test_kinds_are_inferred_from_each_column():
    table = visits()
    table["died"] = table["died"].map({True: 1, False: 0})
    said = {**SAID, "target": ["died", "old"], "ordinal": None}
    labels = from_table(table.assign(old=table["id"] % 2), **said)
    assert [spec.size for spec in labels.card.target_specs] == [1, 1]
    numbers = {"target": ["days", "died"], "ordinal": None, "task": "regression"}
    assert from_table(table, **{**SAID, **numbers}).card.task == "regress"
    ranks = {"target": ["died"], "ordinal": ["died"]}
    assert from_table(table, **{**SAID, **ranks}).card.target_specs[0].classes == ("0", "1")
    mapped = from_table(visits(), **{**SAID, "ordinal": {"grade": ["low", "mid", "high"]}})
    assert mapped.card.target_specs == from_table(visits(), **SAID).card.target_specs


def test_scores_are_those_of_scikit_learn_in_the_units_of_the_table(run):
    ids = run.data.schema.ids["test"]
    truth = truth_of(ids)
    table = visits()
    new = table[table["id"].isin([int(name) for name in ids])].drop(columns=TARGETS)
    found = run.predictor.predict(new).set_index("id").loc[truth.index]
    proba = run.predictor.predict_proba(new).set_index("id").loc[truth.index]
    known = {name: truth[name].notna() for name in TARGETS}
    ranks = pd.Series({"low": 0, "mid": 1, "high": 2})
    pair = (ranks[one["grade"][known["grade"]]] for one in (truth, found))
    expected = {
        "mae of days": mean_absolute_error(
            truth["days"][known["days"]].astype(float), found["days"][known["days"]]
        ),
        "auroc of died": roc_auc_score(truth["died"].astype(bool), proba["died True"]),
        "kappa of grade": cohen_kappa_score(*pair, weights="quadratic"),
    }
    for name, value in expected.items():
        assert run.scores.network.values[name] == pytest.approx(value, rel=1e-4), name
    assert expected["mae of days"] < 2
    assert {one.name for one in run.scores.baselines} >= {"training mean", "gradient boosting"}
    mean = next(one for one in run.scores.baselines if one.name == "training mean")
    assert mean.values["kappa of grade"] == pytest.approx(0, abs=1e-9)
    assert run.scores.network.monitored_score < mean.monitored_score


def test_answers_have_a_column_for_each_target_and_agree_with_probabilities(run, tmp_path):
    table = visits().drop(columns=TARGETS)
    predictor = load_predictor(run.directory)
    found, proba = predictor.predict(table), predictor.predict_proba(table)
    assert list(found) == ["id", *TARGETS]
    assert list(proba)[1:] == [
        *("died False", "died True", "grade low", "grade mid", "grade high"),
    ]
    assert found["died"].dtype == bool
    chosen = proba[["grade low", "grade mid", "grade high"]].idxmax(axis=1).str[6:]
    assert (chosen == found["grade"]).all()
    np.testing.assert_allclose(proba.iloc[:, 3:].sum(axis=1), 1, rtol=1e-5)
    tidy = predictor.predict(table, tidy=True)
    assert (tidy.groupby("id").size() == 6).all()
    told = tidy[tidy["predicted"] == True]  # noqa: E712  # a column with missing values
    assert (told[told["target"] == "grade"]["class"].to_numpy() == found["grade"]).all()
    np.testing.assert_allclose(tidy["value"].dropna(), found["days"])
    batch = predictor.predict(run.data.test)
    assert batch.shape == (len(run.data.test), 3)
    assert predictor.predict_proba(run.data.test).shape == (len(run.data.test), 5)


def test_what_is_for_a_single_target_is_refused(run):
    table = visits().drop(columns=TARGETS)
    with pytest.raises(ArgumentError, match="intervals and spread are not for several targets"):
        run.predictor.predict(table, interval=0.9)
    with pytest.raises(ArgumentError, match=r"several targets\. Train on the one to explain"):
        run.predictor.explain(table)
    importance = run.predictor.permutation_importance(run.data.test, repeats=2)
    assert importance["importance"][0] > 0


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        ({"ordinal": ["grade"]}, ArgumentError, "whose order nothing says"),
        ({"ordinal": ["size=a<b"]}, ArgumentError, "'size', which is no target"),
        ({"ordinal": ["grade=low"]}, ArgumentError, "Write each once, at least two"),
        ({"ordinal": "grade"}, ArgumentError, "must be a list of columns"),
        ({"ordinal": ["grade=low<mid"]}, DataError, "'high', a class that is not known"),
        ({"task": "regression"}, ArgumentError, "beside task='classification' or 'regression'"),
        ({"task": "next-step"}, ArgumentError, "neither for forecasts"),
    ],
)
def test_what_is_said_wrongly_of_ordinal_targets_is_refused(said, error, message):
    with pytest.raises(error, match=message):
        from_table(visits(), **{**SAID, **said})


def test_the_command_line_trains_and_predicts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits().to_csv("visits.csv", index=False)
    words = ["run", "--csv", "visits.csv", "--id", "id", "--time", "hour", "--target"]
    words += ["died,grade,days", "--ordinal", "grade=low<mid<high", "--model", "gru"]
    words += ["--epochs", "2", "--metric", "kappa of grade"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    assert "'grade' is a class with an order" in " ".join(found.output.split())
    (folder, *_) = (tmp_path / "runs" / "visits").iterdir()
    assert "quadratic kappa of grade" in (folder / "report.html").read_text()
    several = CliRunner().invoke(app, [*words, "--ensemble", "2"])
    assert several.exit_code == 0, several.output
    written = CliRunner().invoke(app, ["predict", str(folder), "--csv", "visits.csv"])
    assert written.output.splitlines()[0] == "id,died,grade,days"
    for option in (["--model", "auto"], ["--threshold", "f1"], ["--intervals", "quantile"]):
        refused = CliRunner().invoke(app, [*words, *option])
        assert refused.exit_code == 1, option
        assert "different kinds" in " ".join(refused.output.split()), option


def test_metrics_of_the_card_are_those_of_the_report(run):
    assert set(run.scores.metrics) <= set(list_metrics(run.data.card))
