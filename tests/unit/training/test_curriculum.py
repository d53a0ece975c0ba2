import pytest
import torch
from tiny_training_task import Affine, TinyModel, tiny_model, tiny_splits

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, NonFiniteError
from tauflow.training import Callback, Recipe, train

STAGES = Recipe(curriculum=(2, 4), curriculum_epochs=3, epochs=8, lr=0.02, batch_size=8)


def fit(model, recipe, **changes):
    arguments = {**tiny_splits(), "loss": "mse", "metric": "mse", "seed": 0, **changes}
    return train(model, recipe=recipe, **arguments)


def test_stages_follow_each_other():
    lengths = [STAGES.get_stage_length(epoch) for epoch in range(1, 9)]
    assert lengths == [2, 2, 2, 4, 4, 4, None, None]
    assert Recipe().get_stage_length(1) is None


class Watched(TinyModel):
    def __init__(self):
        super().__init__()
        self.lengths = {True: [], False: []}

    def forward(self, x, **options):
        self.lengths[self.training].append(x.shape[1])
        return super().forward(x, **options)


def test_training_sees_beginnings_and_evaluation_whole_sequences():
    model = Watched()
    fit(model, STAGES)
    assert model.lengths[True] == [2] * 9 + [4] * 9 + [5] * 6  # three batches an epoch
    assert set(model.lengths[False]) == {5}


@pytest.mark.parametrize("stages", [(2, 4), (2, 2), (5, 5)])
def test_each_stage_has_an_optimizer(stages):
    """Also where stages are as long as the one before, or as the sequences."""
    recipe = Recipe(curriculum=stages, curriculum_epochs=2, epochs=7, batch_size=8, select="last")
    counts = []

    class Count(Callback):
        def on_epoch(self, trainer):
            counts.append(int(next(iter(trainer.optimizer.state.values()))["step"]))

    fit(tiny_model(), recipe, callbacks=[Count()])
    assert counts == [3, 6, 3, 6, 3, 6, 9]  # three batches an epoch


def test_a_stage_begins_with_a_new_optimizer():
    # While gradients keep their size, Adam's steps are those of lr. Where the gradient flips its
    # sign, only fresh moments give a whole step back at once.
    x = torch.ones(8, 4, 1)
    y = torch.cat([torch.full((8, 2, 1), 9.0), torch.full((8, 2, 1), -99.0)], 1)
    data = SequenceBatch(x, y)
    recipe = Recipe(
        curriculum=(2,), curriculum_epochs=5, epochs=6, batch_size=8, lr=0.01, select="last"
    )
    bias = []
    for epochs in (5, 6):
        model = Affine()
        shorter = Recipe.from_dict({**recipe.to_dict(), "epochs": epochs})
        fit(model, shorter, train=data, valid=None, test=None)
        bias.append(model.b.item())
    assert bias[0] == pytest.approx(0.05, rel=1e-3)
    assert bias[1] - bias[0] == pytest.approx(-0.01, rel=1e-3)


def test_a_stopped_run_goes_on_in_its_stage(tmp_path):
    through = fit(tiny_model(), STAGES)
    shorter = Recipe.from_dict({**STAGES.to_dict(), "epochs": 5})
    fit(tiny_model(), shorter, run_dir=tmp_path)
    description = tmp_path / "run.json"
    description.write_text(description.read_text().replace('"epochs": 5', '"epochs": 8'))
    resumed = fit(tiny_model(), STAGES, run_dir=tmp_path, resume=True)
    assert [row["valid"] for row in resumed.history] == [row["valid"] for row in through.history]


@pytest.mark.parametrize("y_shape", [(3, 5), (3, 5, 2), (3,), (3, 2)])
def test_everything_with_an_axis_of_steps_is_cut(y_shape):
    batch = SequenceBatch(
        x=torch.randn(3, 5, 2),
        y=torch.zeros(y_shape),
        dt=torch.ones(3, 5),
        mask=torch.ones(3, 5, dtype=torch.bool),
        observed=torch.ones(3, 5, 2, dtype=torch.bool),
        y_mask=torch.ones(3, 5, dtype=torch.bool),
    )
    cut = batch.with_steps(2)
    assert torch.equal(cut.x, batch.x[:, :2])
    assert cut.dt.shape == cut.mask.shape == cut.y_mask.shape == (3, 2)
    assert cut.observed.shape == (3, 2, 2)
    assert cut.y.shape == ((3, 2, *y_shape[2:]) if y_shape[1:2] == (5,) else y_shape)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curriculum": (2,)}, "contradicts curriculum_epochs=None"),
        ({"curriculum_epochs": 3}, "curriculum=None contradicts"),
        ({"curriculum": (0, 2), "curriculum_epochs": 3}, "curriculum must be at least 1"),
        ({"curriculum": 4, "curriculum_epochs": 3}, "must be a tuple of step counts, got 4"),
        ({"curriculum": (2,), "curriculum_epochs": 0}, "curriculum_epochs must be at least 1"),
    ],
)
def test_impossible_stages_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        Recipe(**options)


class Overflowing(TinyModel):
    """Gives infinity for whole sequences until it has been trained on them."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, x, **options):
        if self.training:
            self.seen = x.shape[1]
        y, h = super().forward(x, **options)
        return (y + float("inf") if x.shape[1] > self.seen else y), h


def test_scores_may_overflow_on_steps_not_trained_on_yet():
    result = fit(Overflowing(), STAGES)
    assert [row["valid"] is None for row in result.history] == [True] * 6 + [False] * 2
    assert result.best_epoch > 6
    assert result.test == result.history[result.best_epoch - 1]["test"]
    with pytest.raises(NonFiniteError, match="mse on the valid data is inf after epoch 1"):
        fit(Overflowing(), Recipe(epochs=1), train=tiny_splits()["train"].with_steps(4))


def test_a_stage_longer_than_the_sequences_takes_them_whole():
    model = Watched()
    fit(model, Recipe(curriculum=(2, 90), curriculum_epochs=1, epochs=2, batch_size=1000))
    assert model.lengths[True] == [2, tiny_splits()["train"].x.shape[1]]
