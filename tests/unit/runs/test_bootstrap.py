"""Intervals of scores: those of a plain loop over resampled ids, and as wide as they should be."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

from tauflow.batch import SequenceBatch
from tauflow.data import from_table
from tauflow.runs import bootstrap
from tauflow.runs.bootstrap import (
    Clusters,
    compute_score_interval,
    explain_no_interval,
    make_clusters,
    sample_cluster_counts,
)
from tauflow.training import METRICS, Score


def example(name, *, per_step, seed=0, count=30, steps=6):
    """Return predictions, a batch with their targets, and a cluster for each sequence."""
    draw = torch.Generator().manual_seed(seed)
    kind = METRICS[name].target
    lead = (count, steps) if per_step else (count,)
    if kind == "values":
        y = torch.randn(*lead, 2, generator=draw)
        prediction = y + torch.randn(*lead, 2, generator=draw)
    else:
        y = (torch.rand(lead, generator=draw) < 0.4).long()
        outputs = 1 if kind == "binary" else 2
        prediction = torch.randn(*lead, outputs, generator=draw) + y[..., None]
    mask = torch.rand(count, steps, generator=draw) < 0.7 if per_step else None
    x = torch.zeros(count, steps, 1)
    batch = SequenceBatch(x, y.float() if kind == "binary" else y, mask=mask)
    return prediction, batch, torch.arange(count) // 2


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("name", ["auroc", "average_precision", "brier", "accuracy", "rmse", "mae"])
def test_they_equal_a_loop_over_resampled_ids(name, per_step, monkeypatch):
    monkeypatch.setattr(bootstrap, "RESAMPLES", 60)
    monkeypatch.setattr(
        bootstrap, "sample_cluster_counts", lambda count: sample_cluster_counts(count, 60)
    )
    prediction, batch, codes = example(name, per_step=per_step)
    clusters = Clusters(codes, 15, "")
    value, interval = compute_score_interval(METRICS[name], prediction, batch, clusters)
    assert value == pytest.approx(float(METRICS[name](prediction, batch)), rel=1e-6)
    looped = []
    for drawn in sample_cluster_counts(15, 60):
        rows = torch.cat([torch.where(codes == k)[0].repeat(n) for k, n in enumerate(drawn)])
        looped.append(float(METRICS[name](prediction[rows], batch[rows])))
    assert interval == pytest.approx(np.quantile(looped, [0.025, 0.975]).tolist(), rel=1e-5)


@pytest.mark.parametrize("name", sorted({*METRICS.builtin_names} - {"ece", "binary_ece"}))
def test_every_metric_has_one_around_its_value(name):
    prediction, batch, codes = example(name, per_step=True)
    value, (low, high) = compute_score_interval(
        METRICS[name], prediction, batch, Clusters(codes, 15, "")
    )
    assert low < value < high


def test_single_values_that_are_not_known_belong_to_their_sequence():
    y = torch.randn(4, 3, 2)
    known = torch.rand(4, 3, 2) < 0.5
    batch = SequenceBatch(torch.zeros(4, 3, 1), y, y_mask=known)
    entries, _ = METRICS["mse"].select(y, batch)
    codes = entries.expand(torch.arange(4))
    assert codes.tolist() == known.nonzero()[:, 0].tolist()


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", ["auroc", "accuracy", "rmse"])
def test_nine_in_ten_and_more_cover_the_truth(name):
    """Ids have eight entries that hang together, which intervals of single entries would miss."""
    draw = np.random.default_rng(0)

    def sample(ids):
        own_level, entries = draw.normal(size=(ids, 1)), draw.normal(size=(ids, 8))
        if name == "rmse":
            y = torch.zeros(ids, 8, 1)
            return torch.tensor(own_level * 1.5 + 0.3 * entries).float()[..., None], y
        y = torch.tensor(draw.random((ids, 1)) < 0.4).expand(ids, 8).long()
        logit = torch.tensor(1.2 * own_level + 0.5 * entries).float() + y
        return torch.stack([torch.zeros_like(logit), logit], -1), y

    def scored(ids):
        prediction, y = sample(ids)
        clusters = Clusters(torch.arange(ids), ids, "")
        return compute_score_interval(
            METRICS[name], prediction, SequenceBatch(torch.zeros(ids, 8, 1), y), clusters
        )

    truth = np.mean([scored(60)[0] for _ in range(300)]) if name == "rmse" else scored(4000)[0]
    intervals = [scored(60)[1] for _ in range(200)]
    assert 0.88 < np.mean([low <= truth <= high for low, high in intervals]) < 0.99


def test_a_score_of_all_that_takes_no_weights_has_none():
    prediction, batch, codes = example("rmse", per_step=False)
    furthest = Score("furthest", "any", whole=lambda prediction, y: (prediction - y).abs().max())
    value, interval = compute_score_interval(furthest, prediction, batch, Clusters(codes, 15, ""))
    assert value == pytest.approx(float((prediction - batch.y).abs().max()))
    assert interval is None


def test_resamples_of_one_class_are_left_out():
    """Two positives among twelve: an eighth of the resamples has none of them."""
    y = (torch.arange(12) < 2).long()
    prediction = torch.stack([torch.zeros(12), -torch.arange(12.0)], -1)
    batch, clusters = SequenceBatch(torch.zeros(12, 1, 1), y), Clusters(torch.arange(12), 12, "")
    assert compute_score_interval(METRICS["auroc"], prediction, batch, clusters) == (
        1.0,
        (1.0, 1.0),
    )


def table(ids, rows, groups=None):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"id": np.repeat(np.arange(ids), rows)})
    frame["t"], frame["a"] = np.tile(np.arange(rows), ids), rng.normal(size=ids * rows)
    frame["y"] = np.where(frame["id"] % 2, "yes", "no")
    frame["z"] = np.where(rng.random(len(frame)) < 0.5, "up", "down")
    if groups is not None:
        frame["ward"] = frame["id"] % groups
    return frame


def test_clusters_are_ids():
    data = from_table(table(100, 4), id="id", time="t", target="y", features=["a"])
    clusters = make_clusters(data)
    assert (clusters.count, clusters.description) == (15, "the 15 test ids")
    assert len(set(clusters.codes.tolist())) == 15


def test_windows_of_an_id_are_one_cluster():
    data = from_table(
        table(100, 8), id="id", time="t", target="a", window=3, horizon=1, features=["a"]
    )
    clusters = make_clusters(data)
    names = data.schema.ids["test"]
    assert len(names) > clusters.count == 15
    assert len({(name, int(code)) for name, code in zip(names, clusters.codes, strict=True)}) == 15


def test_clusters_are_groups_where_there_are_some():
    data = from_table(
        table(400, 3, groups=80), id="id", time="t", target="y", features=["a"], group="ward"
    )
    clusters = make_clusters(data)
    assert clusters.description == "the 12 test groups ('ward')"
    assert clusters.count == len({int(id_) % 80 for id_ in data.schema.ids["test"]}) == 12
    codes = dict(zip(data.schema.ids["test"], clusters.codes.tolist(), strict=True))
    assert len({(int(id_) % 80, code) for id_, code in codes.items()}) == 12


def test_too_few_ids_have_no_interval():
    data = from_table(table(40, 3), id="id", time="t", target="y", features=["a"])
    assert make_clusters(data) == "the test split has 6 ids, and at least 10 are needed"


@pytest.mark.parametrize("window", [None, 10])
def test_rows_of_one_series_are_resampled_in_blocks(window):
    frame = table(1, 2000).drop(columns="id")
    data = from_table(
        frame, time="t", target="z", features=["a"], per_step=True, split_by="time", window=window
    )
    clusters = make_clusters(data)
    assert clusters.description == "38 blocks of 8 consecutive rows, as the test split has 1 id"
    valid = data.test.valid
    assert clusters.codes[valid].bincount().tolist() == [8] * (int(valid.sum()) // 8) + (
        [int(valid.sum()) % 8] if int(valid.sum()) % 8 else []
    )
    assert (clusters.codes[valid].diff() >= 0).all()


def test_windows_of_one_series_are_resampled_in_blocks():
    frame = table(1, 4000).drop(columns=["id", "y", "z"])
    data = from_table(frame, time="t", target="a", window=6, horizon=2)
    clusters = make_clusters(data)
    assert clusters.count == -(-len(data.test) // -(-len(data.test) // 40))
    assert "consecutive windows" in clusters.description
    few = replace(data, test=data.test[:7], schema=replace(data.schema, ids={"test": ("",) * 7}))
    assert (
        make_clusters(few) == "the test split has 1 id and 7 windows, which are too few to resample"
    )


def test_a_calibration_error_has_none_as_resamples_are_worse_calibrated():
    """Of probabilities that are right, resampled errors lie above the error on nearly all data."""
    draw = torch.Generator().manual_seed(0)
    logit = torch.randn(400, 1, generator=draw)
    y = (torch.rand(400, generator=draw) < logit[:, 0].sigmoid()).float()
    counts = torch.from_numpy(sample_cluster_counts(400, 100))
    ece = METRICS["binary_ece"]
    resampled = ece.whole(logit, y, counts)
    assert float((resampled > ece.whole(logit, y)).double().mean()) > 0.8
    batch = SequenceBatch(torch.zeros(400, 1, 1), y)
    clusters = Clusters(torch.arange(400), 400, "")
    assert compute_score_interval(ece, logit, batch, clusters)[1] is None
    assert "worse calibrated" in explain_no_interval(ece)
