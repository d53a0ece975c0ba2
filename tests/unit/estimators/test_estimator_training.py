"""How estimators are trained: weights, validation, going on, what they learn of the data."""

import numpy as np
import pandas as pd
import pytest
import torch
from irregular_samples import SMALL, padded, sequences
from sklearn.exceptions import NotFittedError

import tauflow
from tauflow.errors import (
    ArgumentError,
    DataError,
    OptionError,
    ShapeError,
    SpecificationError,
    TimeError,
    UnknownNameError,
)
from tauflow.estimators import SequenceClassifier, SequenceRegressor

WHOLE = {**SMALL, "validation_fraction": 0}
EXACT = {**WHOLE, "dtype": "float64", "batch_size": 1000}
USUAL = {"clip": "norm", "clip_norm": 1.0, "ema": 0.95}  # what an estimator adds to its own fields


def test_it_is_what_a_user_would_write():
    X, t, y, _ = sequences(missing=0.2)
    array, lengths = padded(X, fill=np.nan)
    gaps, _ = padded([np.diff(times_of_id, prepend=times_of_id[:1]) for times_of_id in t])
    rows = np.concatenate(X)
    scaled = (array - np.nanmean(rows, 0)) / np.nanstd(rows, 0)
    filled = [pd.DataFrame(values).ffill().fillna(0.0).to_numpy() for values in scaled]
    inputs = np.concatenate([np.stack(filled), np.isfinite(scaled)], axis=-1)
    inputs[np.arange(array.shape[1]) >= lengths[:, None]] = 0.0
    unit = np.median(np.concatenate([np.diff(times_of_id) for times_of_id in t]))
    data = tauflow.SequenceBatch(
        torch.tensor(inputs, dtype=torch.float32),
        torch.tensor(y == "up").long(),
        dt=torch.tensor(gaps / unit, dtype=torch.float32),
        mask=torch.arange(array.shape[1]) < torch.tensor(lengths)[:, None],
    )
    seed = int(np.random.RandomState(0).randint(2**31))
    torch.manual_seed(seed)
    rnn = tauflow.CfC(4, SMALL["hidden_size"], return_sequences=False, backend="reference")
    model = tauflow.SequenceModel(rnn, 2)
    recipe = tauflow.Recipe(epochs=3, lr=SMALL["lr"], batch_size=32, select="last", **USUAL)
    tauflow.train(model, train=data, recipe=recipe, seed=seed)
    with torch.no_grad():
        logits, _ = model(data.x, dt=data.dt, mask=data.mask)
    fitted = SequenceClassifier(**WHOLE, model="cfc", input_limit=None).fit(X, y, t=t)
    probabilities = fitted.predict_proba(X, t=t)
    np.testing.assert_allclose(probabilities, logits.softmax(-1).numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("class_weight", [None, "balanced", {"up": 3.0, "down": 1.0}])
def test_whole_weights_repeat_sequences(class_weight):
    X, t, y, _ = sequences(12, missing=0.2)
    weight = np.random.default_rng(0).integers(0, 4, 12)
    several = np.repeat(np.arange(12), weight)
    classifier = SequenceClassifier(**EXACT, class_weight=class_weight)
    expected = classifier.fit([X[n] for n in several], y[several], t=[t[n] for n in several])
    expected = expected.predict_proba(X, t=t)
    probabilities = classifier.fit(X, y, weight, t=t).predict_proba(X, t=t)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-9)
    if class_weight is not None:
        plain = SequenceClassifier(**EXACT).fit(X, y, weight, t=t).predict_proba(X, t=t)
        assert np.abs(plain - probabilities).max() > 1e-4


@pytest.mark.parametrize("y", [0, 1])
def test_regression_is_in_the_units_of_its_targets(y):
    X, t, _, number = sequences(missing=0.2)
    targets = number if y == 0 else np.stack([number, 1 - number], axis=1)
    regressor = SequenceRegressor(**EXACT)
    expected = regressor.fit(X, targets, t=t).predict(X, t=t)
    assert expected.shape == targets.shape
    moved = regressor.fit(
        [1000 * x + 3 for x in X], 50 * targets - 7, t=[60 * times_of_id for times_of_id in t]
    )
    predictions = moved.predict(
        [1000 * x + 3 for x in X], t=[60 * times_of_id for times_of_id in t]
    )
    np.testing.assert_allclose(predictions, 50 * expected - 7, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::tauflow.errors.ShiftWarning")
def test_the_unit_of_time_is_the_median_gap_and_is_kept():
    X, t, y, _ = sequences()
    gaps = np.concatenate([np.diff(times_of_id) for times_of_id in t])
    fitted = SequenceClassifier(**WHOLE).fit(X, y, t=t)
    assert fitted.schema_.gap == np.median(gaps)
    slower = [10 * times_of_id for times_of_id in t]
    fixed = SequenceClassifier(**WHOLE, time_unit=float(np.median(gaps))).fit(X, y, t=t)
    np.testing.assert_array_equal(
        fixed.predict_proba(X, t=slower), fitted.predict_proba(X, t=slower)
    )
    assert np.abs(fitted.predict_proba(X, t=slower) - fitted.predict_proba(X, t=t)).max() > 1e-4
    dates = [
        np.datetime64("2024-05-31", "ms") + (1000 * times_of_id).astype("timedelta64[ms]")
        for times_of_id in t
    ]
    dated = SequenceClassifier(**WHOLE).fit(X, y, t=dates)
    np.testing.assert_allclose(
        dated.predict_proba(X, t=dates), fitted.predict_proba(X, t=t), atol=1e-4
    )


@pytest.mark.filterwarnings("ignore:the training loss rose")
def test_validation_keeps_the_best_epoch():
    X, t, y, _ = sequences()
    settings = {**SMALL, "model": "cfc", "epochs": 6, "lr": 0.3}
    share = SequenceClassifier(**settings, validation_fraction=0.25)
    validation = {"X": X[:6], "y": y[:6], "t": t[:6]}
    for fitted in (share.fit(X, y, t=t), share.fit(X, y, t=t, validation=validation)):
        history = fitted.result_.history
        losses = [row["criterion"] for row in history]
        assert fitted.result_.best_epoch == 1 + int(np.argmin(losses))
    early = share.set_params(patience=2, epochs=60).fit(X, y, t=t, validation=validation).result_
    assert early.best_epoch + 2 == len(early.history) < 60
    x, z = SequenceRegressor(**SMALL), np.arange(len(X)) % 2.0
    assert x.fit(X, z, validation=(X, z)).result_.valid is not None


def test_warm_start_goes_on_with_what_was_learned():
    X, t, y, _ = sequences()
    settings = {**SMALL, "batch_size": 1000}
    twice = SequenceClassifier(**settings, warm_start=True).fit(X, y, t=t)
    loss, schema = twice.result_.history[0]["train_loss"], twice.schema_
    twice.fit([x + 100 for x in X], y, t=t)
    assert twice.schema_ is schema
    twice.fit(X, y, t=t)
    assert twice.result_.history[0]["train_loss"] != loss
    with pytest.raises(DataError, match="class 'left', which the estimator was not fitted to"):
        twice.fit(X, ["left"] * len(X), t=t)
    with pytest.raises(ArgumentError, match="whose hidden_size was 6 and is 7 now"):
        twice.set_params(hidden_size=7).fit(X, y, t=t)
    cold = twice.set_params(warm_start=False, hidden_size=6).fit(X, y, t=t)
    assert cold.result_.history[0]["train_loss"] == loss


def test_chance_follows_from_random_state_and_leaves_others_alone():
    X, _, y, _ = sequences()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    probabilities = [
        SequenceClassifier(**{**SMALL, "random_state": state}).fit(X, y).predict_proba(X)
        for state in (0, 0, 1, np.random.RandomState(1))
    ]
    assert torch.equal(torch.rand(3), expected)
    assert np.array_equal(probabilities[0], probabilities[1])
    assert np.array_equal(probabilities[2], probabilities[3])
    assert not np.array_equal(probabilities[0], probabilities[2])


def test_recipes_callbacks_and_whole_models():
    X, t, y, _ = sequences()
    rows = []
    more = {"optimizer": "adamw", "weight_decay": 0.1, "clip": "norm", "clip_norm": 1.0}
    mapped = SequenceClassifier(**WHOLE, recipe=more, callbacks=[rows.append]).fit(X, y, t=t)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    recipe = tauflow.Recipe(
        epochs=3, lr=SMALL["lr"], batch_size=32, select="last", **{**USUAL, **more}
    )
    model = SequenceClassifier(**{**WHOLE, "epochs": 99, "lr": 9.0}, recipe=recipe).fit(X, y, t=t)
    np.testing.assert_array_equal(mapped.predict_proba(X, t=t), model.predict_proba(X, t=t))
    without = {k: v for k, v in SMALL.items() if k != "backend"}
    seft = SequenceClassifier(**{**without, "epochs": 1}, model="seft").fit(X, y, t=t)
    assert seft.predict(X, t=t).shape == (len(X),)


def test_a_feature_that_was_never_measured_is_named():
    X, _, y, _ = sequences()
    for x in X:
        x[:, 1] = np.nan
    with pytest.warns(UserWarning, match="features without a value in the training split.*: 1."):
        SequenceClassifier(**SMALL).fit(X, y)


BATCH = np.zeros((4, 3, 2))
Y = [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (
            {"t": np.array([[0, 1, 2]] * 3 + [[0, 2, 1]])},
            TimeError,
            r"X\[3\], row 2 .*runs backwards",
        ),
        ({"t": np.full((4, 3), np.nan)}, TimeError, r"X\[0\], row 0 .* column 't' is empty"),
        ({"t": np.zeros((4, 2))}, ShapeError, r"t has shape \(4, 2\), expected \(4, 3\)"),
        ({"t": np.float32(1e9) + np.zeros((4, 3), np.float32)}, TimeError, "rounding has changed"),
        ({"t": np.full((4, 3), "a")}, TimeError, "t must be numbers or dates, got"),
        ({"dt": -1.0}, TimeError, r"X\[0\], row 0 .* column 'dt' holds '-1.0'"),
        ({"dt": np.full((4, 3), np.datetime64("2024-05-31"))}, TimeError, "dt holds dates"),
        ({"dt": 1.0, "t": np.zeros((4, 3))}, ArgumentError, "dt and t are two ways"),
        ({"lengths": [1, 2, 3]}, ArgumentError, "lengths must be 4 whole numbers"),
        ({"lengths": [1, 2, 3, 4]}, ArgumentError, "between 1 and T = 3, and that of sequence 3"),
        ({"id": "who"}, ArgumentError, "id='who' names a column of a table, and X is a ndarray"),
        ({"time": "at"}, ArgumentError, "time names a column of a table, and X is a ndarray"),
        ({"y": "target"}, ArgumentError, "y='target' names a column, and X is no table"),
        ({"y": [0, 1]}, ShapeError, "y has 2 entries, and X has 4 sequences"),
        ({"y": [1, 1, 1, 1]}, DataError, "one class only, 1"),
        ({"y": ["a", "b", None, None]}, DataError, r"y\[2\] is None, expected a class\. Fill it"),
        ({"y": pd.Series(["a", "b", pd.NA, "a"])}, DataError, r"y\[2\] is None, expected a"),
        ({"y": [0.0, np.nan, 1.0, np.nan]}, DataError, r"y\[1\] is nan, expected a class\. Fill"),
        ({"y": 3}, ShapeError, "y must hold one entry per sequence, got 3"),
        ({"y": None}, ArgumentError, "requires y to be passed"),
        ({"X": np.zeros((1, 2, 3, 4))}, ShapeError, r"X has shape \(1, 2, 3, 4\)"),
        ({"X": [np.zeros((2, 2)), np.zeros(2)]}, ShapeError, r"X\[1\] has shape \(2,\)"),
        ({"X": [np.zeros((2, 2)), np.zeros((2, 3))]}, ShapeError, r"X\[1\] has 3 features, and"),
        ({"X": [np.zeros((2, 2)), np.zeros((0, 2))]}, DataError, r"X\[1\] has no steps"),
        ({"X": list(BATCH), "lengths": [1] * 4}, ArgumentError, "lengths are for padded arrays"),
        ({"X": BATCH[0], "lengths": [1] * 3}, ArgumentError, "X has one each"),
        ({"X": list(BATCH), "t": [[0, 1]] * 4}, ShapeError, r"t\[0\] has 2 entries, and X\[0\] h"),
        ({"X": list(BATCH), "t": [[0, 1, 2]] * 3}, ShapeError, "t has 3 sequences, and X has 4"),
        ({"sample_weight": [1, 1, 1]}, ShapeError, r"sample_weight has shape \(3,\)"),
        ({"sample_weight": [1, -1, 1, 1]}, DataError, "sample_weight is negative at 1"),
        ({"sample_weight": [0] * 4}, DataError, "every sample_weight is zero"),
        ({"sample_weight": np.ones(4, "m8[s]")}, DataError, "sample_weight holds durations"),
        ({"X": BATCH.astype("M8[s]")}, DataError, r"X holds dates \(datetime64\[s\]\), expected"),
        (
            {"X": pd.DataFrame({"d": BATCH[:, 0, 0].astype("m8[s]")})},
            DataError,
            "column 'd' of X h",
        ),
        ({"validation": BATCH}, ArgumentError, r"validation must be \(X, y\), or a mapping"),
        ({"validation": {"X": BATCH}}, ArgumentError, "validation holds X, expected X, y and per"),
    ],
)
def test_data_that_do_not_fit_are_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        SequenceClassifier(**SMALL).fit(**{"X": BATCH, "y": Y, **arguments})


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"model": "cfcc"}, UnknownNameError, "'cfcc'.*Did you mean 'cfc'"),
        ({"options": {"hidden": 3}}, TypeError, "hidden"),
        ({"options": [3]}, ArgumentError, r"options must be a mapping, got \[3\]"),
        ({"callbacks": print}, ArgumentError, "callbacks must be a list, got <built-in"),
        ({"model": "seft"}, ArgumentError, "backend='reference' is for cells"),
        ({"layout": "TBI"}, UnknownNameError, "layout='TBI' is unknown"),
        ({"impute": "median"}, UnknownNameError, "impute='median' is unknown"),
        ({"dtype": "float16"}, UnknownNameError, "dtype='float16' is unknown"),
        ({"time_unit": "hours"}, ArgumentError, "time_unit must be 'auto' or a number"),
        ({"time_unit": 0.0}, ArgumentError, "time_unit must be a number above 0"),
        ({"validation_fraction": 2.0}, ArgumentError, "validation_fraction must be a number from"),
        ({"validation_fraction": 1}, ArgumentError, "leaves nothing to train on"),
        ({"recipe": {"lr": 1.0}}, ArgumentError, "recipe holds 'lr', a parameter of the estim"),
        ({"recipe": {"weight": 1.0}}, SpecificationError, "no option 'weight'"),
        ({"patience": 2}, ArgumentError, "patience waits .* validation data, which are missing"),
        ({"device": "tpu9"}, ArgumentError, "device='tpu9' cannot be used here"),
        ({"recipe": 3}, ArgumentError, "recipe must be a Recipe or a mapping"),
        (
            {
                "recipe": tauflow.Recipe(select="last", class_weights=(1.0, 2.0)),
                "class_weight": "balanced",
            },
            ArgumentError,
            "class_weight and class_weights of the recipe",
        ),
    ],
)
def test_parameters_that_do_not_exist_are_refused(changes, error, match):
    with pytest.raises(error, match=match):
        SequenceClassifier(**{**SMALL, **changes}).fit(BATCH, Y, t=np.cumsum(BATCH[..., 0] + 1, 1))


def test_other_data_than_those_of_fit_are_refused():
    X, t, y, number = sequences(8)
    classifier = SequenceClassifier(**SMALL)
    with pytest.raises(NotFittedError):
        classifier.predict(X)
    classifier.fit(X, y, t=t)
    with pytest.raises(ValueError, match="X has 1 features, but SequenceClassifier is expecting 2"):
        classifier.predict([x[:, :1] for x in X], t=t)
    with pytest.raises(ArgumentError, match="with times, and these have none"):
        classifier.predict(X)
    with pytest.raises(
        OptionError, match=r"predict takes no argument 'length'. Did you mean 'lengt"
    ):
        classifier.predict(X, length=3)
    with pytest.raises(OptionError, match="It is y here: an array, or the name of a column"):
        classifier.fit(X, target=y)
    regressor = SequenceRegressor(**SMALL).fit(X, number)
    with pytest.raises(ArgumentError, match="with no times, and these have times"):
        regressor.predict(X, t=t)
    with pytest.raises(ShapeError, match=r"fitted to targets of shape \(B\)"):
        regressor.fit(X, number, validation=(X, np.stack([number, number], 1)))
    with pytest.raises(DataError, match=r"y holds durations .*Divide durations"):
        regressor.fit(X, number.astype("m8[s]"))
    with pytest.raises(ShapeError, match=r"y has shape \(8, 1, 1\), expected \(B,\) or \(B, O\)"):
        regressor.fit(X, number[:, None, None])


def test_tables_that_do_not_fit_are_refused():
    frame = pd.DataFrame({"who": [0, 0, 1, 1], "at": [0, 1, 0, 1], "a": 1.0, "y": [0, 0, 1, 1]})
    classifier = SequenceClassifier(**SMALL)
    with pytest.raises(DataError, match="y is called 'y', and so is a column of X"):
        classifier.fit(frame, frame["y"], id="who", time="at")
    with pytest.raises(DataError, match="y has two values for one sequence: that of row 1"):
        classifier.fit(frame, [0, 1, 1, 1], id="who", time="at")
    absent = frame["y"].astype("Int64").where(frame["who"] > 0)
    for y in (absent, absent.astype("boolean"), absent.astype("float"), [None, None, 1, 1]):
        with pytest.raises(
            DataError, match=r"y has no value for the id '0'. Fill it in, or remove all"
        ):
            classifier.fit(frame[["who", "at", "a"]], y, id="who", time="at")
    of_ids = absent.groupby(frame["who"]).first()[::-1]
    with pytest.raises(DataError, match=r"y has no value for the id '0'"):
        classifier.fit(frame[["who", "at", "a"]], of_ids, id="who", time="at")
    with pytest.raises(DataError, match=r"sample_weight has no value for the id '1'"):
        classifier.fit(frame, "y", [1, 1, np.nan, np.nan], id="who", time="at")
    with pytest.raises(UnknownNameError, match=r"no column 'whom'.*Did you mean 'who'"):
        classifier.fit(frame, "y", id="whom")
    with pytest.raises(DataError, match="the table has no features"):
        classifier.fit(frame[["who", "at", "y"]], "y", id="who", time="at")
    with pytest.raises(ArgumentError, match="t is for arrays"):
        classifier.fit(frame, "y", id="who", t=[1])
    with pytest.raises(ArgumentError, match="fitted to arrays, which name no features"):
        classifier.fit(BATCH, Y).predict(frame, id="who")
    classifier.fit(frame, "y", id="who", time="at")
    with pytest.raises(TimeError, match=r"time runs backwards. Sort the rows by time\.$"):
        classifier.predict(frame.iloc[[1, 0, 2, 3]])
    with pytest.raises(UnknownNameError, match="has no column 'a'"):
        classifier.predict(frame.drop(columns="a"))


def test_one_weight_is_that_of_every_sequence():
    frame = pd.DataFrame({"who": [0, 0, 1, 1], "a": [0.0, 1, 2, 3], "y": [0, 0, 1, 1]})
    plain, weighted = SequenceClassifier(**SMALL), SequenceClassifier(**SMALL)
    plain.fit(frame, "y", id="who")
    weighted.fit(frame, "y", sample_weight=2.0, id="who")
    np.testing.assert_allclose(weighted.predict_proba(frame), plain.predict_proba(frame), atol=1e-6)
    assert weighted.score(frame, "y", sample_weight=2.0) == plain.score(frame, "y")


def test_padding_says_nothing_of_the_scale():
    X, _, y, _ = sequences()
    array, lengths = padded(X, fill=1e6)
    fitted = SequenceClassifier(**WHOLE, input_limit=None).fit(array, y, lengths=lengths)
    scaler = fitted._feature_scaler
    np.testing.assert_allclose(scaler.mean, np.concatenate(X).mean(0))
    np.testing.assert_allclose(scaler.scale, np.concatenate(X).std(0))
