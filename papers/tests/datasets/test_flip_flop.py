import numpy as np
import pytest
import torch

from tauflow.data.registry import load_task
from tauflow.errors import ArgumentError, UnknownNameError

TWO = {"bits": 2, "amplitude": "variable"}


def load(**options):
    return load_task("flip-flop", **options)


def pulse_heights(x):
    """Return the inputs, (N, n), in every bin in which some channel has a pulse."""
    return x[(x != 0).any(-1)]


def test_default_is_the_fixed_three_bit_task():
    data = load()
    assert data.sizes == (500, 100, 100)
    assert data.train.x.shape == data.train.y.shape == (500, 100, 3)
    assert data.train.dt is None
    assert data.train.x.unique().tolist() == [-1, 0, 1]
    assert data.train.y.unique().tolist() == [-1, 1]
    assert data.card.targets == ("channel 1", "channel 2", "channel 3")


@pytest.mark.parametrize("options", [{}, {**TWO, "shape": "square"}, {**TWO, "shape": "ring"}])
@pytest.mark.parametrize("width", [2, 3])
def test_targets_hold_the_last_pulse_from_its_first_bin(options, width):
    batch = load(pulse_width=width, sizes=(40, 0, 1), **options).train
    start = 0.0 if options else 1.0
    for x, y in zip(batch.x, batch.y, strict=True):
        held = torch.full((x.shape[1],), start)
        for seen, wanted in zip(x, y, strict=True):
            held = torch.where(seen != 0, seen, held)
            assert torch.equal(wanted, held)


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_a_pulse_lasts_as_many_bins_as_asked(width):
    # A mean of 0.3 makes overlaps rare; the shortest run of one height is a pulse alone.
    x = load(bits=1, pulses=0.3, pulse_width=width, sizes=(200, 0, 1)).train.x[..., 0]
    lengths = (x != 0).sum(1)
    alone = lengths[lengths > 0].min()
    assert alone == width
    assert (lengths == width).sum() > 20


@pytest.mark.slow
def test_number_of_pulses_is_poisson():
    # Pulses one bin wide at separate bins can be counted.
    options = {"pulse_width": 1, "replacement": False, "sizes": (2000, 0, 1)}
    for extra, mean in (({}, 12.0), ({**TWO, "shape": "disk"}, 6.0), ({**TWO}, 12.0)):
        count = (load(**options, **extra).train.x != 0).any(-1).sum(1).double()
        assert count.mean().item() == pytest.approx(mean, abs=4 * (mean / 2000) ** 0.5)
        assert count.var().item() == pytest.approx(mean, rel=0.15)


def test_heights_of_each_shape():
    def heights(**options):
        return pulse_heights(load(**TWO, pulse_width=1, **options).train.x).double()

    square = heights(shape="square")
    assert square.abs().max() <= 1
    assert ((square == 0).sum(1) == 1).float().mean() > 0.9  # one channel at a time
    wide = heights(shape="rectangle").abs().max(0).values
    assert wide[0] == pytest.approx(2, abs=0.01)
    assert wide[1] == pytest.approx(1, abs=0.01)
    ring = heights(shape="ring")
    torch.testing.assert_close(ring.norm(dim=1), torch.full((len(ring),), 2.0).double())
    assert ring.mean(0).abs().max() < 0.1
    radius = heights(shape="disk").norm(dim=1)
    assert 1 < radius.min() < radius.max() < 2
    # Uniform on the area: the mean of r^2 is (1 + 4) / 2.
    assert radius.square().mean().item() == pytest.approx(2.5, abs=0.06)
    small = heights(shape="disk", radii=(0.0, 0.5)).norm(dim=1)
    assert small.max() < 0.5


def test_initial_targets():
    silent = {"pulses": 0.0, "sizes": (1, 0, 1)}
    assert load(**silent).train.y[0].unique().tolist() == [1]
    assert load(**silent, **TWO).train.y[0].unique().tolist() == [0]
    chosen = load(**silent, **TWO, shape="ring", initial=(2.0, 0.0)).train.y[0]
    assert chosen[-1].tolist() == [2, 0]


def test_starts_without_replacement_differ():
    x = load(bits=1, pulses=60.0, pulse_width=1, replacement=False, sizes=(5, 0, 1)).train.x
    again = load(bits=1, pulses=60.0, pulse_width=1, sizes=(5, 0, 1)).train.x
    assert (x != 0).sum() > (again != 0).sum()


def test_seeds_and_parts():
    data, same, other = load(), load(), load(seed=1)
    assert torch.equal(data.test.x, same.test.x)
    assert not torch.equal(data.test.x, other.test.x)
    assert not torch.equal(data.valid.x, data.test.x)
    small = load(sizes=(3, 0, 100))
    assert small.valid is None
    assert torch.equal(small.train.x, data.train.x[:3])
    assert torch.equal(small.test.x, data.test.x)


def test_card_follows_the_options():
    card = load(**TWO, shape="ring", sizes=(2, 1, 1)).card
    assert (card.input_size, card.target_size, card.sizes) == (2, 2, (2, 1, 1))
    assert card.title == "Flip-flop, 2 bits, ring"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": "ring"}, "amplitude='fixed'. Give amplitude='variable'"),
        ({**TWO, "radii": (0.5, 1.0)}, "radii belong to shape='disk'"),
        ({**TWO, "shape": "disk", "radii": (2.0, 1.0)}, "0 <= inner < outer"),
        ({**TWO, "shape": "disk", "radii": 1.0}, "radii must be two numbers"),
        ({**TWO, "shape": "disk", "bits": 9}, "at most 8 bits"),
        ({"initial": (1.0,)}, "initial must be 3 numbers"),
        ({"pulse_width": 101}, "does not fit into a trial of 100"),
        ({"bits": 0}, "bits must be at least 1"),
        ({"replacement": 1}, "replacement must be True or False"),
        ({"sizes": (5, 5)}, "sizes must be three numbers"),
        ({"seed": 2**32}, "seed must be less than"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        load(**options)


def test_unknown_shape_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'ring'"):
        load(**TWO, shape="rings")


def test_values_are_float32():
    data = load(sizes=(2, 1, 1))
    assert {part.x.dtype for part in (data.train, data.valid, data.test)} == {torch.float32}
    assert np.isfinite(data.train.y.numpy()).all()
