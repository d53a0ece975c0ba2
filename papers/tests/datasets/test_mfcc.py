import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tauflow.errors import ArgumentError
from tauflow_papers.datasets.mfcc import mel_filters, mfcc

PUBLISHED = {"rate": 16_000, "window": 200, "mels": 64, "coefficients": 20}


def tone(hertz, samples=16_000):
    return np.sin(2 * np.pi * hertz * np.arange(samples) / 16_000)


def test_a_second_has_161_frames():
    assert mfcc(np.zeros((2, 16_000)), **PUBLISHED).shape == (2, 161, 20)


def test_coefficients_follow_their_definition():
    rng = np.random.RandomState(0)
    signal, window, mels = rng.randn(130), 40, 6
    coefficients_ = mfcc(signal, rate=8000, window=window, mels=mels, coefficients=6)
    mirrored = np.concatenate([signal[20:0:-1], signal, signal[-2:-22:-1]])
    filters = mel_filters(8000, window, mels)
    for frame in range(len(coefficients_)):
        part = mirrored[20 * frame : 20 * frame + window]
        part = part * (np.sin(np.pi * np.arange(window) / window) ** 2)
        angles = -2j * np.pi * np.outer(np.arange(21), np.arange(window)) / window
        power = np.abs(np.exp(angles) @ part) ** 2
        loudness = np.log(power @ filters + 1e-6)
        for k in range(6):
            waves = np.cos(np.pi / mels * (np.arange(mels) + 0.5) * k)
            scale = np.sqrt((1 if k == 0 else 2) / mels)
            assert coefficients_[frame, k] == pytest.approx(scale * (waves @ loudness), abs=1e-9)
    assert len(coefficients_) == 1 + 130 // 20


def test_values_are_those_of_torchaudio():
    coefficients = mfcc(0.1 * np.random.RandomState(0).randn(16_000), **PUBLISHED)
    # torchaudio 2.11.0, MFCC(n_mfcc=20, log_mels=True, melkwargs={"n_fft": 200, "n_mels": 64}), in
    # double precision with its filters in single precision.
    theirs = [-10.40044924, -13.36464117, -1.57600728, -3.46234032]
    np.testing.assert_allclose(coefficients[3, :4], theirs, atol=5e-5)


def test_the_cosine_transform_is_that_of_scipy():
    fft = pytest.importorskip("scipy.fft")
    signal = np.random.RandomState(1).randn(3, 400)
    every = mfcc(signal, rate=16_000, window=200, mels=30, coefficients=30)
    loudness = fft.idct(every, axis=-1, norm="ortho")
    few = mfcc(signal, rate=16_000, window=200, mels=30, coefficients=7)
    np.testing.assert_allclose(fft.dct(loudness, norm="ortho")[..., :7], few, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(4_000, 48_000), st.integers(10, 400), st.integers(2, 80))
def test_filters_overlap_to_one(rate, half, mels):
    filters = mel_filters(rate, 2 * half, mels)
    assert ((filters >= 0) & (filters <= 1)).all()
    # Between the middles of the first and the last filter two neighbours share each frequency.
    steps = np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), mels + 2)
    first, *_, last = 700 * (10 ** (steps[1:-1] / 2595) - 1)
    inside = (np.linspace(0, rate / 2, half + 1) - first) * np.array([[1]]) >= 0
    inside = inside[0] & (np.linspace(0, rate / 2, half + 1) <= last)
    np.testing.assert_allclose(filters[inside].sum(1), 1)


def test_middles_are_equally_far_apart_in_mel():
    # 1000 Hz are 1000 mel on this scale; with a top of 2840 mel the filters stand 2840/3 apart.
    filters = mel_filters(16_000, 16_000, 2)
    middles = filters.argmax(0)  # in Hz, as the window is one second
    np.testing.assert_allclose(2595 * np.log10(1 + middles / 700), [946.7, 1893.4], atol=0.5)
    np.testing.assert_allclose(2595 * np.log10(1 + 1000 / 700), 1000, atol=0.02)


@pytest.mark.parametrize("hertz", [400, 1200, 4000, 7200])
def test_a_tone_is_loudest_in_the_filters_around_it(hertz):
    fft = pytest.importorskip("scipy.fft")
    every = mfcc(tone(hertz), rate=16_000, window=200, mels=20, coefficients=20)
    loudest = fft.idct(every, norm="ortho")[5:-5].argmax(-1)
    assert (mel_filters(16_000, 200, 20)[hertz // 80][loudest] > 0).all()


def test_silence_and_loudness():
    silent = mfcc(np.zeros(1000), **PUBLISHED)
    np.testing.assert_allclose(silent[:, 0], 8 * np.log(1e-6))
    np.testing.assert_allclose(silent[:, 1:], 0, atol=1e-12)
    noise = np.random.RandomState(0).randn(1000)
    options = {**PUBLISHED, "mels": 20}  # few enough that no filter is silent
    louder = mfcc(1000 * noise, **options) - mfcc(noise, **options)
    np.testing.assert_allclose(louder[:, 0], 20**0.5 * np.log(1e6), rtol=1e-4)
    np.testing.assert_allclose(louder[:, 1:], 0, atol=1e-3)


def test_the_published_setting_has_silent_filters():
    assert 0 < (mel_filters(16_000, 200, 64).sum(0) == 0).sum() < 20


@pytest.mark.parametrize(
    "change", [{"window": 201}, {"coefficients": 65}, {"window": 4000}, {"mels": 0}]
)
def test_impossible_settings_are_refused(change):
    with pytest.raises(ArgumentError, match="must be"):
        mfcc(np.zeros(2000), **{**PUBLISHED, **change})
