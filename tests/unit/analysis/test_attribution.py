import numpy as np
import pytest
import torch

import tauflow
from tauflow import SequenceBatch
from tauflow.analysis import (
    integrated_gradients,
    occlusion,
    permutation_importance,
    plot_attributions,
)
from tauflow.errors import ArgumentError, DataError, DtypeError, ShapeError, UnknownNameError


def batch_of(x, observed=None, mask=None, y=None):
    y = torch.zeros(len(x)) if y is None else y
    return SequenceBatch(x, y, observed=observed, mask=mask)


def test_contributions_of_a_linear_function_are_its_weights_times_the_values():
    torch.manual_seed(0)
    x, weights = torch.randn(3, 4, 2), torch.randn(4, 2)
    observed = torch.rand(3, 4, 2) > 0.3
    x = x * observed
    attribution = integrated_gradients(lambda b: (b.x * weights).sum((1, 2)), batch_of(x, observed))
    torch.testing.assert_close(attribution.values, x * weights)
    fixed = integrated_gradients(
        lambda b: (b.x * weights).sum((1, 2)),
        batch_of(x, observed),
        baseline=torch.tensor([1.0, 0.0]),
        inputs=torch.tensor([True, False]),
    )
    expected = torch.where(observed, (x - 1) * weights, 0.0)
    torch.testing.assert_close(fixed.values[..., 0], expected[..., 0])
    assert (fixed.values[..., 1] == 0).all()


def test_contributions_of_a_product_are_half_of_it_each():
    """By hand: along the path the gradient of x0 x1 by x0 is a x1, and its integral x1 / 2."""
    x = torch.tensor([[[2.0, 3.0]], [[-1.0, 4.0]]])
    attribution = integrated_gradients(lambda b: b.x[:, 0, 0] * b.x[:, 0, 1], batch_of(x))
    half = (x[..., 0] * x[..., 1] / 2).unsqueeze(-1).expand(-1, -1, 2)
    torch.testing.assert_close(attribution.values, half)


@pytest.mark.parametrize("cell", ["CfC", "LTC", "GRUD"])
def test_contributions_add_up_to_the_difference_of_the_outputs(cell):
    torch.manual_seed(0)
    model = tauflow.SequenceModel(getattr(tauflow, cell)(3, 8), 2)
    mask = torch.arange(9) < torch.tensor([9, 5, 7, 1])[:, None]
    batch = batch_of(2 * torch.randn(4, 9, 3) * mask[..., None], mask=mask)

    def answer(b):
        return model(b.x, mask=b.mask)[0][:, -1, 1].exp()

    attribution = integrated_gradients(answer, batch)
    assert (attribution.outputs - attribution.baseline_outputs).abs().max() > 0.05
    assert (attribution.residuals.abs() <= 0.01 * attribution.values.abs().sum((1, 2))).all()
    assert (attribution.values[~mask] == 0).all()


@pytest.mark.parametrize("marked", [False, True])
def test_padding_contributes_nothing_whatever_stands_there(marked):
    """Also where ``observed`` is true there, as it is of columns that are always measured."""
    x, weights = torch.tensor([[[2.0], [3.0], [torch.nan]]]), torch.tensor([[1.0], [-2.0], [9.0]])
    mask = torch.tensor([[True, True, False]])
    observed = torch.ones_like(x, dtype=torch.bool) if marked else None

    def answer(b):
        return (b.x.where(b.mask[..., None], 0.0) * weights).sum((1, 2))

    values = integrated_gradients(answer, batch_of(x, observed, mask)).values
    torch.testing.assert_close(values, torch.tensor([[[2.0], [-6.0], [0.0]]]))


def test_a_steep_path_takes_more_steps_or_is_reported():
    batch = batch_of(torch.ones(1, 1, 1))

    def answer(b):
        return torch.sigmoid(2000 * (b.x[:, 0, 0] - 0.3))

    with pytest.warns(UserWarning, match="Raise max_steps"):
        rough = integrated_gradients(answer, batch, max_steps=16)
    fine = integrated_gradients(answer, batch, max_steps=4096)
    assert rough.residuals.abs() > 0.1
    assert fine.residuals.abs() < 0.01


def test_occlusion_puts_the_last_value_or_none_in_the_place_of_each():
    x = torch.tensor([[[1.0], [0.0], [3.0], [7.0]]])
    observed = torch.tensor([[[True], [False], [True], [True]]])
    weights = torch.tensor([1.0, 10.0, 100.0, 1000.0])[:, None]

    def answer(b):
        extra = 0.0 if b.observed is None else b.observed.sum((1, 2))
        return (b.x * weights).sum((1, 2)) + extra

    value = occlusion(answer, batch_of(x, observed))
    # 0 before the first value; 1 in the place of 3, as the step between has none; 3 in that of 7.
    torch.testing.assert_close(value[0, :, 0], torch.tensor([1.0, 0.0, 200.0, 4000.0]))
    measured = occlusion(answer, batch_of(x, observed), remove="measurement")
    torch.testing.assert_close(measured[0, :, 0], torch.tensor([2.0, 0.0, 301.0, 7001.0]))
    static = occlusion(answer, batch_of(x, observed), static=[0])
    torch.testing.assert_close(static[0, :, 0], torch.tensor([7301.0, 0.0, 0.0, 0.0]))
    with pytest.raises(UnknownNameError, match="remove"):
        occlusion(answer, batch_of(x), remove="all")


def test_inputs_of_a_group_are_removed_together():
    x = torch.tensor([[[1.0, 0.0, 5.0]]])
    attribution = occlusion(lambda b: b.x.sum((1, 2)), batch_of(x), groups=[[0, 1], [2]])
    torch.testing.assert_close(attribution, torch.tensor([[[1.0, 5.0]]]))


@pytest.mark.parametrize("method", [integrated_gradients, occlusion])
def test_a_tensor_is_no_batch(method):
    with pytest.raises(DtypeError, match=rf"^{method.__name__}: batch must .*got Tensor"):
        method(lambda b: b.x.sum((1, 2)), torch.ones(2, 3, 1))


@pytest.mark.parametrize("method", [integrated_gradients, occlusion])
def test_the_error_of_a_module_shows_a_function_that_is_taken(method):
    model = tauflow.SequenceModel(tauflow.GRU(2, 4), 1)
    batch = batch_of(torch.ones(2, 3, 2))
    with pytest.raises(ArgumentError, match=rf"^{method.__name__}: .*SequenceModel") as error:
        method(model, batch)
    answer = eval(str(error.value)[str(error.value).index("lambda") :], {"model": model})
    method(answer, batch)


@pytest.mark.parametrize("method", [integrated_gradients, occlusion])
def test_values_that_are_missing_without_a_mark_are_refused(method):
    x = torch.randn(3, 4, 2)
    x[1, 2, 0] = float("nan")
    with pytest.raises(DataError, match=r"not finite at sequence 1, step 2.*observed=False"):
        method(lambda b: b.x.sum((1, 2)), batch_of(x))


def test_an_answer_per_step_is_refused():
    with pytest.raises(ShapeError, match="one number per sequence"):
        integrated_gradients(lambda b: b.x[..., 0], batch_of(torch.ones(2, 3, 1)))


class LastOfFirst(torch.nn.Module):
    """Answers with the last valid value of the first input."""

    def forward(self, x, *, dt=None, mask=None):
        last = (torch.ones_like(x[..., 0]) if mask is None else mask).sum(1).long() - 1
        return x[torch.arange(len(x)), last][:, :1], None


def test_permuting_costs_what_a_shuffled_column_is_wrong_by():
    """The error of an answer and an independent draw of the same is twice the variance."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 3, 2, generator=generator)
    mask = torch.arange(3) < torch.randint(1, 4, (4000, 1), generator=generator)
    x = x * mask[..., None]
    y = LastOfFirst()(x, mask=mask)[0]
    batch = batch_of(x, mask=mask, y=y)
    importance = permutation_importance(LastOfFirst(), batch, metric="mse", repeats=3)
    assert importance.shape == (2, 3)
    np.testing.assert_allclose(importance[0], 2.0, rtol=0.1)
    assert (importance[1] == 0).all()
    r2 = permutation_importance(LastOfFirst(), batch, metric="r2", repeats=1)
    np.testing.assert_allclose(r2[0], 2.0, rtol=0.1)
    static = batch_of(x[:, :1].expand(-1, 3, -1) * mask[..., None], mask=mask, y=x[:, 0, :1])
    importance = permutation_importance(
        LastOfFirst(), static, metric="mse", static=[0, 1], repeats=1
    )
    np.testing.assert_allclose(importance[0], 2.0, rtol=0.1)


def test_an_attribution_is_plotted_feature_by_feature():
    pytest.importorskip("matplotlib").use("Agg")
    with pytest.raises(ArgumentError, match="count must be at least 1"):
        plot_attributions({}, count=0)
    batch = batch_of(torch.tensor([[[1.0, 3.0], [2.0, 5.0]]]))
    attribution = integrated_gradients(lambda b: b.x[..., 1].sum(1), batch)
    with pytest.raises(ArgumentError, match=r"expected a mapping .* got Attribution"):
        plot_attributions(attribution)
    arrays = torch.tensor([0.5, 2.0]), batch.x[0, :, 1], attribution.values[0, :, 1]
    figure = plot_attributions({"pulse": tuple(array.numpy() for array in arrays)})
    (strip,) = (ax for ax in figure.axes if ax.get_title("left") == "pulse")
    np.testing.assert_allclose(strip.collections[0].get_array().ravel(), [3.0, 5.0])
