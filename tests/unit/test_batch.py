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
    for precise in (batch().to(dtype=torch.float64), batch().to(torch.float64)):
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
    selected = batch()[index]
    assert selected.y.tolist() == chosen
    assert torch.equal(
        selected.x, torch.stack([batch().x[i] for i in chosen] or [batch().x[0]])[: len(chosen)]
    )


def test_single_sequences_end():
    assert [sequence.y.tolist() for sequence in batch()] == [[0.0], [1.0], [2.0], [3.0]]
    with pytest.raises(IndexError, match="there is no sequence 4 among 4"):
        batch()[4]


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2, 5), (4, 3, 1, 2, 2, 2)])
def test_x_needs_features_or_images(shape):
    with pytest.raises(ShapeError, match=r"x has shape .*, expected \(B, T, I\), or \(B, T, C, H"):
        SequenceBatch(x=torch.zeros(shape), y=torch.zeros(4))


def test_images_are_selected_and_moved_like_features():
    images = torch.arange(4 * 3 * 2 * 5 * 6.0).reshape(4, 3, 2, 5, 6)
    images_batch = SequenceBatch(x=images, y=torch.zeros(4, 3, 1), dt=torch.ones(4, 3))
    assert len(images_batch) == 4
    chosen = images_batch[torch.tensor([2])]
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
    monkeypatch.setattr("tauflow.batch._MAX_ELEMENTS", numbers)
    full = batch()
    slices = list(full.iter_slices())
    assert [len(piece) for _, piece in slices] == sizes
    assert [first for first, _ in slices] == [sum(sizes[:n]) for n in range(len(sizes))]
    assert all(piece.x.data_ptr() == full.x[first].data_ptr() for first, piece in slices)
    assert not list(full[:0].iter_slices())
    assert full.tensors().keys() == {"x", "y", "dt", "mask"}


def padded(lengths, steps=6, **changes):
    mask = torch.arange(steps) < torch.tensor(lengths)[:, None]
    size = len(lengths)
    fields = {"x": torch.rand(size, steps, 2), "y": torch.zeros(size), "mask": mask, **changes}
    return SequenceBatch(**fields)


def test_trimming_leaves_out_what_is_padding_everywhere():
    full = padded([2, 4, 0], dt=torch.rand(3, 6), observed=torch.ones(3, 6, 2).bool())
    cut = full.trim_padding()
    assert cut.x.shape == (3, 4, 2)
    assert cut.lengths.tolist() == [2, 4, 0]
    for name in ("x", "dt", "mask", "observed"):
        torch.testing.assert_close(getattr(cut, name), getattr(full, name)[:, :4])
    assert cut.x.data_ptr() == full.x.data_ptr()
    assert cut.y is full.y


def test_trimming_keeps_holes_and_one_step_at_least():
    holes = padded([6, 6])
    holes.mask[:, 1:5] = False
    assert holes.trim_padding() is holes
    assert padded([0, 0]).trim_padding().x.shape == (2, 1, 2)
    bare = SequenceBatch(torch.rand(2, 6, 2), torch.zeros(2))
    assert bare.trim_padding() is bare


def test_trimming_keeps_steps_that_have_a_target():
    targets = torch.zeros(2, 6).bool()
    targets[1, 4] = True
    assert padded([2, 3], y=torch.rand(2, 6, 1), y_mask=targets).trim_padding().y.shape == (2, 5, 1)
    entries = targets[..., None].expand(2, 6, 3)
    assert padded([2, 3], y=torch.rand(2, 6, 3), y_mask=entries).trim_padding().y.shape == (2, 5, 3)


@pytest.mark.parametrize(
    ("y", "shape"),
    [
        (torch.zeros(2, 6).int(), (2, 3)),  # classes, one per step
        (torch.zeros(2, 6).bool(), (2, 6)),
        (torch.zeros(2, 6), (2, 6)),  # real numbers: six per sequence, or one per step?
        (torch.zeros(2, 5), (2, 5)),
        (torch.zeros(2, 6, 4), (2, 3, 4)),
        (torch.zeros(2), (2,)),
    ],
)
def test_trimming_cuts_targets_per_step_only(y, shape):
    full = padded([2, 3], y=y)
    cut = full.trim_padding()
    assert cut.y.shape == shape
    assert cut.x.shape[1] == (6 if shape == (2, 6) else 3)


def test_integers_may_be_labels_of_a_sequence():
    full = padded([2, 3], y=torch.zeros(2, 6).long())
    assert full.trim_padding(has_label_sets=True) is full
    marked = padded([2, 3], y=torch.zeros(2, 6).long(), y_mask=full.mask)
    assert marked.trim_padding(has_label_sets=True).y.shape == (2, 3)
    fewer = padded([2, 3], y=torch.zeros(2, 5).long()).trim_padding(has_label_sets=True)
    assert (fewer.x.shape, fewer.y.shape) == ((2, 3, 2), (2, 5))


def test_trimming_is_nothing_where_there_is_nothing_to_cut():
    targets = torch.ones(2, 6).bool()
    for full in (padded([2, 3], y_mask=targets)[0:0], padded([0, 0], steps=0)):
        assert full.trim_padding() is full
    values = torch.ones(2, 4, 1).bool()  # of targets that are not one per step
    full = padded([2, 3], y=torch.rand(2, 4, 1), y_mask=values)
    assert full.trim_padding() is full
