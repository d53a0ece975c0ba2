import io
import lzma
import tarfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from published_data import content_hash, load_or_skip

from tauflow.data import load_task
from tauflow.errors import ArgumentError, DataError
from tauflow_papers.datasets.real import imdb, imdb_reviews
from tauflow_papers.datasets.real.imdb import pad_or_truncate, read_word_ranks, to_tokens
from tauflow_papers.datasets.real.imdb_reviews import (
    encode_words,
    rank_words,
    read_reviews,
    split_words,
)

HEADER = "id,rating,label,text\n"
REVIEWS = {
    "train": {("neg", 0): "A bad, BAD film.", ("pos", 3): "It's a good film!"},
    "test": {("neg", 1): 'They said "bad".\nSo it is', ("pos", 0): "Café<br />good"},
}


@pytest.fixture
def data():
    return load_or_skip("imdb")


@pytest.mark.thorough
def test_counts_are_the_known_ones(data):
    assert data.sizes == (25000, 0, 25000)
    for part in (data.train, data.test):
        assert part.x.shape == (25000, 200, 1)
        assert (part.x.dtype, part.y.dtype, part.mask) == (torch.int32, torch.int64, None)
        assert (part.x.min().item(), part.x.max().item()) == (0, 19999)
        assert part.y.sum() == 12500
    content = (data.train.x, data.train.y, data.test.x, data.test.y)
    assert content_hash(*content) == "dda3273f229e3d5b"


@pytest.mark.thorough
def test_a_review_is_followed_from_the_file(data):
    common = {"the": 4, "and": 5, "a": 6, "of": 7, "to": 8, "is": 9}
    text = "Story of a man who has unnatural feelings for a pig."
    ids = data.train.x[0, :, 0].tolist()
    story = ids[ids.index(1) + 1 :][: len(text.split())]
    assert [story[1], story[2], story[9]] == [common["of"], common["a"], common["a"]]
    assert all(4 < id < 20000 for id in story)


@pytest.mark.thorough
def test_options(data):
    first, masked, held, small, spare = (
        load_task("imdb", download=False, **options)
        for options in (
            {"keep": "first", "gap": 0.0},
            {"masked": True},
            {"holdout": 0.1},
            {"vocabulary": 9},
            {"logits": 4},
        )
    )
    assert (data.train.dt, first.train.dt.shape) == (None, (25000, 200))
    assert not first.train.dt.any()
    long = data.train.x[:, 0, 0] > 1
    assert (first.train.x[long, 0] == 1).all()
    assert torch.equal(first.train.x[~long], data.train.x[~long])
    assert torch.equal(masked.train.mask, data.train.x[..., 0] != 0)
    assert held.sizes == (22500, 2500, 25000)
    assert held.valid.y.sum() == 1250
    assert small.train.x.unique().tolist() == [0, 1, 2, 4, 5, 6, 7, 8]
    assert small.card.vocabulary == 9
    assert (data.card.target_size, spare.card.target_size) == (2, 4)
    assert spare.card.targets == ("disliked", "liked", "no class 2", "no class 3")
    assert torch.equal(spare.train.y, data.train.y)
    with pytest.raises(ArgumentError, match="logits must be at least 2"):
        load_task("imdb", logits=1)
    with pytest.raises(ArgumentError, match="vocabulary must be at least 5"):
        load_task("imdb", vocabulary=4)


def test_sizes_are_those_expected_and_not_those_found(data, monkeypatch):
    monkeypatch.setattr(imdb, "PER_CLASS", 12_600)
    with pytest.raises(DataError, match=r"gave \(22500, 2500, 25000\) .* \(22680, 2520, 25200\)"):
        load_task("imdb", holdout=0.1, download=False)


def test_words_are_found_as_in_keras():
    assert split_words("It's a GOOD-looking\tfilm<br />(isn't it?)") == (
        ["it's", "a", "good", "looking", "film", "br", "isn't", "it"]
    )
    ranks = rank_words([["b", "a", "c"], ["a", "c", "d"]])
    assert ranks == {"a": 1, "c": 2, "b": 3, "d": 4}
    ids, counts = encode_words([["a", "x"], [], ["d"]], ranks)
    assert (ids.tolist(), counts.tolist()) == ([1, 0, 4], [2, 0, 1])
    tokens, lengths = to_tokens(ids, counts, vocabulary=7)
    assert (tokens.tolist(), lengths.tolist()) == ([1, 4, 2, 1, 1, 2], [3, 1, 2])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=9), min_size=1), st.integers(1, 8))
def test_fitting_equals_plain_slices(texts, steps):
    tokens, counts = np.concatenate(texts).astype(np.int32), np.array([len(text) for text in texts])
    for keep, cut in (("last", slice(-steps, None)), ("first", slice(steps))):
        ids, mask = pad_or_truncate(tokens, counts, steps, keep)
        for text, row, valid in zip(texts, ids, mask, strict=True):
            piece = text[cut]
            assert row.tolist() == [0] * (steps - len(piece)) + piece
            assert valid.tolist() == [False] * (steps - len(piece)) + [True] * len(piece)


def tables(folder):
    for split, reviews in REVIEWS.items():
        rows = [
            f'{number},1,{int(kind == "pos")},"{text.replace(chr(34), chr(34) * 2)}"\n'
            for (kind, number), text in reversed(reviews.items())
        ]
        with lzma.open(folder / f"imdb_{split}.csv.xz", "wt", encoding="utf-8") as file:
            file.write(HEADER + "".join(rows))
    return sorted(folder.glob("*.xz"))


def archive(folder):
    with tarfile.open(folder / "aclImdb_v1.tar.gz", "w:gz") as packed:
        names = {
            f"{s}/{k}/{n}_7.txt": t for s, all_ in REVIEWS.items() for (k, n), t in all_.items()
        }
        for name, text in {**names, "train/unsup/0_0.txt": "?", "imdb.vocab": "the"}.items():
            member = tarfile.TarInfo("aclImdb/" + name)
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    return [folder / "aclImdb_v1.tar.gz"]


@pytest.mark.parametrize("pack", [tables, archive])
def test_both_packings_hold_the_same(monkeypatch, tmp_path, pack):
    with pytest.raises(DataError, match=r"train part has 1 negative and 1 positive .* 12500"):
        read_reviews(pack(tmp_path))
    monkeypatch.setattr(imdb_reviews, "PER_CLASS", 1)
    reviews = read_reviews(pack(tmp_path))
    assert {split: [r.text for r in reviews[split]] for split in REVIEWS} == {
        split: list(texts.values()) for split, texts in REVIEWS.items()
    }
    coded = read_word_ranks(pack(tmp_path))
    # a, bad, film twice each, in the order of their first appearance; then it's, good
    assert coded["train_ranks"].tolist() == [1, 2, 2, 3, 4, 1, 5, 3]
    assert coded["test_ranks"].tolist() == [0, 0, 2, 0, 0, 0, 0, 0, 5]
    assert coded["test_labels"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"imdb_test\.csv\.xz begins with 'nothing', expected 'id,rating,label,text'"),
        ("id,text\n", r"begins with 'id,text'"),
        (HEADER + "0,1,0\n", r"review 1 has 3 fields, expected 4"),
        (HEADER + "0,1,0,good\n1,9,good,x\n", r"review 2: label is 'good', expected 0 or 1"),
        (HEADER + "one,1,0,bad\n", r"review 1: id is 'one', expected a number"),
        (HEADER + '0,1,0,"bad\n', r"not a whole compressed table"),
    ],
)
def test_malformed_tables_are_refused(tmp_path, text, message):
    path = tmp_path / "imdb_test.csv.xz"
    path.write_bytes(lzma.compress(text.encode()))
    with pytest.raises(DataError, match=message):
        read_reviews([path])


def test_damaged_files_are_refused(tmp_path):
    for path in (*tables(tmp_path), *archive(tmp_path)):
        path.write_bytes(path.read_bytes()[:-30])
        with pytest.raises(DataError, match=r"is not a whole (compressed table|tar archive)"):
            read_reviews([path])
