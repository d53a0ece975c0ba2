"""IMDB: tell from the words of a review whether the film was liked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least, check_bool, check_one_of, check_within
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files
from tauflow_papers.datasets.cache import Arrays, load_or_parse
from tauflow_papers.datasets.splits import stratified_split

from .imdb_reviews import (
    FILE_SPLITS,
    PER_CLASS,
    encode_words,
    rank_words,
    read_reviews,
    split_words,
)

VOCABULARY, STEPS = 20_000, 200
PAD, START, UNKNOWN = 0, 1, 2
FIRST_WORD = 4  # the id of the most frequent word
KEEP_OPTIONS = ("last", "first")
HOLDOUT_SEED = 0
_VERSION = 1

IMDB = DatasetCard(
    name="imdb",
    title="IMDB reviews",
    task="classify",
    input_size=1,
    target_size=2,
    time_unit="word",
    sizes=(2 * PER_CLASS, 0, 2 * PER_CLASS),
    source=(
        "Maas et al. 2011, Learning word vectors for sentiment analysis; protocol of Hasani, "
        "Lechner et al. 2022, Closed-form continuous-time neural networks, Table 6"
    ),
    licence="none stated; cite Maas et al. 2011",
    split="official training and test reviews; no validation part",
    loss="cross_entropy",
    metric="accuracy",
    targets=("disliked", "liked"),
    per_step=False,
    folder="imdb",
    base_url="https://ai.stanford.edu/~amaas/data/sentiment/",
    files={"aclImdb_v1.tar.gz": "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"},
    repacked={
        "imdb_train.csv.xz": "5ad049ec5da93a46c8486a991cf92632ac4d46bb11e3443a4521c382f28d3ee8",
        "imdb_test.csv.xz": "48bebff9853a4ee3a1524a5f16552ee9bb386a2ec8f351110e642899a7fdd8db",
    },
    vocabulary=VOCABULARY,
    notes=(
        "x holds token ids as in Keras: 0 padding, 1 the start, 2 a word outside the vocabulary, "
        "from 4 on words by their frequency in the training reviews. The ranks are our own, from "
        "the texts (88,582 words, ties by first appearance); those that Keras ships differ in "
        "ties and a few tokens.",
        "The last 200 tokens are kept, so that a longer review loses its start; shorter ones are "
        "padded in front, and as published the padding is not masked (masked=True does). A "
        "comment in the published script says that the first 200 are kept: keep='first'.",
        "The published model has 10 outputs for 2 classes; here there are 2, unless logits=10 asks "
        "for eight that stand for no class.",
        "There is no dt: every time step is one word. The published CfC-mmRNN gets a time step "
        "of 0, as the option gap=0 sets it.",
        "Numbers quoted in the paper for other models come from vocabularies of 25,000 words, up "
        "to 2,789 tokens, or pretrained vectors, and cannot be compared.",
        "The protocol has no validation part; holdout=0.1 takes a tenth of each class.",
        "123 test reviews are, word for word, training reviews too.",
    ),
)


def load_imdb(
    root: str | Path | None = None,
    *,
    download: bool = True,
    vocabulary: int = VOCABULARY,
    steps: int = STEPS,
    keep: str = "last",
    masked: bool = False,
    gap: float | None = None,
    logits: int = IMDB.target_size,
    holdout: float = 0.0,
) -> TaskData:
    """Load the reviews as token ids, (B, T, 1) of integers.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        vocabulary: number of ids; rarer words become one id.
        steps: tokens per review.
        keep: which tokens of a longer review, ``"last"`` or ``"first"``.
        masked: whether the mask is false at padding; else no mask is returned.
        gap: dt of every word; by default no dt is returned, which means 1.
        logits: outputs that a model has to give; those after the second stand for no class.
        holdout: fraction of the training part that validates.

    Raises:
        ArgumentError, UnknownNameError: an option has no such value.
        DataError: a file does not hold what it should.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_at_least(FIRST_WORD + 1, vocabulary=vocabulary)
    check_at_least(1, steps=steps)
    check_one_of(KEEP_OPTIONS, keep=keep)
    check_bool(masked=masked)
    check_at_least(IMDB.target_size, logits=logits)
    if gap is not None:
        check_within(0.0, 1e6, gap=gap)
    check_within(0.0, 0.5, holdout=holdout)
    paths = fetch_files(IMDB, root, download=download)
    coded = load_or_parse(IMDB, paths, _VERSION, lambda: read_word_ranks(paths))
    parts = {}
    for split in FILE_SPLITS:
        tokens = to_tokens(coded[f"{split}_ranks"], coded[f"{split}_counts"], vocabulary)
        ids, mask = pad_or_truncate(*tokens, steps, keep)
        parts[split] = SequenceBatch(
            x=torch.from_numpy(ids[..., None]),
            y=torch.from_numpy(coded[f"{split}_labels"]),
            dt=None if gap is None else torch.full(mask.shape, float(gap)),
            mask=torch.from_numpy(mask) if masked else None,
        )
    train, valid = parts["train"], None
    if holdout:
        chosen, held = stratified_split(coded["train_labels"], 1 - holdout, HOLDOUT_SEED)
        train, valid = train[torch.from_numpy(chosen)], train[torch.from_numpy(held)]
    trained = int((1 - holdout) * 2 * PER_CLASS)
    sizes = (trained, 2 * PER_CLASS - trained, 2 * PER_CLASS)
    spare = tuple(f"no class {i}" for i in range(IMDB.target_size, logits))
    card = replace(
        IMDB,
        vocabulary=vocabulary,
        sizes=sizes,
        target_size=logits,
        targets=(*IMDB.targets, *spare),
    )
    return TaskData(card, train, valid, parts["test"])


def read_word_ranks(paths: list[Path]) -> Arrays:
    """Return ranks of words, words per review and labels of both parts."""
    reviews = read_reviews(paths)
    words = {
        split: [split_words(review.text) for review in reviews[split]] for split in FILE_SPLITS
    }
    ranks = rank_words(words["train"])
    arrays: Arrays = {}
    for split in FILE_SPLITS:
        arrays[f"{split}_ranks"], arrays[f"{split}_counts"] = encode_words(words[split], ranks)
        arrays[f"{split}_labels"] = np.array([r.label for r in reviews[split]], np.int64)
    return arrays


def to_tokens(
    ranks: NDArray[np.int32], counts: NDArray[np.int64], vocabulary: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return token ids with a start in front of every text, and tokens per text.

    Args:
        ranks: of all words, 0 for unknown ones, text after text, (W,).
        counts: words per text, (N,).
        vocabulary: number of ids.
    """
    ids = ranks + np.int32(FIRST_WORD - 1)
    ids[(ranks == 0) | (ids >= vocabulary)] = UNKNOWN
    starts = np.cumsum(counts) - counts
    return np.insert(ids, starts, START), counts + 1


def pad_or_truncate(
    tokens: NDArray[np.int32], counts: NDArray[np.int64], steps: int, keep: str
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Cut texts off, or pad them in front.

    Args:
        tokens: text after text, (W,).
        counts: tokens per text, (N,).
        steps: length T.
        keep: ``"last"`` or ``"first"`` tokens of a longer text.

    Returns:
        Ids (N, T), and where they are not padding, (N, T).
    """
    ends = np.cumsum(counts)
    lengths = np.minimum(counts, steps)
    stop = ends if keep == "last" else ends - counts + lengths
    place = np.arange(steps) - steps  # counted from the end
    mask = place >= -lengths[:, None]
    ids = np.full(mask.shape, PAD, np.int32)
    ids[mask] = tokens[(stop[:, None] + place)[mask]]
    return ids, mask
