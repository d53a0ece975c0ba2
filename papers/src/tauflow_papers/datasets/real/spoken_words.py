"""Read the clips of the Speech Commands archive, one spoken word each."""

import io
import re
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow.errors import DataError

from .archives import iter_tar_members

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
RATE = 16_000
LISTS = {"validation_list.txt": "valid", "testing_list.txt": "test"}
_MEMBER = re.compile(
    rf"(?:\./)?(?:(?P<list>{'|'.join(map(re.escape, LISTS))})"
    rf"|(?P<word>{'|'.join(WORDS)})/(?P<clip>[^/]+\.wav))"
)
_ADVICE = "Get the file again."


class Clip(NamedTuple):
    """A recording of a word.

    Args:
        word: index into :data:`WORDS`.
        name: its file, below the folder of the word.
        sound: samples, (S,), from -1 to 1.
    """

    word: int
    name: str
    sound: NDArray[np.float64]


def read_clips(archive: Path) -> Iterator[Clip | tuple[str, set[str]]]:
    """Yield the clips of the ten words, and the official lists, in the archive's order.

    A list is the pair of its part, ``"valid"`` or ``"test"``, and the ``word/file`` names in it.

    Args:
        archive: a tar file in any compression.

    Raises:
        DataError: the archive is damaged, or a clip is not mono sound of 16 bits at 16 kHz.
    """
    for name, content in iter_tar_members(archive, _MEMBER):
        if name["list"]:
            yield LISTS[name["list"]], set(content.decode("utf-8").split())
        else:
            sound = read_sound(content, f"{archive}, {name[0]}")
            yield Clip(WORDS.index(name["word"]), name["clip"], sound)


def read_sound(data: bytes, where: str) -> NDArray[np.float64]:
    """Return the samples of a clip, divided by 2^15.

    Args:
        data: a WAV file.
        where: what to call it in messages.

    Raises:
        DataError: it is not one of mono sound of 16 bits at 16 kHz.
    """
    try:
        with wave.open(io.BytesIO(data)) as clip:
            form = clip.getnchannels(), 8 * clip.getsampwidth(), clip.getframerate()
            frames = clip.readframes(clip.getnframes())
            announced = clip.getnframes()
    except (wave.Error, EOFError) as error:
        raise DataError(f"{where} is not a WAV file ({error}). {_ADVICE}") from error
    if form != (1, 16, RATE):
        raise DataError(
            f"{where} has {format_count(form[0], 'channel')} of {format_count(form[1], 'bit')} at "
            f"{form[2]} Hz, expected 1 of 16 "
            f"bits at {RATE} Hz. {_ADVICE}"
        )
    if len(frames) != 2 * announced:
        raise DataError(
            f"{where} announces {format_count(announced, 'sample')}, but holds "
            f"{len(frames) // 2}. {_ADVICE}"
        )
    return np.frombuffer(frames, "<i2") / 2**15
