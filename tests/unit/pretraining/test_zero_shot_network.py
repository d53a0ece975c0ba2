"""What the network reads, answers and learns."""

import json
import re

import numpy as np
import pytest
import torch

from tauflow.pretraining.blend import (
    Blend,
    draw_origins,
    fit_blend,
    fit_least_deviations,
    fit_widths,
)
from tauflow.pretraining.features import FORECASTS, compute_features
from tauflow.pretraining.finetune import fine_tune
from tauflow.pretraining.inference import ZeroShotAnswer, forecast_quantiles, gather_members
from tauflow.pretraining.network import NetworkOptions, ZeroShotNetwork, pinball_loss
from tauflow.pretraining.periods import find_period
from tauflow.pretraining.population import ask_population
from tauflow.pretraining.train import PretrainingRun, TrainingOptions, draw_batch
from tauflow.pretraining.weights import WEIGHTS, export_training, load_weights

TINY = NetworkOptions(hidden_size=6, backbone_units=6, width=8, attention_size=4)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return ZeroShotNetwork(TINY).eval()


def draw_people(count, rng):
    """Members of a table, each with its level and noise, and a common rise."""
    people = []
    for _ in range(count):
        t = np.sort(rng.uniform(0, 10, rng.integers(4, 9)))
        people.append((t, rng.normal(0, 3) + 0.5 * t + rng.normal(0, 0.3, len(t))))
    return people


def test_period_of_an_irregular_wave():
    rng = np.random.default_rng(0)
    u = np.sort(rng.uniform(-100, 0, (3, 80)), axis=1)
    period = np.array([7.0, 12.5, 31.0])
    r = np.sin(2 * np.pi * u / period[:, None] + 1)
    frequency, share = find_period(u, r, np.full(3, 0.5))
    np.testing.assert_allclose(1 / frequency, period, rtol=0.02)
    assert (share > 0.8).all()


def test_a_period_is_that_of_the_series_alone():
    """Also beside one over a longer time, whose grid has more cells."""
    rng = np.random.default_rng(0)
    u, r = np.cumsum(rng.exponential(1, (3, 40)), 1), rng.normal(size=(3, 40))
    u[1, 20:] += 40
    u[2, 20:] += 400
    step = np.full(3, 0.5)
    together = np.stack(find_period(u, r, step))
    alone = [find_period(u[k : k + 1], r[k : k + 1], step[:1]) for k in range(3)]
    np.testing.assert_allclose(together, np.stack(alone, 1)[..., 0], rtol=1e-9)


def test_members_do_not_see_themselves():
    rng = np.random.default_rng(0)
    people = draw_people(6, rng)
    t, y = people[2]
    q = t[-1] + np.array([[1.0, 2.0]])
    without = [person for place, person in enumerate(people) if place != 2]
    answer = ask_population(gather_members(people, [2]), t[None], y[None], q)
    other = ask_population(gather_members(without, [-1]), t[None], y[None], q)
    assert answer.count == other.count == 5
    # What does not rest on the middle of the table, of which the own values are a part.
    np.testing.assert_allclose(answer.gap, other.gap)
    np.testing.assert_allclose(answer.forecasts[..., :4], other.forecasts[..., :4], atol=0.1)


def test_features_have_no_units():
    rng = np.random.default_rng(0)
    t, y = rng.exponential(size=(4, 30)).cumsum(1), rng.normal(5, 1, (4, 30))
    q = t[:, -1:] + [[1.0, 5.0]]
    plain, scaled = compute_features(t, y, q, None), compute_features(8 * t, 16 * y, 8 * q, None)
    for name in ("inputs", "dt", "summary", "queries", "ahead", "forecasts", "steps"):
        torch.testing.assert_close(
            getattr(plain, name), getattr(scaled, name), rtol=1e-4, atol=1e-4
        )
    np.testing.assert_allclose(scaled.scale, 16 * plain.scale)


@pytest.mark.parametrize("points", [1, 2, 3, 7, 40])
def test_any_number_of_points_gives_finite_quantiles_that_do_not_cross(network, points):
    rng = np.random.default_rng(points)
    contexts = [
        (np.arange(points, dtype=float), values)
        for values in (rng.normal(size=points), np.full(points, 3.0), np.zeros(points))
    ]
    queries = [np.array([points + 0.5, points + 40.0])] * 3
    for population in (None, gather_members(contexts, [0, 1, 2])):
        quantiles = np.stack(forecast_quantiles(network, contexts, queries, population))
        assert np.isfinite(quantiles).all()
        assert (np.diff(quantiles, axis=2) >= 0).all()
        assert (quantiles[1:] >= 0).all()  # no value was below zero


def test_series_of_a_batch_are_answered_as_alone(network):
    rng = np.random.default_rng(0)
    contexts = [(np.arange(float(n)), rng.normal(size=n)) for n in (5, 9, 5)]
    queries = [np.array([20.0]), np.array([10.0, 12.0]), np.array([6.0, 7.0, 30.0])]
    together = forecast_quantiles(network, contexts, queries)
    for place in range(3):
        (alone,) = forecast_quantiles(network, contexts[place : place + 1], [queries[place]])
        np.testing.assert_allclose(alone, together[place], rtol=1e-4, atol=1e-5)


def test_pinball_loss_is_least_at_the_quantiles():
    target = torch.randn(20000, 1, generator=torch.Generator().manual_seed(0))
    best = torch.quantile(target[:, 0], torch.arange(1, 10) / 10)[None, None]
    loss = pinball_loss(best.expand(20000, 1, 9), target).mean()
    for shift in (-0.05, 0.05):
        assert pinball_loss((best + shift).expand(20000, 1, 9), target).mean() > loss


def test_training_goes_on_to_the_last_bit(tmp_path):
    options = {"network": TINY, "held_out": 1, "seed": 3}
    run = PretrainingRun(tmp_path / "whole", TrainingOptions(steps=4, **options), "none", list)
    run.run()
    half = TrainingOptions(steps=4, every=2, hours=0.0, **options)
    for _ in range(3):  # each ends at its first checkpoint, and goes on from the last
        stopped = PretrainingRun(tmp_path / "parts", half, "none", list)
        stopped.run()
    stopped = PretrainingRun(tmp_path / "parts", TrainingOptions(steps=4, **options), "none", list)
    stopped.run()
    assert stopped.step == run.step == 4
    for a, b in zip(run.average.parameters(), stopped.average.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert stopped.record["series"] == run.record["series"]
    assert [part["from_step"] for part in stopped.record["runs"]] == [0, 1, 2, 3]
    (tmp_path / "whole" / "record.json").unlink()  # killed between checkpoint and record
    export_training(tmp_path / "whole", tmp_path / "weights.safetensors")
    read = load_weights(tmp_path / "weights.safetensors")
    torch.testing.assert_close(read.state_dict(), run.average.state_dict(), rtol=0, atol=0)
    assert json.loads((tmp_path / "weights.json").read_text("utf-8")) == run.record


def test_batches_are_finite_whatever_the_tables(network):
    for seed in range(12):
        features, target = draw_batch(np.random.default_rng(seed))
        assert torch.isfinite(target).all()
        assert torch.isfinite(network(features)).all()
        assert features.forecasts.shape[-1] == len(FORECASTS)


def test_least_deviations_find_weights_despite_outliers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = x @ [0.2, 0.5, -1.0]
    y[:20] += 100
    weights = fit_least_deviations(x, y, np.array([1.0, 0, 0]), ridge=0.1)
    # Pulled to where it starts by a tenth; least squares are off by several.
    np.testing.assert_allclose(weights, [0.2, 0.5, -1.0], atol=0.15)


def test_a_blend_is_no_worse_than_the_last_value_where_it_was_fitted(network):
    rng = np.random.default_rng(1)
    people = [(np.arange(6.0), rng.normal(size=6)) for _ in range(60)]  # the mean is best
    blend = fit_blend(network, people)
    assert min(blend.errors.values()) < 0.85 * blend.errors["last value"]
    assert blend.widening > 0
    assert fit_blend(network, people[:19]) is None


def test_a_blend_reads_the_last_values_as_the_network_does():
    t, rng = np.arange(1300.0), np.random.default_rng(0)
    y, q = rng.normal(5, 1, 1300), np.array([1300.0])
    changed = np.where(t < 1300 - 1024, -500, y)
    around = ZeroShotAnswer(np.linspace(-1, 1, 9)[None], np.ones(1))
    mean_of_past = Blend(np.eye(1, 12, 2)[0], 1.0, 0.0, 1.0, {})
    np.testing.assert_array_equal(
        mean_of_past.apply((t, changed), q, around), mean_of_past.apply((t, y), q, around)
    )
    long = draw_origins([(np.arange(3000.0), np.arange(3000.0))])
    assert {len(origin.t) for origin in long} == {1024}
    assert all(origin.y[-1] == origin.target[0] - 1 for origin in long)


def test_a_simple_forecast_is_taken_alone_where_it_is_clearly_best_on_other_ids(network):
    rng = np.random.default_rng(1)
    people = [(np.arange(6.0), rng.normal(size=6)) for _ in range(300)]  # their median is best
    blend = fit_blend(network, people)
    assert min(blend.errors, key=blend.errors.get) == "middle of the table"
    past, q, around = (np.arange(3.0), -np.ones(3)), np.array([5.0, 9.0]), np.linspace(-1, 1, 9)
    quantiles = blend.apply(past, q, ZeroShotAnswer(np.tile(around, (2, 1)), np.ones(2)))
    np.testing.assert_allclose(quantiles[:, 4], np.median([y for _, y in people]), atol=1e-9)
    few = fit_blend(network, people[:25])
    assert set(few.errors) == {"last value", "zero-shot", "blended"}


def test_fine_tuning_keeps_the_network_where_validation_does_not_improve(network):
    people = draw_people(12, np.random.default_rng(0))
    none = fine_tune(network, people, steps=0)
    assert none.step == 0
    tuned = fine_tune(network, people, steps=40)
    assert tuned.losses[1] <= tuned.losses[0]
    assert (tuned.step > 0) == (tuned.losses[1] < tuned.losses[0])
    again = fine_tune(network, people, steps=40)
    torch.testing.assert_close(tuned.network.state_dict(), again.network.state_dict())


def test_fine_tuning_leaves_out_draws_of_far_outliers_alone(network):
    t = np.arange(45.0)
    members = [(t, k * 2.0**t) for k in range(1, 9)]
    tuned = fine_tune(network, members, steps=20)
    assert np.isfinite(tuned.losses).all()
    assert all(parameter.isfinite().all() for parameter in tuned.network.parameters())


def test_weights_of_the_package_give_the_same_answer_on_every_machine():
    k = np.arange(60.0)
    t, y = k + 0.06 * (7 * k % 5), np.round(10 * np.sin(k / 4) + 3 * (k % 3), 2)
    (quantiles,) = forecast_quantiles(load_weights(), [(t, y)], [np.array([61.0, 70.0])])
    expected = [[6.676667, 8.881430, 10.796060], [-8.766623, -6.409953, -4.163826]]
    np.testing.assert_allclose(quantiles[:, [0, 4, 8]], expected, rtol=1e-5)
    record = json.loads(WEIGHTS.with_suffix(".json").read_text(encoding="utf-8"))
    assert record["series"] > 0
    for run in record["runs"]:  # of committed sources
        assert re.fullmatch("[0-9a-f]{40}", run["commit"])


def test_intervals_are_widened_by_the_own_past_and_never_narrowed(network):
    rng = np.random.default_rng(0)
    t = np.arange(130.0)
    assert fit_widths(network, (t[:100], t[:100])) is None
    blend = fit_widths(network, (t, rng.normal(size=130)))
    assert blend.widening >= 1
    quantiles = np.sort(rng.normal(size=(2, 9)), axis=1) - 5
    past, q = (np.array([0.0, 1.0]), np.array([-1.0, 2.0])), np.array([2.0, 5.0])
    widened = blend.apply(past, q, ZeroShotAnswer(quantiles, np.zeros(2)))
    np.testing.assert_allclose(widened[:, 4], quantiles[:, 4])
    np.testing.assert_allclose(np.ptp(widened, axis=1), blend.widening * np.ptp(quantiles, axis=1))


def test_members_of_one_value_each_are_compared_without_the_own():
    """Of these no time step between values is known, and times may be far from zero."""
    t, y = 1.7e9 + 3600 * np.arange(4.0)[:, None], np.array([[1.0], [2.0], [3.0], [90.0]])
    people = list(zip(t, y, strict=True))
    answer = ask_population(gather_members(people, [3]), t[3:], y[3:], t[3:] + 3600)
    assert (answer.forecasts[0, 0, [0, 2]] <= 3).all()  # by time and by age
