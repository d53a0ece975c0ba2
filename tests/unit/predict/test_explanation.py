"""Explanations find what was planted, and agree with predictions of changed tables."""

import numpy as np
import pandas
import pytest
import torch
from matplotlib import pyplot as plt

import tauflow
from tauflow import Predictor
from tauflow.data import from_table
from tauflow.errors import ArgumentError, UnknownNameError

SAID = {"id": "patient", "time": "hours", "static": ["age", "sex"]}


def visits(count=30):
    """Return irregular visits; y is in another unit, and age and sex are static."""
    rng = np.random.default_rng(0)
    rows = []
    for patient in range(count):
        for hour in (0.2 + rng.exponential(1.0, rng.integers(3, 7))).cumsum():
            a = rng.normal(5, 2) if rng.random() > 0.3 else np.nan
            rows.append((patient, round(hour, 3), a, rng.normal(), patient % 9, "fm"[patient % 2]))
    table = pandas.DataFrame(rows, columns=["patient", "hours", "a", "b", "age", "sex"])
    first = table.groupby("patient")["b"].transform("first")
    return table.assign(y=100 + 30 * first, ill=np.where(first > 0, "yes", "no"))


class FirstValue(torch.nn.Module):
    """Answers with 30 b at the first step, plus whether a was measured last; all else is moot."""

    def __init__(self, data):
        super().__init__()
        self.b, self.flag = (data.schema.inputs.index(name) for name in ("b", "a measured"))
        self.gain = 30 * data.schema.x_scale[self.b] / data.schema.y_scale[0]

    def forward(self, x, *, dt=None, mask=None):
        last = (torch.ones_like(x[..., 0]) if mask is None else mask).sum(1).long() - 1
        flag = x[torch.arange(len(x)), last][:, self.flag, None]
        return x[:, 0, self.b, None] * self.gain + flag, None


@pytest.fixture(scope="module")
def table():
    return visits()


@pytest.fixture(scope="module")
def trained(table):
    """Return the predictors of a trained network, of values and of classes."""
    predictors = {}
    for target, loss in (("y", "mse"), ("ill", "cross_entropy")):
        other = "ill" if target == "y" else "y"
        data = from_table(table.drop(columns=other), target=target, missing="inputs", **SAID)
        torch.manual_seed(0)
        cell = tauflow.CfC(data.card.input_size, 8, return_sequences=False)
        model = tauflow.SequenceModel(cell, len(data.schema.outputs))
        recipe = tauflow.Recipe(epochs=15, lr=0.02, batch_size=8)
        tauflow.train(model, train=data.train, valid=data.valid, loss=loss, recipe=recipe)
        predictors[target] = Predictor.from_data(model, data)
    return predictors


def test_the_planted_feature_and_time_are_found(table):
    data = from_table(table.drop(columns="ill"), target="y", missing="inputs", **SAID)
    predictor = Predictor.from_data(FirstValue(data), data)
    first = table.groupby("patient").head(1)
    for method in ("integrated_gradients", "occlusion"):
        explanation = predictor.explain(table, method=method)
        moved = explanation.values[explanation.values["attribution"].abs() > 1e-3]
        assert set(moved["feature"]) == {"b"}
        assert moved["hours"].isin(first["hours"]).all()
        merged = moved.merge(first, on=["patient", "hours"])
        assert len(merged) == len(moved) > 20
        mean = float(data.schema.x_mean[data.schema.inputs.index("b")])
        np.testing.assert_allclose(merged["attribution"], 30 * (merged["b"] - mean), rtol=1e-3)
        assert explanation.summarize()["feature"].iloc[0] == "b"
        assert explanation.summarize()["share"].iloc[0] > 0.999
    by_missing = explanation.values.query("feature == 'a'")
    last = table.dropna(subset="a").merge(table.groupby("patient").tail(1)[["patient", "hours"]])
    moved = by_missing[by_missing["attribution_measured"].abs() > 1e-3]
    assert (
        moved[["patient", "hours"]].to_numpy().tolist()
        == last[["patient", "hours"]].to_numpy().tolist()
    )
    scale = float(data.schema.y_scale[0])
    np.testing.assert_allclose(moved["attribution_measured"], scale, rtol=1e-3)
    importance = predictor.permutation_importance(data.test, metric="rmse")
    assert importance["feature"].iloc[0] == "b"
    assert importance["importance"].iloc[0] > 10
    assert (importance.query("feature == 'sex'")["importance"] == 0).all()


def test_a_column_may_have_the_name_of_an_indicator():
    """``a`` is always measured, so that no input says where; ``c`` is no column."""
    table = visits().drop(columns="ill")
    table["a"] = table["a"].fillna(0.0)
    draw = np.random.default_rng(1)
    table["a measured"], table["c measured"] = draw.normal(size=(2, len(table)))
    data = from_table(table, target="y", missing="inputs", **SAID)
    predictor = Predictor.from_data(FirstValue(data), data)
    importance = predictor.permutation_importance(data.test, metric="rmse").set_index("feature")
    assert set(importance.index) == {"a", "a measured", "b", "c measured", "age", "sex"}
    assert importance["importance"]["a"] == importance["importance"]["c measured"] == 0
    assert importance["importance"]["a measured"] != 0


def test_what_is_known_ahead_takes_no_place_of_another_feature():
    """``b`` and ``city`` are known ahead, and how far ahead the rows are is no feature."""
    table = visits().drop(columns=["ill", "age"]).sort_values(["patient", "hours"])
    table["city"] = np.random.default_rng(1).choice(["x", "z"], len(table))
    roles = {"id": "patient", "time": "hours", "target": "y", "known": ["b", "city"]}
    form = {"task": "next-step", "window": 2, "horizon": 1, "missing": "inputs"}
    data = from_table(table, **roles, **form)
    assert {"b +1", "city=x +1", "gap ahead +1", "a measured"} < set(data.schema.inputs)
    torch.manual_seed(0)
    cell = tauflow.CfC(data.card.input_size, 8, return_sequences=False)
    predictor = Predictor.from_data(tauflow.SequenceModel(cell, data.card.target_size), data)
    ahead = table.groupby("patient").cumcount(ascending=False) == 0
    asked = table.assign(**{name: table[name].mask(ahead) for name in ("a", "sex", "y")})
    explanation = predictor.explain(asked)
    total = explanation.values.groupby("patient")["attribution"].sum()
    gap = explanation.answers["answer"] - explanation.answers["baseline"]
    np.testing.assert_allclose(total, gap - explanation.answers["residual"], rtol=1e-4, atol=1e-3)
    features = {"a", "b", "b +1", "city", "city=x +1", "city=z +1", "sex", "y"}
    assert set(explanation.values["feature"]) == features
    assert set(predictor.permutation_importance(data.test)["feature"]) == features


def test_contributions_add_up_in_the_unit_of_the_table(table, trained):
    explanation = trained["y"].explain(table)
    total = explanation.values.groupby("patient")["attribution"].sum()
    gap = explanation.answers["answer"] - explanation.answers["baseline"]
    assert gap.abs().max() > 5
    np.testing.assert_allclose(total, gap - explanation.answers["residual"], rtol=1e-4, atol=1e-3)
    sizes = explanation.values.groupby("patient")["attribution"].apply(
        lambda attributions: attributions.abs().sum()
    )
    assert (explanation.answers["residual"].abs() <= 0.011 * sizes.to_numpy()).all()
    answers = trained["y"].predict(table)
    np.testing.assert_allclose(explanation.answers["answer"], answers["y"], rtol=1e-4)
    count = table[["a", "b"]].notna().to_numpy().sum() + 2 * table["patient"].nunique()
    assert len(explanation.values) == count
    static = explanation.values[explanation.values["feature"] == "sex"]
    assert static["hours"].isna().all()
    assert static["value"].tolist() == table.groupby("patient")["sex"].first().tolist()
    values = explanation.values.query("feature == 'b'")["value"].astype(float)
    np.testing.assert_allclose(values, table["b"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("target", "column"), [("y", "y"), ("ill", "yes")])
def test_occlusion_is_what_a_changed_table_is_answered(table, trained, target, column):
    predictor = trained[target]
    part = table[table["patient"] == 3].reset_index(drop=True)
    explanation = predictor.explain(part, method="occlusion", output=column)
    ask = predictor.predict if target == "y" else predictor.predict_proba

    def answer(changed):
        return float(ask(changed)[column].iloc[0])

    for _, row in explanation.values.iterrows():
        feature = row["feature"]
        here = part["hours"] == row["hours"] if row["hours"] == row["hours"] else part["hours"] > 0
        emptied = part.assign(**{feature: part[feature].mask(here)})
        if feature == "age":  # which has no input that says whether it was measured
            continue
        if feature != "b":
            lost = answer(part) - answer(emptied)
            assert row["attribution_measured"] == pytest.approx(lost, rel=1e-3, abs=1e-4)
        if feature in ("a", "b"):
            before = part[feature].where(part["hours"] < row["hours"]).dropna()
            if len(before):
                replaced = part.assign(**{feature: part[feature].mask(here, before.iloc[-1])})
                lost = answer(part) - answer(replaced)
                assert row["attribution"] == pytest.approx(lost, rel=1e-3, abs=1e-4)


def test_the_class_that_is_predicted_is_explained_unless_another_is_named(table, trained):
    explanation = trained["ill"].explain(table, ids=[3, "4"])
    assert explanation.answers["patient"].tolist() == [3, 4]
    assert (
        explanation.answers["output"].tolist() == trained["ill"].predict(table)["ill"][3:5].tolist()
    )
    other = trained["ill"].explain(table, ids=[3, 4], output="no")
    assert other.answers["output"].tolist() == ["no", "no"]
    np.testing.assert_allclose(
        other.answers["answer"], trained["ill"].predict_proba(table)["no"][3:5], atol=1e-6
    )


def test_next_rows_are_explained_by_name(runs):
    predictor = tauflow.load_predictor(runs["next-step"].directory)
    table = pandas.DataFrame({"patient": [1, 1, 1], "hours": [0.0, 1.0, 2.5], "a": 0.1, "b": 0.2})
    with pytest.raises(ArgumentError, match=r"several values to predict, a, b\. Name the one"):
        predictor.explain(table, lead_time=1.0)
    explanation = predictor.explain(table, lead_time=1.0, output="b")
    last = predictor.predict(table, lead_time=1.0).iloc[-1]
    assert explanation.answers["answer"].iloc[0] == pytest.approx(last["b"], rel=1e-4)
    assert set(explanation.values["feature"]) == {"a", "b"}


def test_a_picture_shows_one_id(table, trained):
    explanation = trained["y"].explain(table, ids=[3, 4])
    figure = explanation.plot(3)
    titles = {ax.get_title(loc="left") for ax in figure.axes}
    assert {"a", "b", "age = 3", "sex = m"} <= titles
    assert "patient 3" in figure.get_suptitle()
    with pytest.raises(ArgumentError, match="2 ids: say which"):
        explanation.plot()
    with pytest.raises(UnknownNameError, match="id"):
        explanation.plot(7)
    plt.close(figure)


def test_dates_are_drawn_from_the_first_row_on(table):
    days = pandas.Timestamp("2024-03-01") + pandas.to_timedelta(table["hours"], "h")
    dated = table.drop(columns=["ill", "age"]).assign(hours=days.astype(str))
    options = {"id": "patient", "time": "hours", "time_unit": "hours", "features": ["b", "sex"]}
    data = from_table(dated, target="y", static=["sex"], **options)
    model = tauflow.SequenceModel(tauflow.GRUD(3, 2, return_sequences=False), 1)
    explanation = Predictor.from_data(model, data).explain(dated, ids=[3])
    part = table[table["patient"] == 3]
    moved = explanation.values.query("feature == 'b'")
    assert moved["hours"].tolist() == dated["hours"][part.index].tolist()
    figure = explanation.plot()
    axes = next(ax for ax in figure.axes if ax.get_lines())
    np.testing.assert_allclose(
        axes.get_lines()[0].get_xdata(), part["hours"] - part["hours"].iloc[0], atol=1e-3
    )
    assert figure.axes[-2].get_xlabel() == "hours since the first row"
    plt.close(figure)


def test_bad_input_is_named(table, trained):
    with pytest.raises(UnknownNameError, match="method"):
        trained["y"].explain(table, method="shap")
    with pytest.raises(UnknownNameError, match="output"):
        trained["ill"].explain(table, output="maybe")
    with pytest.raises(UnknownNameError, match="id"):
        trained["ill"].explain(table, ids=["absent"])
    with pytest.raises(ArgumentError, match="ids are empty"):
        trained["ill"].explain(table, ids=[])
    with pytest.raises(ArgumentError, match="a predictor of a table and a SequenceBatch"):
        trained["y"].permutation_importance(table)
