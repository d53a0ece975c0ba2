"""Tables with several targets of two classes each: read, trained on, scored and predicted."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from typer.testing import CliRunner

from tauflow import load_predictor
from tauflow.cli.main import app
from tauflow.data import Schema, TableOptions, from_table
from tauflow.data.card import card_from_dict, card_to_dict
from tauflow.errors import ArgumentError
from tauflow.runs.run import CsvFile, Run
from tauflow.runs.task import run_task
from tauflow.training import Recipe

TARGETS = ["died", "ward"]
SAID = {"id": "id", "time": "hour", "target": TARGETS}


def visits(count=80):
    """Return a table whose labels stand in different rows of an id, some of them nowhere."""
    rng, rows = np.random.default_rng(0), []
    for person in range(count):
        level, ward = rng.normal(), rng.normal()
        for hour in range(4):
            x, z = np.array([level, ward]) + 0.3 * rng.normal(size=2)
            died = level > 0.2 if hour == 0 else None
            place = "north" if ward > 0 else "south"
            rows.append((person, hour, x, z, died, place if hour == 2 and person % 5 else None))
    return pd.DataFrame(rows, columns=["id", "hour", "x", "z", *TARGETS])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("labels")
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
    return visits().groupby("id")[TARGETS].first().loc[[int(name) for name in ids]]


def test_labels_are_those_of_the_table_and_masked_where_there_are_none():
    data = from_table(visits(), **SAID)
    truth = truth_of(data.schema.ids["train"])
    known = data.train.y_mask[:, 0].numpy()
    assert (known == truth.notna().to_numpy()).all()
    assert (data.train.y[:, 0].numpy() == truth["died"].astype(float)).all()
    wards = np.array(["north", "south"])[data.train.y[known[:, 1], 1].long()]
    assert (wards == truth["ward"].dropna()).all()
    assert (data.card.task, data.card.target_size, data.card.targets) == (
        "binary",
        2,
        ("died", "ward"),
    )
    assert Schema.from_json(data.schema.to_json()).labels == data.schema.labels
    batch = data.schema.transform(visits(), targets=True)
    torch.testing.assert_close(
        batch.y[[int(name) for name in data.schema.ids["train"]]], data.train.y
    )


def test_labels_of_rows_are_masked_one_by_one():
    table = visits()
    table["died"] = table["x"] > 0
    table["ward"] = (table["z"] > 0).where(table["hour"] != 1)
    data = from_table(table, **SAID, features=["x"])
    assert data.card.per_step
    assert data.train.y_mask[0].tolist() == [[True, hour != 1] for hour in range(4)]


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ({"days": "x"}, {}, r"'died' is a class, 'ward' is a class, 'days' is a value\. Train"),
        ({"days": "hour"}, {}, "'days' holds 4 classes, and each of several targets is a value"),
        ({"days": "x"}, {"task": "classification"}, "'days' holds .* classes"),
    ],
)
def test_targets_of_mixed_kinds_are_refused(more, options, message):
    table = visits().assign(**{name: visits()[column] for name, column in more.items()})
    with pytest.raises(ArgumentError, match=message):
        from_table(table, **{**SAID, "target": [*TARGETS, *more]}, features=["z"], **options)


def test_scores_are_those_of_scikit_learn(run):
    ids = run.data.schema.ids["test"]
    truth, table = truth_of(ids), visits()
    new = table[table["id"].isin([int(name) for name in ids])].drop(columns=TARGETS)
    predictions = run.predictor.predict(new).set_index("id").loc[truth.index]
    proba = run.predictor.predict_proba(new).set_index("id").loc[truth.index]
    known = truth["ward"].notna()
    pairs = [
        (truth["died"].astype(bool), proba["died True"], predictions["died"]),
        (
            truth["ward"][known] == "south",
            proba["ward south"][known],
            predictions["ward"][known] == "south",
        ),
    ]
    expected = {
        "binary_auroc": np.mean([roc_auc_score(y, p) for y, p, _ in pairs]),
        "binary_accuracy": accuracy_score(
            np.concatenate([y for y, _, _ in pairs]), np.concatenate([d for *_, d in pairs])
        ),
    }
    for name, value in expected.items():
        assert run.scores.network.values[name] == pytest.approx(value, rel=1e-4), name
    entries = [np.concatenate(parts) for parts in zip(*((y, p) for y, p, _ in pairs), strict=True)]
    assert run.record.test == pytest.approx(log_loss(*entries), rel=1e-4)
    baselines = {baseline.name: baseline for baseline in run.scores.baselines}
    assert baselines.keys() >= {"training mean", "gradient boosting", "logistic regression"}
    assert baselines["training mean"].values["binary_auroc"] == 0.5
    assert expected["binary_auroc"] > 0.9


def test_answers_have_a_column_for_each_label_and_agree_with_probabilities(run):
    table = visits().drop(columns=TARGETS)
    predictor = load_predictor(run.directory)
    predictions, proba = predictor.predict(table), predictor.predict_proba(table)
    assert list(predictions) == ["id", *TARGETS]
    assert list(proba)[1:] == ["died False", "died True", "ward north", "ward south"]
    assert predictions["died"].dtype == bool
    assert ((proba["ward south"] > 0.5) == (predictions["ward"] == "south")).all()
    np.testing.assert_allclose(proba.iloc[:, 1:3].sum(axis=1), 1, rtol=1e-5)
    tidy = predictor.predict(table, tidy=True)
    assert list(tidy) == ["id", "target", "class", "probability", "predicted"]
    assert (tidy.groupby("id").size() == 4).all()
    rows = tidy[tidy["predicted"] & (tidy["target"] == "ward")]
    assert (rows["class"].to_numpy() == predictions["ward"]).all()
    assert predictor.predict(run.data.test).shape == (len(run.data.test), 2)
    assert predictor.predict_proba(run.data.test).shape == (len(run.data.test), 4)


def test_what_is_for_a_single_target_is_refused(run):
    table = visits().drop(columns=TARGETS)
    with pytest.raises(ArgumentError, match="intervals are of values"):
        run.predictor.predict(table, interval=0.9)
    with pytest.raises(ArgumentError, match=r"several targets\. Train on the one to explain"):
        run.predictor.explain(table)
    importance = run.predictor.permutation_importance(run.data.test, repeats=2)
    assert importance["importance"][0] > 0


def test_the_command_line_trains_and_predicts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits().to_csv("visits.csv", index=False)
    words = ["run", "--csv", "visits.csv", "--id", "id", "--time", "hour", "--target"]
    words += ["died,ward", "--model", "gru", "--epochs", "2", "--ensemble", "2"]
    more = ["--metric", "auroc", "--set", "recipe.class_weights=balanced"]
    result = CliRunner().invoke(app, [*words, *more])
    assert result.exit_code == 0, result.output
    weights = r"Class weights: ([\d.]+) for '0', ([\d.]+) for '1', the same for all labels\."
    pair = re.search(weights, " ".join(result.output.split())).groups()
    assert sum(1 / float(weight) for weight in pair) == pytest.approx(2, rel=1e-3)
    (folder, *_) = (tmp_path / "runs" / "visits").iterdir()
    written = CliRunner().invoke(app, ["predict", str(folder), "--csv", "visits.csv"])
    assert written.output.splitlines()[0] == "id,died,ward"
    for option in (["--model", "auto"], ["--threshold", "f1"], ["--intervals", "quantile"]):
        refused = CliRunner().invoke(app, [*words[:-2], *option])
        assert refused.exit_code == 1, option
        assert "several labels" in " ".join(refused.output.split()), option


def test_files_of_older_versions_say_the_same():
    data = from_table(visits(), **SAID)
    schema, card = data.schema.to_dict(), card_to_dict(data.card)
    specs = [(label.name, "class", label.classes, label.kind) for label in data.schema.labels]
    del schema["labels"]
    old = {**schema, "task": "multioutput", "ordinal": None, "target_specs": specs}
    assert Schema.from_dict(old).labels == data.schema.labels
    old_card = {**card, "task": "multioutput", "loss": "multioutput", "target_specs": specs}
    assert card_from_dict({**old_card, "metric": "accuracy of died"}) == data.card
    specs[0] = ("died", "ordinal", ("a", "b", "c"), "texts")
    with pytest.raises(TypeError, match="of different kinds, of which each takes a model"):
        card_from_dict(old_card)
