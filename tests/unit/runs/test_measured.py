"""Which metrics judge a run: those that were asked for, or that suit the targets."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from sklearn import metrics as sk

import tauflow
from tauflow.data import TableOptions, from_table
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow.runs import baseline_comparison
from tauflow.runs.baseline_comparison import score_test_split
from tauflow.runs.run import DEFAULT_RECIPE, CsvFile, Run
from tauflow.runs.run_data import load_run_data
from tauflow.runs.task import run_task
from tauflow.training.objectives import choose_metrics


def table(share, ids=100, names=("no", "yes"), *, per_step=False):
    """Return a table of ids of three rows, of whose targets a share is of the second class."""
    rng = np.random.default_rng(0)
    count = ids * 3 if per_step else ids
    classes = rng.permutation(np.arange(count) < round(share * count))
    frame = pandas.DataFrame({"id": np.repeat(np.arange(ids), 3), "t": np.tile(np.arange(3), ids)})
    frame["a"] = rng.normal(size=len(frame))
    frame["y"] = np.array(names)[(classes if per_step else np.repeat(classes, 3)).astype(int)]
    return frame


def calibration_error(y, probability):
    """Return the difference of probabilities and outcomes in ten bins, weighted by their sizes."""
    bins = np.minimum((10 * probability).astype(int), 9)
    excess = np.bincount(bins, probability.astype(float) - y, 10)
    return np.abs(excess).sum() / len(y)


def data_of(frame, **more):
    return from_table(frame, id="id", time="t", target="y", features=["a"], **more)


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("names", [("no", "yes"), ("ok", "fault")])
@pytest.mark.parametrize(("share", "rare"), [(0.2, True), (0.4, False), (0.8, True)])
def test_a_rare_class_is_judged_by_areas(share, rare, names, per_step):
    choice = choose_metrics(
        data_of(table(share, names=names, per_step=per_step), per_step=per_step)
    )
    if not rare:
        assert (choice.monitor, choice.notes) == ("accuracy", ())
        assert choice.shown == ("accuracy", "auroc", "brier", "ece")
        return
    assert choice.monitor == "auroc"
    assert choice.shown == ("auroc", "average_precision", "brier", "ece", "accuracy")
    (note,) = choice.notes
    assert f"{names[share < 0.5]!r} is rare" in note
    assert "AUROC takes the place of accuracy" in note


@pytest.mark.parametrize(("names", "swapped"), [(("no", "yes"), False), (("ok", "fault"), True)])
@pytest.mark.parametrize("per_step", [False, True])
def test_training_on_a_table_takes_the_metrics_of_a_run(names, swapped, per_step):
    """The class 'fault' is the first one of the network, and the rare one."""
    data = data_of(table(0.2, names=names, per_step=per_step), per_step=per_step)
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.GRU(1, 4, return_sequences=per_step), 2)
    before = torch.get_rng_state()
    result = tauflow.train(model, train=data, recipe=tauflow.Recipe(epochs=3, lr=0.1))
    assert torch.equal(torch.get_rng_state(), before)
    choice = choose_metrics(data)
    assert (result.metric, result.notes) == (choice.monitor, choice.notes)
    best = max(result.history, key=lambda row: row["valid"])
    assert result.best_epoch == best["epoch"]
    for part in ("valid", "test"):
        batch, scores = getattr(data, part), result.scores[part]
        with torch.no_grad():
            logits = model(batch.x, dt=batch.dt, mask=batch.mask)[0]
        where = batch.mask if per_step else slice(None)
        chance = logits[where].softmax(-1)[..., 0 if swapped else 1].flatten().numpy()
        y = (batch.y[where] == (0 if swapped else 1)).flatten().numpy()
        assert scores == pytest.approx(
            {
                "auroc": sk.roc_auc_score(y, chance),
                "average_precision": sk.average_precision_score(y, chance),
                "brier": sk.brier_score_loss(y, chance),
                "ece": calibration_error(y, chance),
                "accuracy": sk.accuracy_score(y, chance > 0.5),
            },
            abs=1e-6,
        )
        assert scores["auroc"] == pytest.approx(getattr(result, part))


def test_training_keeps_the_metric_that_is_given():
    data = data_of(table(0.2))
    model = tauflow.SequenceModel(tauflow.GRU(1, 4, return_sequences=False), 2)
    result = tauflow.train(model, train=data, metric="brier", recipe=tauflow.Recipe(epochs=1))
    assert (result.metric, result.scores, result.notes) == ("brier", None, ())


def test_a_command_says_how_the_epoch_is_selected(tmp_path):
    file = tmp_path / "own.csv"
    table(0.2).to_csv(file, index=False)
    lines = []
    source = CsvFile(file, TableOptions(id="id", time="t", features=["a"], target="y"))
    load_run_data(Run(source, "gru", hidden_size=2, say=lines.append))
    assert "The validation loss selects the epoch; --metric chooses" in lines[-1]


def test_targets_that_do_not_count_are_not_counted():
    frame = table(0.4, per_step=True)
    yes = np.flatnonzero(frame.y == "yes")
    frame.loc[yes[::2], "y"] = None  # 20 % of all rows, a quarter of those with a target
    choice = choose_metrics(data_of(frame, per_step=True))
    assert choice.monitor == "auroc"


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_part_of_one_class_leaves_areas_out(part):
    data = data_of(table(0.2))
    single_class = replace(getattr(data, part), y=torch.zeros(15, dtype=torch.long))
    data = TaskData(
        data.card,
        **{"train": data.train, "valid": data.valid, "test": data.test, part: single_class},
        schema=data.schema,
    )
    choice = choose_metrics(data)
    assert (choice.monitor, choice.shown) == ("accuracy", ("brier", "ece", "accuracy"))
    assert "holds one class alone" in choice.notes[0]
    with pytest.raises(DataError, match=r"auroc: the targets of the .* data are all negative"):
        choose_metrics(data, ["accuracy", "auroc"])


def test_other_targets_have_metrics_of_their_own():
    frame = table(0.5)
    three = frame.assign(y=(frame.id % 3).astype(str))
    assert choose_metrics(data_of(three)).shown == ("accuracy", "balanced_accuracy", "log_loss")
    values = choose_metrics(data_of(frame.assign(y=frame.id * 0.1)))
    assert (values.monitor, values.shown) == ("mse", ("rmse", "mae", "r2"))


def test_names_are_taken_in_their_order():
    data = data_of(table(0.2))
    choice = choose_metrics(data, ["f1", "auroc"])
    assert (choice.monitor, choice.shown, choice.notes) == ("f1", ("f1", "auroc"), ())
    swapped = choose_metrics(data_of(table(0.8)), ["f1", "auroc"])
    assert "f1 is of 'no' in the report, the rarer class, and of 'yes'" in swapped.notes[0]


def test_names_that_do_not_suit_list_those_that_do():
    data = data_of(table(0.2))
    with pytest.raises(
        UnknownNameError, match=r"'aurok' is no metric.*Did you mean 'auroc'.*brier"
    ):
        choose_metrics(data, ["aurok"])
    with pytest.raises(UnknownNameError, match=r"'rmse' is of other targets. Known .*: accuracy"):
        choose_metrics(data, ["rmse"])
    with pytest.raises(ArgumentError, match="'auroc' is given twice"):
        choose_metrics(data, ["auroc", "auroc"])


def test_single_logits_have_short_names():
    data = data_of(table(0.2))
    card = replace(data.card, task="binary", target_size=1, targets=(), metric="binary_auroc")
    parts = {
        n: replace(getattr(data, n), y=getattr(data, n).y.float()[:, None])
        for n in ("train", "valid", "test")
    }
    single = TaskData(card, **parts)
    assert choose_metrics(single).shown == ("binary_auroc",)
    assert choose_metrics(single, ["brier", "binary_f1"]).shown == ("binary_brier", "binary_f1")
    with pytest.raises(
        UnknownNameError, match="Known for this task: accuracy, auroc, average_precision"
    ):
        choose_metrics(single, ["rmse"])


class Answers(torch.nn.Module):
    """Answers with the first input of the last step, for and against the second class."""

    def forward(self, x, **_):
        return torch.stack([-x[:, -1, 0], x[:, -1, 0]], -1), None


@pytest.mark.parametrize("names", [("no", "yes"), ("ok", "fault")])
def test_scores_of_one_class_are_of_the_rarer_one(names):
    """'fault' comes before 'ok', so that it is class 0 of the network."""
    data = data_of(table(0.2, ids=300, names=names))
    scores = score_test_split(Answers(), data, data, ["auroc", "average_precision", "f1"], "it")
    rare = data.schema.outputs.index(names[1])
    y, chance = (data.test.y == rare).numpy(), data.test.x[:, -1, 0].numpy() * (2 * rare - 1)
    assert scores.positive == names[1]
    assert scores.network.values == pytest.approx(
        {
            "auroc": sk.roc_auc_score(y, chance),
            "average_precision": sk.average_precision_score(y, chance),
            "f1": sk.f1_score(y, chance > 0),
        }
    )
    constant = scores.baselines[0]
    assert constant.name == "most frequent class"
    assert constant.values == pytest.approx(
        {"auroc": 0.5, "average_precision": y.mean(), "f1": 0.0}
    )


@pytest.mark.parametrize("metric", ["rmse", "mae", "mse"])
def test_errors_are_in_the_units_of_the_table(metric):
    frame = table(0.5, ids=60)
    frame["y"] = 1000 + 50 * frame.id
    data = data_of(frame)

    class Mean(torch.nn.Module):
        def forward(self, x, **_):
            return x.new_zeros(len(x), 1), None

    scores = score_test_split(Mean(), data, data, [metric], "it")
    train, test = (np.array(data.schema.ids[p]).astype(int) * 50 for p in ("train", "test"))
    error = np.abs(test - train.mean())
    expected = {"rmse": (error**2).mean() ** 0.5, "mae": error.mean(), "mse": (error**2).mean()}
    assert scores.unit == "y"
    assert scores.network.values[metric] == pytest.approx(expected[metric], rel=1e-5)
    assert scores.network.monitored_score == pytest.approx(
        (error**2).mean() / train.var(), rel=1e-5
    )


@pytest.mark.parametrize("task", ["y", "a"])
def test_a_run_selects_by_the_first_metric_and_shows_all(tmp_path, task):
    file = tmp_path / "own.csv"
    table(0.2).to_csv(file, index=False)
    columns = {"target": task, "per_step": True} if task == "a" else {"target": "y"}
    options = TableOptions(id="id", time="t", features=["t"] if task == "a" else ["a"], **columns)
    lines = []
    run = run_task(
        Run(
            CsvFile(file, options),
            "gru",
            hidden_size=2,
            recipe=replace(DEFAULT_RECIPE, epochs=1),
            metrics=["r2", "rmse"] if task == "a" else ["brier", "auroc", "accuracy"],
            runs_dir=tmp_path,
            progress=False,
            say=lines.append,
        )
    )
    assert run.record.metric == run.scores.metrics[0] == ("r2" if task == "a" else "brier")
    assert run.record.test == pytest.approx(run.scores.network.monitored_score, rel=1e-5)
    assert dict(run.baselines).keys() >= {"gradient boosting"}


def test_a_tie_is_a_defeat():
    numbers = {"values": {"rmse": 1.0}, "intervals": {}, "monitored_score": 1.0}
    rows = (
        baseline_comparison.PredictionScores("net", **numbers),
        (baseline_comparison.PredictionScores("other", **numbers),),
    )
    scores = baseline_comparison.TestScores(("rmse",), *rows, "y", "", "", ())
    assert scores.is_beaten
    better = replace(scores, network=replace(scores.network, values={"rmse": 0.9}))
    assert not better.is_beaten
    assert replace(
        better,
        metrics=("r2",),
        network=baseline_comparison.PredictionScores("net", {"r2": 0.4}, {}, 0.0),
        baselines=(baseline_comparison.PredictionScores("other", {"r2": 0.5}, {}, 0.0),),
    ).is_beaten
    assert scores.best_baseline.name == "other"
