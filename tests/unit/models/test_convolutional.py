import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import tauflow
from tauflow.errors import ArgumentError, DtypeError, ShapeError
from tauflow.models import ConvolutionalSequenceModel

B, T, SIZE = 3, 5, (2, 9, 8)
SMALL = {"layers": ((3, 3, 2), (4, 2, 1)), "dense": (6, 5), "activation": "tanh"}


def small(rnn=tauflow.CfC, seed=0, **options):
    torch.manual_seed(seed)
    body = None if rnn is None else rnn(5, 4, **options)
    return ConvolutionalSequenceModel(body, SIZE, output_size=2, **SMALL).double()


def videos(batch=B, steps=T, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, steps, *SIZE, generator=generator, dtype=torch.float64)
    dt = torch.rand(batch, steps, generator=generator, dtype=torch.float64) + 0.1
    return x, dt


def numpy_head(image, model):
    """Convolve without padding, flatten, then dense layers; tanh after each."""
    for layer in model.head.convolutions:
        W, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        k, stride = W.shape[-1], layer.stride[0]
        rows = range(0, image.shape[1] - k + 1, stride)
        columns = range(0, image.shape[2] - k + 1, stride)
        image = np.tanh(
            [
                [[(w * image[:, i : i + k, j : j + k]).sum() + c for j in columns] for i in rows]
                for w, c in zip(W, b, strict=True)
            ]
        )
    features = image.ravel()
    for layer in model.head.dense:
        features = np.tanh(layer.weight.detach().numpy() @ features + layer.bias.detach().numpy())
    return features


def test_features_and_readout_are_those_of_the_equations():
    model, (x, dt) = small(), videos()
    features = [[numpy_head(image.numpy(), model) for image in row] for row in x]
    y, h = model.rnn(torch.tensor(np.array(features)), dt=dt)
    expected = y.detach().numpy() @ model.readout.weight.detach().numpy().T
    expected += model.readout.bias.detach().numpy()
    actual, state = model(x, dt=dt)
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(state, h)


@pytest.mark.parametrize("rnn", [tauflow.CfC, None], ids=["cfc", "frames"])
@pytest.mark.parametrize("filler", [7.0, float("nan")])
def test_padding_changes_nothing_and_rows_are_alone(rnn, filler):
    model, (x, dt) = small(rnn), videos()
    lengths = [T, 1, 3]
    for row, length in enumerate(lengths):
        x[row, length:] = filler
    y, h = model(x, dt=dt, lengths=lengths)
    for row, length in enumerate(lengths):
        alone, state = model(x[row, :length], dt=dt[row, :length])
        torch.testing.assert_close(y[row, :length], alone)
        torch.testing.assert_close(h[row], state)
        torch.testing.assert_close(y[row, length:], alone[-1].expand(T - length, -1))
    gradients = torch.autograd.grad(y.sum(), list(model.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_state_carries_on_with_gaps_and_with_times():
    model, (x, dt) = small(), videos()
    full, end = model(x, dt=dt)
    first, h = model(x[:, :2], dt=dt[:, :2])
    second, state = model(x[:, 2:], h, dt=dt[:, 2:])
    torch.testing.assert_close(torch.cat([first, second], 1), full)
    torch.testing.assert_close(state, end)
    by_times, _ = model(x[:, 2:], h, t=dt.cumsum(1)[:, 1:])
    torch.testing.assert_close(by_times, second)


def test_a_packed_sequence_stays_packed():
    model, (x, _) = small(), videos()
    packed, _ = model(pack_sequence([x[0, :2], x[1]], enforce_sorted=False))
    y, lengths = pad_packed_sequence(packed, batch_first=True)
    assert lengths.tolist() == [2, T]
    torch.testing.assert_close(y[0, :2], model(x[0, :2])[0])
    torch.testing.assert_close(y[1], model(x[1])[0])


def test_one_prediction_per_sequence():
    model, (x, dt) = small(return_sequences=False), videos()
    y, _ = model(x, dt=dt)
    torch.testing.assert_close(y, small()(x, dt=dt)[0][:, -1])


def test_wrong_parts_and_calls_are_refused():
    model, (x, _) = small(), videos()
    with pytest.raises(ArgumentError, match="convolution 2, whose kernel is 3"):
        ConvolutionalSequenceModel(None, (3, 18, 40))
    with pytest.raises(ArgumentError, match=r"image_size must hold 3 integers, got \(9, 8\)"):
        ConvolutionalSequenceModel(None, (9, 8))
    with pytest.raises(ArgumentError, match=r"dense\[0\] must be at least 1, got 0"):
        ConvolutionalSequenceModel(None, SIZE, layers=(), dense=(0,))
    with pytest.raises(ArgumentError, match="dense is empty"):
        ConvolutionalSequenceModel(None, SIZE, layers=(), dense=())
    with pytest.raises(ArgumentError, match="rnn takes 3 features, but the head has 5"):
        ConvolutionalSequenceModel(tauflow.CfC(3, 4), SIZE, **SMALL)
    with pytest.raises(ArgumentError, match=r"tauflow\.RNN\(cell\)"):
        ConvolutionalSequenceModel(tauflow.CfC(5, 4).cell, SIZE, **SMALL)
    with pytest.raises(ShapeError, match=r"expected \(B, T, 2, 9, 8\)"):
        model(x.transpose(-1, -2))
    with pytest.raises(DtypeError, match=r"x\.to\(torch\.float64\)"):
        model(x.float())
    with pytest.raises(DtypeError, match=r"Convert it with x\.float\(\)"):
        model(x.to(torch.uint8))
    with pytest.raises(ArgumentError, match="Mark missing images in mask"):
        model(x, observed=torch.ones(B, T, 144, dtype=torch.bool))
    with pytest.raises(ArgumentError, match="carries no state of fixed size"):
        small(None)(x, torch.zeros(B, 0))
