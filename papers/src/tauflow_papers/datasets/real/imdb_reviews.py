"""Read the movie reviews of Maas et al. 2011, as published or repacked, and code their words."""

import csv
import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow.errors import DataError

from .archives import iter_tar_members

FILE_SPLITS = ("train", "test")
PER_CLASS = 12_500
_HEADER = ["id", "rating", "label", "text"]
_MEMBER = re.compile(r"(?:\./)?aclImdb/(train|test)/(neg|pos)/(\d+)_(\d+)\.txt")
_SENTIMENTS = ("neg", "pos")
_BLANKS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))
_ADVICE = "Get the file again."


class Review(NamedTuple):
    """A review.

    Args:
        label: 1 if the film was liked, else 0.
        number: its number among the reviews of its part and label.
        text: what was written.
    """

    label: int
    number: int
    text: str


def read_reviews(paths: Iterable[Path]) -> dict[str, list[Review]]:
    """Return the reviews of both parts, those that dislike first, each half by number.

    Args:
        paths: the published archive, or a compressed table for each part.

    Raises:
        DataError: a file does not hold what it should, or there are not 12500 reviews of each kind.
    """
    parts: dict[str, list[Review]] = {split: [] for split in FILE_SPLITS}
    for path in paths:
        if path.suffix == ".xz":
            split = path.name.removesuffix(".csv.xz").rpartition("_")[2]
            parts[split].extend(_read_table(path))
        else:
            for split, review in _read_archive(path):
                parts[split].append(review)
    for split, reviews in parts.items():
        counts = Counter(review.label for review in reviews)
        if counts != {0: PER_CLASS, 1: PER_CLASS}:
            raise DataError(
                f"the {split} part has {counts[0]} negative and "
                f"{format_count(counts[1], 'positive review')}, "
                f"expected {PER_CLASS} of each. Get the files again."
            )
        reviews.sort(key=lambda review: review[:2])
    return parts


def _read_table(path: Path) -> Iterator[Review]:
    try:
        with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            if header != _HEADER:
                raise DataError(
                    f"{path} begins with {','.join(header) or 'nothing'!r}, expected "
                    f"'{','.join(_HEADER)}'. {_ADVICE}"
                )
            for row, line in enumerate(lines, start=1):
                if len(line) != len(_HEADER):
                    raise DataError(
                        f"{path}, review {row} has {format_count(len(line), 'field')}, expected 4."
                    )
                number, _, label, text = line
                if not number.isdecimal():
                    raise DataError(f"{path}, review {row}: id is {number!r}, expected a number.")
                if label not in ("0", "1"):
                    raise DataError(f"{path}, review {row}: label is {label!r}, expected 0 or 1.")
                yield Review(int(label), int(number), text)
    except (lzma.LZMAError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a whole compressed table ({error}). {_ADVICE}") from error


def _read_archive(path: Path) -> Iterator[tuple[str, Review]]:
    # Left out are unlabelled reviews, addresses and word counts.
    for name, content in iter_tar_members(path, _MEMBER):
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, {name[0]} is not UTF-8 ({error}).") from error
        yield name[1], Review(_SENTIMENTS.index(name[2]), int(name[3]), text)


def split_words(text: str) -> list[str]:
    """Return the words of a text as the Keras tokenizer finds them.

    Lower case; punctuation other than the apostrophe is a blank; split at blanks.
    """
    return [word for word in text.lower().translate(_BLANKS).split(" ") if word]


def rank_words(texts: Iterable[list[str]]) -> dict[str, int]:
    """Return the rank of every word by frequency: 1 for the most frequent.

    Of equally frequent words the one that came first has the lower rank.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    ordered = sorted(counts, key=lambda word: -counts[word])  # stable
    return {word: rank for rank, word in enumerate(ordered, start=1)}


def encode_words(
    texts: Iterable[list[str]], ranks: dict[str, int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the ranks of all words, 0 for unknown ones, text after text; and words per text."""
    coded = [np.array([ranks.get(word, 0) for word in text], np.int32) for text in texts]
    return np.concatenate(coded), np.array([len(text) for text in coded], np.int64)
