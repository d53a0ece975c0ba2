"""Bit-stream XOR: the parity of 2 to 31 random bits, given one by one or as changes only."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of, check_within
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.errors import ArgumentError

PAD = 32
TRAIN_SIZE, TRAIN_SEED = 100_000, 1234984
TEST_SIZE, TEST_SEED = 10_000, 48736
TEST_OPTIONS, VALID_OPTIONS = ("published", "unseen"), ("held", "unseen")

_SHARED_NOTES = (
    "dt is the number of bits since the previous entry, divided by 32; before the first entry it "
    "counts from the start of the stream. Padding has mask false, and 0 in x and dt.",
    "The papers have no validation part; the option holdout=0.1 takes the last tenth of the "
    "training sequences.",
    "The papers speak of blocks of 32 bits; the authors' generator, followed here, draws 2 to 31.",
    "Answering 0 always is right for 49.11 % of the test part.",
    "Leak: 36.05 % of the test streams are training streams too, of 19 bits or fewer: lengths are "
    "drawn evenly, and there are only 2^n streams of n bits. test='unseen' leaves them out; 6395 "
    "remain, of 9 to 31 bits. A validation part of holdout has as many, 717 of 2000 streams, which "
    "valid='unseen' leaves out.",
)

XOR_DENSE = DatasetCard(
    name="xor-dense",
    title="Bit-stream XOR, dense",
    task="binary",
    input_size=1,
    target_size=1,
    time_unit="32 bits",
    sizes=(TRAIN_SIZE, 0, TEST_SIZE),
    source=(
        "generated; Lechner and Hasani 2020, Learning Long-Term Dependencies in "
        "Irregularly-Sampled Time Series"
    ),
    licence="none needed (generated)",
    split="random streams with the authors' seeds: 1234984 for training, 48736 for test",
    loss="bce",
    metric="binary_accuracy",
    per_step=False,
    notes=(
        "One entry per bit.",
        "The authors' cache has one file name for both encodings, so that a dense run after an "
        "event run trains on event data; here the two cannot be mixed up.",
        *_SHARED_NOTES,
    ),
)

XOR_EVENT = replace(
    XOR_DENSE,
    name="xor-event",
    title="Bit-stream XOR, events",
    notes=(
        "One entry where a bit differs from the one before it (always at the first), and one at "
        "the end if the last bit did not differ. A run of equal bits is thus spread over two "
        "entries: 1, 1, 1, 1 gives (1, after 1 bit) and (1, after 3 bits).",
        *_SHARED_NOTES,
    ),
)


Streams = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Bits, (B, 32), 0 after the end; and lengths, (B,)."""


@dataclass(frozen=True)
class EncodedStreams:
    """Sequences of entries, padded at the end.

    Args:
        values: bits, (B, 32), 0 at padding.
        elapsed: bits since the previous entry, (B, 32), 0 at padding.
        mask: false at padding, (B, 32).
        parity: the label, (B,).
    """

    values: NDArray[np.int64]
    elapsed: NDArray[np.int64]
    mask: NDArray[np.bool_]
    parity: NDArray[np.int64]


def load_xor_dense(
    root: str | Path | None = None,
    *,
    download: bool = True,
    holdout: float = 0.0,
    test: str = "published",
    valid: str = "held",
) -> TaskData:
    """Generate XOR with one entry per bit.

    Args:
        root: not used; nothing is stored.
        download: not used; nothing is downloaded.
        holdout: fraction of the training part, taken from its end, that becomes validation data.
        test: ``"published"``, or ``"unseen"`` for the streams of it that are not among the training
            streams, those held out included.
        valid: ``"held"`` for what was held out, or ``"unseen"`` for the streams of it that are not
            among those left for training.

    Raises:
        ArgumentError: ``holdout`` is not between 0 and 0.5, or holds out nothing of which
            ``valid="unseen"`` could choose.
        UnknownNameError: no such test or validation part.
    """
    return _load_task(XOR_DENSE, holdout, test, valid)


def load_xor_event(
    root: str | Path | None = None,
    *,
    download: bool = True,
    holdout: float = 0.0,
    test: str = "published",
    valid: str = "held",
) -> TaskData:
    """Generate XOR with one entry per change; for the arguments see :func:`load_xor_dense`."""
    return _load_task(XOR_EVENT, holdout, test, valid)


def sample_streams(size: int, seed: int) -> Streams:
    """Draw random bit streams in the order of the authors' generator: a length, then its bits.

    Args:
        size: number of streams B.
        seed: of the generator.

    Returns:
        Bits, (B, 32), 0 after the end; and lengths, (B,), 2 to 31.
    """
    rng = np.random.RandomState(seed)
    bits = np.zeros((size, PAD), dtype=np.int64)
    lengths = np.zeros(size, dtype=np.int64)
    for stream in range(size):  # a length decides where the next stream's numbers begin
        lengths[stream] = length = rng.randint(2, PAD)
        bits[stream, :length] = rng.randint(0, 2, size=length)
    return bits, lengths


def encode_dense(bits: NDArray[np.int64], lengths: NDArray[np.int64]) -> EncodedStreams:
    """Make every bit an entry."""
    mask = np.arange(PAD) < lengths[:, None]
    return EncodedStreams(bits, elapsed=mask.astype(np.int64), mask=mask, parity=bits.sum(1) % 2)


def encode_events(bits: NDArray[np.int64], lengths: NDArray[np.int64]) -> EncodedStreams:
    """Make entries of the bits that differ from the one before, and of the last bit."""
    position = np.arange(PAD)
    differs = np.diff(bits, axis=1, prepend=-1) != 0
    chosen = (differs & (position < lengths[:, None])) | (position == lengths[:, None] - 1)
    # Everything chosen, stream by stream, as one long list; slots say where it goes.
    streams, positions = np.nonzero(chosen)
    slots = (chosen.cumsum(1) - 1)[chosen]
    previous = np.where(slots == 0, -1, np.roll(positions, 1))
    values, elapsed = np.zeros_like(bits), np.zeros_like(bits)
    values[streams, slots] = bits[chosen]
    elapsed[streams, slots] = positions - previous
    mask = position < chosen.sum(1)[:, None]
    return EncodedStreams(values, elapsed, mask, parity=bits.sum(1) % 2)


def exclude_streams(streams: Streams, excluded: Streams) -> Streams:
    """Return the streams that are not among the training streams, in their order."""
    new = ~np.isin(_to_unique_codes(*streams), _to_unique_codes(*excluded))
    return streams[0][new], streams[1][new]


def _to_unique_codes(bits: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for every stream, different for different streams."""
    # A 1 behind the last bit keeps apart what differs in trailing zeros only.
    codes: NDArray[np.int64] = bits @ (1 << np.arange(PAD, dtype=np.int64)) + (1 << lengths)
    return codes


def _load_task(card: DatasetCard, holdout: float, test: str, valid: str) -> TaskData:
    left = TRAIN_SIZE - int(check_within(0.0, 0.5, holdout=holdout) * TRAIN_SIZE)
    check_one_of(TEST_OPTIONS, test=test)
    check_one_of(VALID_OPTIONS, valid=valid)
    if valid == "unseen" and left == TRAIN_SIZE:
        raise ArgumentError(
            f"valid='unseen' chooses among streams that are held out, and holdout={holdout!r} "
            "holds out none. Give a holdout such as 0.02, or leave valid out."
        )
    bits, lengths = drawn = sample_streams(TRAIN_SIZE, TRAIN_SEED)
    trained, held = (bits[:left], lengths[:left]), (bits[left:], lengths[left:])
    tested = sample_streams(TEST_SIZE, TEST_SEED)
    if test == "unseen":
        tested = exclude_streams(tested, drawn)
    if valid == "unseen":
        held = exclude_streams(held, trained)
    return TaskData(
        replace(card, sizes=(left, len(held[0]), len(tested[0]))),
        train=_make_split(card, trained),
        valid=_make_split(card, held) if left < TRAIN_SIZE else None,
        test=_make_split(card, tested),
    )


def _make_split(card: DatasetCard, streams: Streams) -> SequenceBatch:
    encode = encode_dense if card.name == XOR_DENSE.name else encode_events
    entries = encode(*streams)
    return SequenceBatch(
        x=torch.from_numpy(entries.values[..., None].astype(np.float32)),
        y=torch.from_numpy(entries.parity[:, None].astype(np.float32)),
        dt=torch.from_numpy(entries.elapsed.astype(np.float32) / PAD),
        mask=torch.from_numpy(entries.mask),
    )
