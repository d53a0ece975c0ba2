"""Optimizers and schedules of PyTorch, accumulated steps, averaged weights: by their formulas."""

import copy
import warnings
from dataclasses import replace

import pytest
import torch
from test_resume import assert_equal_tensors, assert_same_run, without_seconds
from tiny_training_task import Affine, tiny_model, tiny_splits
from torch.nn import functional as F
from torch.optim import lr_scheduler

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, CheckpointError, DataError
from tauflow.training import Callback, Recipe, make_optimizer, train
from tauflow.training.torch_registry import OPTIMIZERS, SCHEDULERS

STEPS = 3  # an epoch of the tiny task, in batches of 8


class Unused(Affine):
    """Says so if it is called."""

    def forward(self, x, **options):
        pytest.fail("training has begun")


class Rates(Callback):
    """Writes down the learning rate and the momentum of every step."""

    def __init__(self):
        self.rates, self.weights = [], []

    def on_batch(self, training):
        self.rates.append(training.lr)
        self.weights.append(copy.deepcopy(training.model.state_dict()))


def fit(model=None, *, data=None, **recipe):
    watch = Rates()
    model = model or tiny_model(dropout=0.0)
    options = {"lr": 0.05, "epochs": 4, "batch_size": 8, **recipe}
    result = train(model, **(data or tiny_splits()), recipe=Recipe(**options), callbacks=[watch])
    return result, watch, model


def theirs(make, steps, interval=1, lr=0.05, optimizer=torch.optim.Adam):
    """Return the rates that a scheduler of PyTorch gives so many steps."""
    stepper = optimizer([torch.nn.Parameter(torch.zeros(2))], lr=lr)
    scheduler = make(stepper)
    rates = []
    for step in range(steps):
        rates.append(stepper.param_groups[0]["lr"])
        stepper.step()
        if (step + 1) % interval == 0 and step + 1 < steps:
            scheduler.step()
    return rates


@pytest.mark.parametrize(
    ("recipe", "make", "interval"),
    [
        ({"schedule": "cosine"}, lambda o: lr_scheduler.CosineAnnealingLR(o, 12), 1),
        (
            {"schedule": "cosine", "min_lr": 0.01},
            lambda o: lr_scheduler.CosineAnnealingLR(o, 12, eta_min=0.01),
            1,
        ),
        (
            {"schedule": "one_cycle", "schedule_options": {"pct_start": 0.5}},
            lambda o: lr_scheduler.OneCycleLR(o, 0.05, 12, pct_start=0.5),
            1,
        ),
        (
            {"schedule": "cosine", "warmup_steps": 4},
            lambda o: lr_scheduler.SequentialLR(
                o,
                [
                    lr_scheduler.LinearLR(o, 0.2, total_iters=4),
                    lr_scheduler.CosineAnnealingLR(o, 8),
                ],
                [4],
            ),
            1,
        ),
        (
            {"schedule": "StepLR", "schedule_options": {"step_size": 2, "gamma": 0.5}},
            lambda o: lr_scheduler.StepLR(o, 2, 0.5),
            STEPS,
        ),
        (
            {
                "schedule": "PolynomialLR",
                "schedule_options": {"total_iters": 7},
                "schedule_interval": "step",
            },
            lambda o: lr_scheduler.PolynomialLR(o, 7),
            1,
        ),
    ],
    ids=lambda value: value.get("schedule") if isinstance(value, dict) else "",
)
def test_schedules_are_torchs_own(recipe, make, interval):
    _, watch, _ = fit(**recipe)
    with warnings.catch_warnings():  # SequentialLR steps before any optimizer did
        warnings.simplefilter("ignore")
        expected = theirs(make, 4 * STEPS, interval)
    assert watch.rates == pytest.approx(expected, rel=1e-12)


def test_warm_up_goes_before_a_schedule_of_epochs():
    _, watch, _ = fit(schedule="exponential", decay=0.5, warmup_steps=4)
    expected = [0.05 * 0.5 ** (s // STEPS) * min(1, (s + 1) / 5) for s in range(12)]
    assert watch.rates == pytest.approx(expected)
    # Of a decay by step the first is after the warm-up, as of torch's own schedules.
    _, watch, _ = fit(schedule="exponential", decay=0.5, warmup_steps=4, schedule_interval="step")
    expected = [0.05 * (s + 1) / 5 for s in range(4)] + [0.05 * 0.5 ** (s / 2) for s in range(8)]
    assert watch.rates == pytest.approx(expected)
    with pytest.raises(ArgumentError, match="warmup_steps=12 takes all 12 steps of the training"):
        fit(warmup_steps=12)


class Still(Affine):
    """Its score never changes."""

    def forward(self, x, **options):
        return super().forward(x)[0] * 0 + 1, None


ZEROS = SequenceBatch(torch.zeros(4, 1, 1), torch.zeros(4, 1, 1))


def test_a_plateau_halves_the_rate_when_the_score_stands_still(tmp_path):
    options = {"factor": 0.5, "patience": 1}
    recipe = Recipe(lr=0.4, epochs=6, schedule="plateau", schedule_options=options, min_lr=0.15)
    arguments = {"train": ZEROS, "valid": ZEROS, "recipe": recipe, "run_dir": tmp_path}
    result = train(Still(), **arguments)
    assert [row["lr"] for row in result.history] == [0.4, 0.4, 0.4, 0.2, 0.2, 0.15]


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - {"muon"}))
def test_every_optimizer_takes_the_steps_that_torchs_takes(name):
    data = {**tiny_splits(), "valid": None, "test": None}
    model = tiny_model(dropout=0.0)
    result, _, ours = fit(
        data=data, optimizer=name, epochs=2, shuffle=False, select="last", lr=0.01
    )
    if "weight_decay" in OPTIMIZERS[name].__init__.__code__.co_varnames:
        optimizer = OPTIMIZERS[name](model.parameters(), lr=0.01, weight_decay=0.0)
    else:
        optimizer = OPTIMIZERS[name](model.parameters(), lr=0.01)
    for start in 2 * [0, 8, 16]:
        batch = data["train"][start : start + 8]
        optimizer.zero_grad()
        F.mse_loss(model(batch.x)[0], batch.y).backward()
        optimizer.step()
    assert_equal_tensors(ours.state_dict(), {k: v.detach() for k, v in model.state_dict().items()})
    assert result.epochs == 2


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"optimizer": "muon"}, r"optimizer='muon' does not take .*2D"),
        (
            {"optimizer": "sgd", "optimizer_options": {"momentum": -1.0}},
            r"optimizer='sgd' does not take .*momentum.*-1",
        ),
        (
            {"optimizer": "adagrad", "schedule": "one_cycle"},
            r"schedule='one_cycle' does not take .*momentum",
        ),
        ({"optimizer": "sgd", "optimizer_options": {"momentun": 0.9}}, "argument 'momentun'"),
        ({"optimizer_options": {"lr": 0.9}}, "multiple values for .*'lr'"),
        (
            {"betas": (0.9, 0.9), "optimizer_options": {"betas": (0.8, 0.8)}},
            "multiple values for .*'betas'",
        ),
        ({"optimizer": "sgd", "eps": 1e-3}, "unexpected keyword argument 'eps'"),
        ({"optimizer": "rprop", "weight_decay": 0.1}, "unexpected .* 'weight_decay'"),
        ({"optimizer": "sgd", "betas": (0.9, 0.9)}, "unexpected keyword argument 'betas'"),
        ({"rho": 0.9}, "optimizer='adam' does not take .*'rho'"),
        ({"schedule": "StepLR"}, "missing 1 required .*'step_size'"),
        ({"schedule": "one_cycle", "schedule_options": {"total_steps": 3}}, "multiple values"),
    ],
)
def test_what_torch_refuses_is_said_with_its_reason(recipe, message):
    with pytest.raises(ArgumentError, match=message):
        fit(Unused(), **recipe)


def test_a_schedule_may_end_with_the_training():
    options = {"max_lr": 0.1, "total_steps": 4 * STEPS}
    settings = {"schedule": "OneCycleLR", "schedule_interval": "step", "schedule_options": options}
    assert fit(**settings)[0].epochs == 4
    options = {"max_lr": 0.1, "total_steps": 4}
    assert fit(schedule="OneCycleLR", schedule_options=options)[0].epochs == 4


def test_every_schedule_that_is_listed_can_be_built():
    options = {
        "StepLR": {"step_size": 1},
        "MultiStepLR": {"milestones": (1, 2)},
        "ExponentialLR": {"gamma": 0.9},
        "CosineAnnealingLR": {"T_max": 3},
        "CyclicLR": {"base_lr": 0.1, "max_lr": 0.2},
        "CosineAnnealingWarmRestarts": {"T_0": 2},
        "OneCycleLR": {"max_lr": 0.1, "total_steps": 9},
    }
    for name in SCHEDULERS:
        recipe = Recipe(
            **{"optimizer": "sgd", "optimizer_options": {"momentum": 0.5}, "schedule": name},
            schedule_options=options.get(name),
        )
        optimizer = make_optimizer(recipe, [torch.nn.Parameter(torch.zeros(1))])
        made = SCHEDULERS[name](optimizer, **(recipe.schedule_options or {}))
        assert type(made) is getattr(torch.optim.lr_scheduler, name)
        assert made.optimizer is optimizer


@pytest.mark.parametrize("shuffle", [True, False])
def test_accumulated_batches_are_the_large_one(shuffle):
    mask = torch.rand(22, 5, generator=torch.Generator().manual_seed(2)) < 0.7
    mask[:, 0] = True
    parts = tiny_splits()
    data = {"train": SequenceBatch(parts["train"].x.double(), parts["train"].y.double(), mask=mask)}
    results = []
    for batch_size, accumulate in ((12, 1), (5, 3), (4, 3)):
        model = tiny_model(dropout=0.0).double()
        settings = {"batch_size": batch_size, "accumulate": accumulate, "shuffle": shuffle}
        if batch_size * accumulate == 15:
            settings["batch_size"], settings["accumulate"] = 1, 12
        result, _, model = fit(model, data=data, select="last", **settings)
        results.append((result.history, model.state_dict()))
    for history, weights in results[1:]:
        assert [row["step"] for row in history] == [2, 4, 6, 8]
        for name, value in weights.items():
            torch.testing.assert_close(value, results[0][1][name], rtol=1e-9, atol=1e-12)
        losses = [[row["train_loss"] for row in history_] for history_ in (history, results[0][0])]
        assert losses[0] == pytest.approx(losses[1], rel=1e-10)


@pytest.mark.parametrize(("batch_size", "accumulate"), [(1, 8), (2, 4)])
def test_a_part_of_a_step_may_have_no_target(batch_size, accumulate):
    known = torch.zeros(22, 5, dtype=torch.bool)
    known[::2, 2] = True
    parts = tiny_splits()
    data = {"train": SequenceBatch(parts["train"].x.double(), parts["train"].y.double())}
    data["train"] = replace(data["train"], y_mask=known)
    weights = []
    for size, parts_of_step in ((8, 1), (batch_size, accumulate)):
        model = tiny_model(dropout=0.0).double()
        options = {"batch_size": size, "accumulate": parts_of_step, "shuffle": False}
        fit(model, data=data, select="last", **options)
        weights.append(model.state_dict())
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-9, atol=1e-12)
    data["train"] = replace(data["train"], y_mask=torch.zeros_like(known))
    data["train"].y_mask[0, 0] = True
    with pytest.raises(DataError, match=r"no entry of batch \d is valid"):
        fit(
            tiny_model().double(),
            data=data,
            select="last",
            batch_size=1,
            accumulate=8,
            shuffle=False,
        )


@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_no_part_of_a_step_hides_a_mistake(accumulate):
    x = tiny_splits()["train"].x[:8]
    data = {"train": SequenceBatch(x, torch.tensor([0, 1, 0, 1, 2, 0, 1, 0]))}
    model = tiny_model(outputs=2, per_step=False)
    size = 8 // accumulate
    with pytest.raises(DataError, match="as the model has 2 outputs"):
        fit(
            model,
            data={**data, "loss": "cross_entropy", "metric": "accuracy"},
            select="last",
            batch_size=size,
            accumulate=accumulate,
        )


def test_numbers_of_an_optimizer_keep_their_precision(tmp_path):
    data = {name: part.to(dtype=torch.float64) for name, part in tiny_splits().items()}

    def run(folder, epochs, *, resume=False):
        model = tiny_model(dropout=0.0).double()
        recipe = Recipe(optimizer="nadam", lr=0.05, epochs=epochs, batch_size=8, select="last")
        train(model, train=data["train"], recipe=recipe, run_dir=folder, resume=resume)
        return model.state_dict()

    uncut = run(tmp_path / "whole", 4)
    run(tmp_path / "part", 2)
    assert_equal_tensors(run(tmp_path / "part", 4, resume=True), uncut)


@pytest.mark.parametrize("of", ["sequences", "classes", "both", "both, by entries"])
def test_accumulated_batches_with_weights_are_the_large_one(of):
    parts = tiny_splits()["train"]
    weight = 0.5 + torch.arange(22) % 5 if of != "classes" else None
    y = (parts.y[..., 0] > 0).long()
    data = {"train": SequenceBatch(parts.x.double(), y, weight=weight)}
    recipe = {"select": "last", "shuffle": False}
    if of != "sequences":
        recipe["class_weights"] = (1.0, 7.0)
    if "entries" in of:
        recipe["class_weight_mean"] = "entries"
    results = []
    for batch_size, accumulate in ((12, 1), (1, 12), (4, 3)):
        model = tiny_model(outputs=2, dropout=0.0).double()
        options = {**recipe, "batch_size": batch_size, "accumulate": accumulate}
        result, _, model = fit(model, data=data, **options)
        results.append((result.history[-1]["train_loss"], model.state_dict()))
    for loss, weights in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-9)
        for name, value in weights.items():
            torch.testing.assert_close(value, results[0][1][name], rtol=1e-9, atol=1e-12)


def test_the_average_of_weights_is_the_formula():
    model = tiny_model(dropout=0.0)
    options = {"data": {**tiny_splits()}, "ema": 0.9, "select": "last", "epochs": 2}
    result, watch, model = fit(model, **options)
    average = watch.weights[0]
    for weights in watch.weights[1:]:
        average = {k: 0.9 * average[k] + 0.1 * weights[k] for k in average}
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, average[name])
        assert not torch.equal(value, watch.weights[-1][name])
    test = tiny_splits()["test"]
    assert result.test == pytest.approx(F.mse_loss(model(test.x)[0], test.y).item(), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_computes_in_less_and_leaves_the_weights_in_full(dtype):
    seen = []
    model = tiny_model(dropout=0.0)
    model.head.register_forward_hook(lambda _m, _x, y: seen.append((model.training, y.dtype)))
    autocast = None if dtype is torch.float32 else "bfloat16"
    _, _, trained = fit(model, epochs=1, autocast=autocast)
    assert set(seen) == {(True, dtype), (False, torch.float32)}
    assert {p.dtype for p in trained.parameters()} == {torch.float32}


SETTINGS = {
    "sgd, one cycle": {
        "optimizer": "sgd",
        "optimizer_options": {"momentum": 0.9},
        "schedule": "one_cycle",
        "ema": 0.8,
    },
    "nadam, cosine": {
        "optimizer": "nadam",
        "schedule": "cosine",
        "warmup_steps": 4,
        "accumulate": 2,
        "batch_size": 4,
    },
    "adafactor, steps": {
        "optimizer": "adafactor",
        "schedule": "MultiStepLR",
        "schedule_options": {"milestones": [1, 3]},
        "ema": 0.5,
        "select": "last",
    },
    "plateau": {
        "schedule": "plateau",
        "schedule_options": {"patience": 0, "factor": 0.3},
        "patience": 2,
        "lr": 0.5,
    },
    "restarts, curriculum": {
        "schedule": "CosineAnnealingWarmRestarts",
        "schedule_options": {"T_0": 2},
        "schedule_interval": "step",
        "curriculum": (2,),
        "curriculum_epochs": 3,
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_killed_run_ends_as_one_left_in_peace(name, tmp_path):
    settings = {"lr": 0.05, "epochs": 5, "batch_size": 8, **SETTINGS[name]}

    def run(folder, **more):
        model = tiny_model()
        options = {"recipe": Recipe(**settings), "run_dir": tmp_path / folder, "resume": True}
        return train(model, **tiny_splits(), **options, **more), model

    class Kill(Exception):
        pass

    def die(row):
        if row["epoch"] in (1, 3):
            raise Kill

    in_peace, expected = run("peace")
    for _ in range(2):
        with pytest.raises(Kill):
            run("killed", callbacks=[die])
    ours, model = run("killed")
    assert without_seconds(ours.history) == without_seconds(in_peace.history)
    assert ours.best_epoch == in_peace.best_epoch
    assert_equal_tensors(model.state_dict(), expected.state_dict())
    if settings.get("select") != "last":
        assert_same_run(tmp_path / "peace", tmp_path / "killed")


def test_a_schedule_over_all_steps_is_not_made_longer(tmp_path):
    options = {**tiny_splits(), "run_dir": tmp_path, "resume": True}
    train(tiny_model(), **options, recipe=Recipe(epochs=2, schedule="cosine"))
    with pytest.raises(CheckpointError, match=r"recipe\.epochs was 2, is 3"):
        train(tiny_model(), **options, recipe=Recipe(epochs=3, schedule="cosine"))


def test_the_model_is_compiled_if_wished(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model: compiled.append(model))
    model = tiny_model()
    train(model, **tiny_splits(), recipe=Recipe(epochs=1), compile=True)
    assert compiled == [model]
