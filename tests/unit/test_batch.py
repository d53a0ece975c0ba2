import numpy as np
import pytest
import torch

from tauflow import SequenceBatch
from tauflow.errors import DtypeError, ShapeError


def batch():
    return SequenceBatch(
        x=torch.arange(24.0).reshape(4, 3, 2),
        y=torch.arange(4.0),
        dt=torch.arange(12.0).reshape(4, 3),
        mask=torch.ones(4, 3, dtype=torch.bool),
    )


def test_selecting_keeps_what_belongs_together():
    chosen = batch()[torch.tensor([3, 0])]
    assert len(chosen) == 2
    assert chosen.x[0, 0].tolist() == [18.0, 19.0]
    assert chosen.y.tolist() == [3.0, 0.0]
    assert chosen.dt[1].tolist() == [0.0, 1.0, 2.0]
    assert chosen.observed is None
    assert batch()[1:3].y.tolist() == [1.0, 2.0]


def test_moving_moves_every_tensor():
    moved = batch().to("meta")
    assert {t.device.type for t in (moved.x, moved.y, moved.dt, moved.mask)} == {"meta"}
    assert moved.y_mask is None
    precise = batch().to(dtype=torch.float64)
    assert {t.dtype for t in (precise.x, precise.y, precise.dt)} == {torch.float64}
    assert precise.mask.dtype is torch.bool


@pytest.mark.parametrize(
    ("field", "shape"),
    [("y", (3,)), ("dt", (4, 3, 7)), ("mask", (3, 4)), ("observed", (4, 3)), ("y_mask", (4, 2))],
)
def test_parts_that_do_not_fit_are_refused(field, shape):
    value = torch.zeros(shape) if field in ("y", "dt") else torch.zeros(shape).bool()
    parts = {"x": torch.zeros(4, 3, 2), "y": torch.zeros(4), field: value}
    with pytest.raises(ShapeError, match=f"{field} has shape"):
        SequenceBatch(**parts)


@pytest.mark.parametrize("field", ["mask", "observed", "y_mask"])
def test_a_mask_of_numbers_is_refused(field):
    # Used as an index it would select sequence 1 over and over.
    ones = torch.ones(4, 3, 2) if field == "observed" else torch.ones(4, 3)
    with pytest.raises(DtypeError, match=rf"{field} has dtype torch.int64.*{field}.bool\(\)"):
        SequenceBatch(x=torch.zeros(4, 3, 2), y=torch.zeros(4), **{field: ones.long()})


def test_lists_are_refused():
    with pytest.raises(DtypeError, match=r"y must be a torch.Tensor, got list"):
        SequenceBatch(x=torch.zeros(1, 3, 2), y=[1.0])


@pytest.mark.parametrize(
    ("index", "chosen"),
    [
        (2, [2]),
        (-1, [3]),
        (np.int64(1), [1]),
        (torch.tensor(1), [1]),
        ([3, 0, 0], [3, 0, 0]),
        ([], []),
        (np.array([True, False, False, True]), [0, 3]),
        (torch.tensor([False, True, False, False]), [1]),
    ],
)
def test_sequences_are_selected_by_what_numpy_takes(index, chosen):
    found = batch()[index]
    assert found.y.tolist() == chosen
    assert torch.equal(
        found.x, torch.stack([batch().x[i] for i in chosen] or [batch().x[0]])[: len(chosen)]
    )


def test_single_sequences_end():
    assert [one.y.tolist() for one in batch()] == [[0.0], [1.0], [2.0], [3.0]]
    with pytest.raises(IndexError, match="there is no sequence 4 among 4"):
        batch()[4]


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2, 5), (4, 3, 1, 2, 2, 2)])
def test_x_needs_features_or_images(shape):
    with pytest.raises(ShapeError, match=r"x has shape .*, expected \(B, T, I\), or \(B, T, C, H"):
        SequenceBatch(x=torch.zeros(shape), y=torch.zeros(4))


def test_images_are_selected_and_moved_like_features():
    images = torch.arange(4 * 3 * 2 * 5 * 6.0).reshape(4, 3, 2, 5, 6)
    whole = SequenceBatch(x=images, y=torch.zeros(4, 3, 1), dt=torch.ones(4, 3))
    assert len(whole) == 4
    chosen = whole[torch.tensor([2])]
    assert torch.equal(chosen.x, images[2:3])
    assert chosen.to("meta").x.shape == (1, 3, 2, 5, 6)


def test_targets_are_masked_by_step_or_by_value():
    parts = {"x": torch.zeros(4, 3, 2), "y": torch.zeros(4, 3, 5)}
    for shape in ((4, 3), (4, 3, 5)):
        known = torch.ones(shape, dtype=torch.bool)
        assert SequenceBatch(**parts, y_mask=known).y_mask.shape == shape
    with pytest.raises(ShapeError, match=r"y_mask has shape \(4, 3, 2\), expected \(4, 3, 5\)"):
        SequenceBatch(**parts, y_mask=torch.ones(4, 3, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("numbers", "sizes"), [(1, [1] * 4), (12, [2, 2]), (18, [3, 1]), (99, [4])]
)
def test_pieces_are_slices_of_few_numbers(monkeypatch, numbers, sizes):
    monkeypatch.setattr("tauflow.batch._NUMBERS", numbers)
    whole = batch()
    found = list(whole.pieces())
    assert [len(piece) for _, piece in found] == sizes
    assert [first for first, _ in found] == [sum(sizes[:n]) for n in range(len(sizes))]
    assert all(piece.x.data_ptr() == whole.x[first].data_ptr() for first, piece in found)
    assert not list(whole[:0].pieces())
    assert whole.tensors().keys() == {"x", "y", "dt", "mask"}
