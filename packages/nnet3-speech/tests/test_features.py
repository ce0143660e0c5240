"""Features equal Kaldi's, whole and in pieces; what cannot be computed is refused."""

import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kaldi_cases import FEATURES, options
from nnet3_speech import FbankOptions, FeatureExtractor, MfccOptions, read_wav
from nnet3_speech.options import options_of, read_options

DATA = Path(__file__).parent / "data"


def _noise(count: int, seed: int = 0) -> np.ndarray:
    return (1000 * np.random.default_rng(seed).standard_normal(count)).astype(np.float32)


def test_kaldi_values() -> None:
    """The MFCC of a recording, with a real model's mfcc.conf, equal compute-mfcc-feats'."""
    expected = np.load(DATA / "mfcc.npz")["k2"]
    recording = read_wav(DATA / "k2.wav")
    extractor = FeatureExtractor(read_options(MfccOptions, DATA / "mfcc.conf"))

    features = extractor.compute(recording.samples[0], recording.rate)

    assert features.shape == (383, 40)
    assert features.dtype == np.float32
    assert extractor.dim == 40
    np.testing.assert_allclose(features, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", FEATURES)
def test_kaldi_values_of_other_options(name: str) -> None:
    """Other options, and other rates, give the values of Kaldi's tools."""
    expected = np.load(DATA / "kaldi.npz")[name]
    tool, rate, text = FEATURES[name]
    kind = MfccOptions if tool == "compute-mfcc-feats" else FbankOptions
    extractor = FeatureExtractor(options_of(kind, options(text), name))

    features = extractor.compute(read_wav(DATA / "k2.wav").samples[0, 20000:28000], rate)

    np.testing.assert_allclose(features, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "given_options",
    [
        MfccOptions(),
        MfccOptions(snip_edges=False, sample_frequency=8000.0, allow_downsample=True, dither=1.0),
        FbankOptions(sample_frequency=22050.0, allow_upsample=True, snip_edges=False),
        FbankOptions(use_energy=True, use_log_fbank=False, dither=0.5),
        FbankOptions(round_to_power_of_two=False, window_type="hamming", htk_compat=True),
    ],
)
@given(st.data())
def test_pushes_equal_the_whole(
    given_options: MfccOptions | FbankOptions, data: st.DataObject
) -> None:
    """Whatever the pieces, the features are those of the whole recording, bit for bit."""
    samples = _noise(data.draw(st.integers(0, 3000)))
    ends = sorted(data.draw(st.lists(st.integers(0, len(samples)), max_size=8)))
    extractor = FeatureExtractor(given_options)

    stream = extractor.stream(16000)
    pieces = [stream.push(piece) for piece in np.split(samples, ends)] + [stream.finish()]

    np.testing.assert_array_equal(np.concatenate(pieces), extractor.compute(samples, 16000))


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100, 48000])
@pytest.mark.parametrize("snip_edges", [True, False])
def test_number_of_frames(rate: int, *, snip_edges: bool) -> None:
    """A frame for each 10 ms: whole frames inside with snip_edges, else rounded."""
    shift = rate // 100
    extractor = FeatureExtractor(FbankOptions(sample_frequency=rate, snip_edges=snip_edges))
    for samples in (0, 1, shift // 2, rate // 40, rate // 3):
        expected = (
            max((samples - int(rate * 0.025)) // shift + 1, 0)
            if snip_edges
            else (samples + shift // 2) // shift
        )
        assert extractor.compute(_noise(samples), rate).shape == (expected, 23)


def test_definition() -> None:
    """Filter banks and cepstra equal the textbook's formulas, in float64, with other options."""
    chosen = MfccOptions(
        sample_frequency=8000.0, window_type="hanning", num_mel_bins=15, num_ceps=7,
        low_freq=100.0, high_freq=-300.0, preemphasis_coefficient=0.9, use_energy=False,
        cepstral_lifter=20.0, round_to_power_of_two=False,
    )  # fmt: skip
    samples = _noise(600)
    frames = np.stack([samples[start : start + 200] for start in range(0, 401, 80)]).astype(float)
    frames -= frames.mean(axis=1, keepdims=True)
    frames -= 0.9 * np.column_stack([frames[:, 0], frames[:, :-1]])
    frames *= 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(200) / 199)
    power = np.abs(np.fft.rfft(frames)[:, :100]) ** 2
    mel = 1127 * np.log(1 + np.arange(100) * 40 / 700)
    edges = np.linspace(1127 * np.log(1 + 100 / 700), 1127 * np.log(1 + 3700 / 700), 17)
    triangles = np.stack(
        [np.interp(mel, edges[b : b + 3], [0, 1, 0], left=0, right=0) for b in range(15)]
    )
    banks = np.log(power @ triangles.T)
    place = np.arange(7)
    cosine = np.cos(np.pi / 15 * np.outer(np.arange(15) + 0.5, place)) * np.sqrt(2 / 15)
    cosine[:, 0] = np.sqrt(1 / 15)
    cepstra = banks @ cosine * (1 + 10 * np.sin(np.pi * place / 20))

    shared = {
        field.name: getattr(chosen, field.name)
        for field in attrs.fields(FbankOptions)
        if hasattr(chosen, field.name)
    }
    fbank = FeatureExtractor(FbankOptions(**shared)).compute(samples, 8000)

    np.testing.assert_allclose(fbank, banks, atol=2e-4)
    np.testing.assert_allclose(FeatureExtractor(chosen).compute(samples, 8000), cepstra, atol=2e-3)


def test_silence() -> None:
    """Digital silence has the log of float32's epsilon; dither gives it energy, repeatably."""
    silence = np.zeros(1600, np.int16)

    quiet = FeatureExtractor(FbankOptions()).compute(silence, 16000)
    dithered = FeatureExtractor(FbankOptions(dither=1.0))

    np.testing.assert_array_equal(quiet, np.full((8, 23), np.log(np.float32(2**-23))))
    assert dithered.compute(silence, 16000).min() > -5
    np.testing.assert_array_equal(
        dithered.compute(silence, 16000), dithered.compute(silence, 16000)
    )


def test_another_rate() -> None:
    """A tone has nearly the same features at another rate, resampled."""
    features = []
    for rate in (16000, 22050, 44100, 8000):
        tone = 5000 * np.sin(2 * np.pi * 700 * np.arange(rate // 2) / rate)
        extractor = FeatureExtractor(
            MfccOptions(allow_upsample=True, allow_downsample=True, high_freq=3600.0)
        )
        features.append(extractor.compute(tone + _noise(len(tone)) / 1e4, rate)[5:40, 0])
    for other in features[1:]:
        np.testing.assert_allclose(other, features[0], atol=0.01)


def test_frames_are_forgotten() -> None:
    """A stream keeps no frames that it has given."""
    stream = FeatureExtractor(MfccOptions()).stream(16000)
    for _ in range(3):
        assert len(stream.push(_noise(16000))) >= 98

    assert stream._computer.num_frames_ready == 298
    with pytest.raises((RuntimeError, IndexError)):
        stream._computer.get_frame(297)


def test_import_is_light() -> None:
    """kaldi-native-fbank is imported when the first recording comes, not with the package."""
    code = (
        "import sys; from nnet3_speech import FeatureExtractor, MfccOptions;"
        "extractor = FeatureExtractor(MfccOptions()); extractor.dim;"
        "assert 'kaldi_native_fbank' not in sys.modules;"
        "extractor.stream(16000); assert 'kaldi_native_fbank' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
