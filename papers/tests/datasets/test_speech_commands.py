import hashlib
import io
import tarfile
import wave
from dataclasses import replace

import numpy as np
import pytest
import torch
from published_data import load_or_skip

from tauflow.errors import ChecksumError, DataError, UnknownNameError
from tauflow_papers.datasets.mfcc import mfcc
from tauflow_papers.datasets.real import speech_commands as loader
from tauflow_papers.datasets.real.speech_commands import (
    ARCHIVE,
    compute_features,
    load_speech_commands,
)
from tauflow_papers.datasets.real.spoken_words import WORDS, read_clips, read_sound


def wav(samples, *, channels=1, width=2, rate=16_000):
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as clip:
        clip.setparams((channels, width, rate, 0, "NONE", "not compressed"))
        clip.writeframes(np.asarray(samples, "<i2").tobytes())
    return buffer.getvalue()


def sound(seed, samples=16_000):
    return np.random.RandomState(seed).randint(-(2**15), 2**15, samples)


def pack(path, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo("./" + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Eight clips of a second by four speakers for every word, and what is not to be used."""
    files = {"README.md": b"clips", "bird/a_nohash_0.wav": b"?", "yes/short.wav": wav(sound(0, 99))}
    for number, word in enumerate(reversed(WORDS)):
        for take in range(8):
            clip = wav(sound(100 * number + take))
            files[f"{word}/speaker{take % 4}_nohash_{take // 4}.wav"] = clip
    for name, speaker in (("validation_list.txt", 1), ("testing_list.txt", 2)):
        lines = [f"{w}/speaker{speaker}_nohash_{take}.wav\n" for w in WORDS for take in (0, 1)]
        files[name] = "".join(lines).encode()
    path = pack(tmp_path / "speech_commands" / ARCHIVE, files)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    card = replace(loader.SPEECH_COMMANDS, files={ARCHIVE: digest}, sizes=(56, 12, 12))
    monkeypatch.setattr(loader, "SPEECH_COMMANDS", card)
    return tmp_path


def test_random_split(small):
    data = load_speech_commands(small)
    assert data.sizes == data.card.sizes == (56, 12, 12)
    assert data.train.x.shape == (56, 161, 21)
    assert (data.train.x.dtype, data.train.y.dtype) == (torch.float32, torch.int64)
    assert (data.test.x[..., 0] == torch.arange(161)).all()
    features = data.train.x[..., 1:].double()
    np.testing.assert_allclose(features.mean((0, 1)), 0, atol=1e-5)
    np.testing.assert_allclose(features.std((0, 1)), 1, atol=1e-3)
    everything = torch.cat([data.train.y, data.valid.y, data.test.y])
    assert everything.bincount().tolist() == [8] * 10


def test_split_by_speaker_follows_the_lists(small, monkeypatch):
    data = load_speech_commands(small, split="by_speaker")
    assert data.sizes == data.card.sizes == (40, 20, 20)
    raw = [compute_features(sound(900 + take) / 2**15) for take in (1, 5)]  # "yes" came last
    ours = data.valid.x[data.valid.y == 0][..., 1:].numpy()
    scale = (ours[0, 0] - ours[0, 1]) / (raw[0][0] - raw[0][1])
    for features, expected in zip(ours, raw, strict=True):
        change = scale * (expected - raw[0][0])
        np.testing.assert_allclose(features, ours[0, 0] + change, rtol=1e-2, atol=1e-3)
    one_less = replace(loader.SPEECH_COMMANDS, sizes=(56, 12, 13))
    monkeypatch.setattr(loader, "SPEECH_COMMANDS", one_less)
    with pytest.raises(DataError, match="has 80 clips of one second, expected 81"):
        load_speech_commands(small, split="by_speaker")
    with pytest.raises(UnknownNameError, match="split='speaker' is unknown"):
        load_speech_commands(small, split="speaker")


def test_second_load_does_not_read_the_archive(small, monkeypatch):
    first = load_speech_commands(small)
    monkeypatch.setattr(loader, "read_clips", None)
    assert torch.equal(load_speech_commands(small).test.x, first.test.x)
    archive = small / "speech_commands" / ARCHIVE
    archive.write_bytes(archive.read_bytes()[:-9])
    with pytest.raises(ChecksumError):
        load_speech_commands(small)


def test_samples_are_those_of_the_clip():
    np.testing.assert_array_equal(read_sound(wav([-(2**15), 0, 1]), "a"), [-1, 0, 2**-15])
    options = {"rate": 16_000, "window": 200, "mels": 64, "coefficients": 20}
    expected = mfcc(sound(0) / 2**15, **options)
    np.testing.assert_allclose(compute_features(sound(0) / 2**15), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"yes/a\.wav is not a WAV file"),
        (b"RIFF....", r"yes/a\.wav is not a WAV file"),
        (wav(sound(0), channels=2), r"has 2 channels of 16 bits at 16000 Hz, expected 1 of 16"),
        (wav(sound(0), rate=8000), r"has 1 channel of 16 bits at 8000 Hz, expected 1 of 16"),
        (wav(sound(0), width=1), r"has 1 channel of 8 bits at 16000 Hz"),
        (wav(sound(0))[:-10], r"announces 16,000 samples, but holds 15995"),
    ],
)
def test_malformed_clips_are_refused(tmp_path, content, message):
    path = pack(tmp_path / ARCHIVE, {"yes/a.wav": content})
    with pytest.raises(DataError, match=message):
        list(read_clips(path))


def test_incomplete_archives_are_refused(tmp_path):
    path = pack(tmp_path / ARCHIVE, {"yes/a.wav": wav(sound(0)), "testing_list.txt": b""})
    with pytest.raises(DataError, match=r"has no validation_list\.txt\. Get the file again"):
        loader.read_features(path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataError, match="is not a whole tar archive"):
        loader.read_features(path)
    empty = {"validation_list.txt": b"", "testing_list.txt": b""}
    with pytest.raises(DataError, match="has no clip of 16,000 samples"):
        loader.read_features(pack(tmp_path / ARCHIVE, empty))


def test_published_counts():
    assert load_or_skip("speech-commands").sizes == (24482, 5246, 5247)
