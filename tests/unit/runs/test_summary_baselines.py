"""Boosting and linear models beside a run: scikit-learn on the same features, row by row."""

import sys
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tauflow.data import from_table
from tauflow.errors import MissingExtraError
from tauflow.runs import baseline_comparison, summary_baselines
from tauflow.runs.summary_baselines import fit_summary_baselines
from tauflow.training import METRICS


def fit_gradient_boosting(data):
    return fit_summary_baselines(data)[0]


def make_linear(model):
    """Return a linear model on standardised features, of which missing ones are the mean."""
    return make_pipeline(SimpleImputer(), StandardScaler(), model)


def visits(ids=120, classes=2, *, missing=0.0):
    """Return a table whose class is the sign, or the third, of an id's mean."""
    rng = np.random.default_rng(0)
    levels = rng.normal(size=ids)
    frame = pandas.DataFrame(
        {"id": np.repeat(np.arange(ids), 6), "t": np.tile(np.arange(6.0), ids)}
    )
    frame["a"] = np.repeat(levels, 6) + 0.1 * rng.normal(size=len(frame))
    frame["b"] = rng.normal(size=len(frame))
    frame.loc[rng.random(len(frame)) < missing, "a"] = np.nan
    frame["y"] = np.repeat(np.digitize(levels, [0] if classes == 2 else [-0.5, 0.5]), 6).astype(str)
    frame["level"] = np.repeat(levels, 6)
    return frame


def statistics(frame, columns=("a", "b")):
    """Return the summary features of each id, by pandas; in the units of the table."""
    groups = frame.groupby("id", sort=False)
    statistics_of_groups = []
    for statistic in ("last", "first", "mean", "std", "min", "max", "count", "since"):
        for name in columns:
            if statistic == "std":
                statistics_of_groups.append(groups[name].std(ddof=0))
            elif statistic == "since":
                statistics_of_groups.append(
                    groups.apply(lambda g, n=name: g.t.iloc[-1] - g.t[g[n].notna()].max())
                )
            else:
                statistics_of_groups.append(getattr(groups[name], statistic)())
    return pandas.concat(statistics_of_groups, axis=1)


@pytest.mark.parametrize("missing", [0.0, 0.5])
@pytest.mark.parametrize("classes", [2, 3])
def test_classes_are_those_of_scikit_learn_on_the_same_statistics(classes, missing):
    frame = visits(classes=classes, missing=missing)
    data = from_table(frame, id="id", time="t", target="y", features=["a", "b"])
    (name, logits), (linear, linear_logits) = fit_summary_baselines(data)
    table = statistics(frame)
    train, test = ([int(id_) for id_ in data.schema.ids[part]] for part in ("train", "test"))
    labels = frame.groupby("id").y.first()
    tree = HistGradientBoostingClassifier(random_state=0)
    tree.fit(table.loc[train].to_numpy(), labels.loc[train])
    expected = tree.predict_proba(table.loc[test].to_numpy())
    assert name == "gradient boosting"
    agreed = np.isclose(logits.softmax(-1).numpy(), expected, atol=0.02).all(1)
    assert agreed.mean() > 0.9  # bins of scaled values may differ by rounding
    assert float(METRICS["auroc"](logits, data.test)) > 0.9
    assert linear == "logistic regression"
    model = make_linear(LogisticRegression(max_iter=1000))
    table = table.loc[:, table.loc[train].nunique(dropna=False) > 1]
    model.fit(table.loc[train].to_numpy(), labels.loc[train])
    expected = model.predict_proba(table.loc[test].to_numpy())
    assert linear_logits.softmax(-1).numpy() == pytest.approx(expected, abs=2e-3)


def test_values_are_scaled_as_the_targets_are():
    frame = visits()
    frame["level"] = 100 + 20 * frame["level"]
    data = from_table(frame, id="id", time="t", target="level", features=["a", "b"])
    (_, boosted), (linear, linear_found) = fit_summary_baselines(data)
    train, test = ([int(id_) for id_ in data.schema.ids[part]] for part in ("train", "test"))
    table, values = statistics(frame), frame.groupby("id")["level"].first()
    tree = HistGradientBoostingRegressor(random_state=0)
    tree.fit(table.loc[train].to_numpy(), values.loc[train])
    expected = tree.predict(table.loc[test].to_numpy())
    assert data.schema.unscale(boosted)[:, 0].numpy() == pytest.approx(expected, abs=3)
    assert float(METRICS["r2"](boosted, data.test)) > 0.8
    assert linear == "ridge regression"
    table = table.loc[:, table.loc[train].nunique(dropna=False) > 1]
    # The predictions of ridge regression scale with its targets.
    model = make_linear(Ridge()).fit(table.loc[train].to_numpy(), values.loc[train])
    expected = model.predict(table.loc[test].to_numpy())
    assert data.schema.unscale(linear_found)[:, 0].numpy() == pytest.approx(expected, abs=1e-2)


def test_a_rare_class_of_which_no_row_is_drawn(monkeypatch):
    """Both models then give the class that was drawn, as nothing else was seen."""
    monkeypatch.setattr(summary_baselines, "_MAX_ROWS", 3)
    frame = visits()
    frame["y"] = np.where(frame.id < 8, "rare", "usual")
    data = from_table(frame, id="id", time="t", target="y", features=["a"])
    usual = data.schema.outputs.index("usual")
    for name, logits in fit_summary_baselines(data):
        assert "fitted on 3 of" in name
        assert (logits.argmax(-1) == usual).all()


def test_each_row_is_predicted_from_the_rows_until_then():
    frame = visits(60)
    frame["up"] = np.where(frame.groupby("id").b.cumsum() > 0, "yes", "no")
    frame.loc[frame.index % 7 == 3, "up"] = None
    data = from_table(frame, id="id", time="t", target="up", features=["b"], per_step=True)
    _, predictions = fit_gradient_boosting(data)
    known = data.test.y_mask
    assert (predictions[~known] == 0).all()
    assert float(METRICS["accuracy"](predictions, data.test)) > 0.85
    later = data.test.x.clone()
    later[:, 3:] += 5.0
    changed = replace(data, test=replace(data.test, x=later))
    _, again = fit_gradient_boosting(changed)
    assert torch.equal(again[:, :3], predictions[:, :3])
    assert not torch.equal(again, predictions)


@pytest.mark.parametrize("horizon", [None, 3])
def test_forecasts_learn_a_season(horizon):
    rng, hours = np.random.default_rng(0), np.arange(1500)
    days = pandas.Series(rng.normal(size=24))
    frame = pandas.DataFrame({"t": hours, "v": days.loc[hours % 24].to_numpy()})
    frame["v"] += 0.05 * rng.normal(size=len(frame))
    table_options = {"time": "t", "target": "v", "window": 48, "season": 24}
    table_options |= {"horizon": horizon, "stride": 2} if horizon else {"task": "next-step"}
    data = from_table(frame, **table_options)
    name, predictions = fit_gradient_boosting(data)
    assert name == "gradient boosting"
    assert predictions.shape == data.test.y.shape
    late = slice(None) if horizon else slice(24, None)

    def error(predicted):
        return float((predicted - data.test.y)[:, late].square().mean())

    _, without = fit_gradient_boosting(replace(data, card=replace(data.card, season=0)))
    assert error(predictions) < min(0.3, 0.7 * error(without))


def test_a_value_that_is_missing_in_one_target_counts_in_the_others():
    frame = visits(60)
    frame["c"] = frame["b"].shift(1).fillna(0)
    frame.loc[frame.index % 3 == 0, "c"] = np.nan
    data = from_table(
        frame, id="id", time="t", target=["a", "c"], task="next-step", features=["a", "c"]
    )
    _, predictions = fit_gradient_boosting(data)
    assert predictions.shape[-1] == 2
    assert torch.isfinite(predictions).all()


def test_many_targets_are_drawn_from(monkeypatch):
    monkeypatch.setattr(summary_baselines, "_MAX_ROWS", 50)
    frame = visits()
    data = from_table(frame, id="id", time="t", target="y", features=["a"])
    name, first = fit_gradient_boosting(data)
    assert name == f"gradient boosting (fitted on 50 of {len(data.train)} targets)"
    assert torch.equal(fit_gradient_boosting(data)[1], first)
    rows = from_table(frame, id="id", time="t", target="y", features=["a"], per_step=True)
    assert "50 of 504 targets" in fit_gradient_boosting(rows)[0]


def test_without_scikit_learn_a_line_says_how_to_get_it(monkeypatch):
    frame = visits(40)
    data = from_table(frame, id="id", time="t", target="level", features=["a"])
    model = torch.nn.Module()
    model.forward = lambda x, **_: (x[:, -1:, 0], None)
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(MissingExtraError):
        fit_gradient_boosting(data)
    scores = baseline_comparison.score_test_split(model, data, data, ["rmse"], "last")
    assert [baseline.name for baseline in scores.baselines] == ["training mean"]
    (note,) = scores.notes
    assert "no gradient boosting and ridge regression" in note
    assert "pip install" in note


def test_too_many_outputs_have_none(monkeypatch):
    monkeypatch.setattr(baseline_comparison, "MAX_OUTPUTS", 2)
    frame = pandas.DataFrame({"t": np.arange(400), "v": np.sin(np.arange(400))})
    data = from_table(frame, time="t", target="v", window=8, horizon=3)
    model = torch.nn.Module()
    model.forward = lambda x, **_: (x[:, -1, :1].expand(-1, 3), None)
    scores = baseline_comparison.score_test_split(model, data, data, ["rmse"], "last")
    assert [baseline.name for baseline in scores.baselines] == ["persistence", "training mean"]
    assert "at most 2 outputs, and there are 3" in scores.notes[0]


def test_features_that_are_constant_where_a_target_is_known():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"id": np.repeat(np.arange(60), 8), "t": np.tile(np.arange(8.0), 60)})
    frame["a"] = rng.normal(size=len(frame))
    frame["b"] = np.where(frame.t == 7, frame.a, np.nan)  # measured once in each id
    frame["c"] = np.where(frame.t == 1, frame.a**2, np.nan)  # predicted from a single row
    data = from_table(frame, id="id", time="t", missing="inputs")
    name, predictions = fit_gradient_boosting(data)
    assert name == "gradient boosting"
    assert predictions.shape == data.test.y.shape
    assert torch.isfinite(predictions).all()
