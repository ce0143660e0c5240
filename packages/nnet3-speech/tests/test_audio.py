"""WAV files of the usual codings are read and resampled; others are refused by name."""

import io
import os
import struct
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_speech import read_wav
from nnet3_speech.audio import Resampler
from wav_files import chunk, extension, wav

VALUES = np.array([0, 1, -1, 32767, -32768, 12345], np.float32)


def _read(data: bytes) -> np.ndarray:
    return read_wav(io.BytesIO(data)).samples


def _integers(values: np.ndarray, kind: str, scale: int) -> bytes:
    return (values.astype(np.int64) * scale).astype(kind).tobytes()


@pytest.mark.parametrize(
    ("data", "coding", "bits"),
    [
        (_integers(VALUES, "<i2", 1), 1, 16),
        (b"".join(int(v * 256).to_bytes(3, "little", signed=True) for v in VALUES), 1, 24),
        (_integers(VALUES, "<i4", 65536), 1, 32),
        ((VALUES / 32768).astype("<f4").tobytes(), 3, 32),
    ],
)
@pytest.mark.parametrize("extensible", [False, True])
def test_codings(data: bytes, coding: int, bits: int, *, extensible: bool) -> None:
    """Each coding gives the samples in the units of 16-bit integers, plain and extensible."""
    more = extension(coding, bits) if extensible else b""

    recording = read_wav(
        io.BytesIO(wav(data, 0xFFFE if extensible else coding, bits=bits, extension=more))
    )

    np.testing.assert_array_equal(recording.samples, VALUES[None])
    assert recording.samples.dtype == np.float32
    assert recording.rate == 16000


def test_eight_bits() -> None:
    """PCM of 8 bits is unsigned, with silence at 128."""
    np.testing.assert_array_equal(_read(wav(bytes([0, 128, 255]), bits=8)), [[-32768, 0, 32512]])


def test_channels_and_other_chunks() -> None:
    """Channels are rows; chunks before the format and after it, and odd sizes, are passed over."""
    data = np.array([[1, -1], [2, -2], [3, -3]], "<i2").tobytes()
    before = chunk(b"JUNK", b"abc") + chunk(b"LIST", b"INFOxy")
    file = wav(data, channels=2, rate=8000, before=before, extension=b"\1\0x")

    recording = read_wav(io.BytesIO(file))

    np.testing.assert_array_equal(recording.samples, [[1, 2, 3], [-1, -2, -3]])
    assert recording.rate == 8000


def test_big_endian() -> None:
    """RIFX files have all numbers the other way round."""
    data = struct.pack(">4sI4s4sIHHIIHH4sI2h", b"RIFX", 0, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000,
                       2, 16, b"data", 4, 5, -6)  # fmt: skip

    np.testing.assert_array_equal(_read(data), [[5, -6]])


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_sizes_of_streams(size: int) -> None:
    """A header with a size that programs write to pipes: samples go to the end of the file."""
    np.testing.assert_array_equal(_read(wav(b"\1\0\2\0", size=size, riff_size=size)), [[1, 2]])


def test_size_of_stream_in_the_first_header_only() -> None:
    """If only the size of the file is unknown, fewer samples than the header says are read."""
    np.testing.assert_array_equal(_read(wav(b"\1\0\2\0", size=900, riff_size=0)), [[1, 2]])
    np.testing.assert_array_equal(
        _read(wav(b"\1\0\2\0", riff_size=0) + chunk(b"LIST", b"INFO")), [[1, 2]]
    )


def test_pipe() -> None:
    """A recording comes through a pipe, which cannot seek."""
    reading, writing = os.pipe()
    data = wav(np.arange(100000, dtype="<i4").astype("<i2").tobytes())

    def write() -> None:
        with open(writing, "wb") as file:
            file.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    with open(reading, "rb") as file:
        samples = read_wav(file).samples
    thread.join()

    np.testing.assert_array_equal(samples[0], np.arange(100000).astype(np.int16))


def _definition(samples: np.ndarray, rate_in: int, rate_out: int) -> np.ndarray:
    """The sum over all samples for each output, as the formula says."""
    cutoff = 0.99 / 2 * min(rate_in, rate_out)
    outputs = [k for k in range(10 * len(samples) + 1) if k * rate_in < len(samples) * rate_out]
    times = np.array(outputs)[:, None] / rate_out - np.arange(len(samples)) / rate_in
    window = np.where(np.abs(times) < 3 / cutoff, 1 + np.cos(np.pi * cutoff / 3 * times), 0)
    return (cutoff / rate_in * np.sinc(2 * cutoff * times) * window) @ samples


@pytest.mark.parametrize(
    "rates",
    [(16000, 8000), (8000, 16000), (22050, 16000), (44100, 16000), (7, 5), (5, 48), (48, 5)],
)
@given(st.integers(0, 300), st.lists(st.integers(0, 300), max_size=6))
def test_definition_in_pieces(rates: tuple[int, int], count: int, places: list[int]) -> None:
    """The outputs equal the formula's, as float32, and the pieces change nothing."""
    samples = np.random.default_rng(count).standard_normal(count).astype(np.float32)

    whole = Resampler(*rates)
    outputs = np.concatenate([whole.push(samples), whole.finish()])
    resampler = Resampler(*rates)
    pieces = [
        resampler.push(piece)
        for piece in np.split(samples, sorted(place for place in places if place <= count))
    ]

    np.testing.assert_array_equal(np.concatenate([*pieces, resampler.finish()]), outputs)
    np.testing.assert_allclose(outputs, _definition(samples, *rates), atol=1e-6)


def test_few_samples_are_kept() -> None:
    """What earlier outputs needed is forgotten."""
    resampler = Resampler(44100, 16000)
    for _ in range(20):
        resampler.push(np.zeros(10000, np.float32))

    assert len(resampler._kept) < 100
