"""How alike saliency masks with and without noise are, against NumPy's correlations."""

import numpy as np
import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError
from tauflow.models import ConvolutionalSequenceModel
from tauflow_papers.theory import saliency_under_noise


def random_model(**options):
    torch.manual_seed(0)
    return ConvolutionalSequenceModel(
        tauflow.CfC(5, 4),
        (3, 17, 22),
        output_size=1,
        layers=((4, 5, 2), (6, 3, 2), (3, 2, 1)),
        dense=(5,),
        **options,
    ).double()


def videos(batch=(2, 3)):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(*batch, 3, 17, 22, generator=generator, dtype=torch.float64)


def test_noise_changes_masks_as_much_as_it_is_strong():
    model, x = random_model(), videos()
    none = saliency_under_noise(model, x, variance=0.0)
    torch.testing.assert_close(none.correlation, torch.ones(2, 3).double())
    some, much = (saliency_under_noise(model, x, variance=v) for v in (0.001, 1.0))
    assert (some.correlation > 0.9).all()
    assert much.correlation.mean() < some.correlation.mean()
    for b, t in np.ndindex(2, 3):
        pair = much.clean.masks[b, t].flatten(), much.noisy.masks[b, t].flatten()
        expected = np.corrcoef(*(mask.numpy() for mask in pair))[0, 1]
        assert float(much.correlation[b, t]) == pytest.approx(expected)
    again = saliency_under_noise(model, x, variance=1.0)
    assert torch.equal(again.noisy.masks, much.noisy.masks)
    with pytest.raises(ArgumentError, match="variance must be"):
        saliency_under_noise(model, x, variance=-1.0)
