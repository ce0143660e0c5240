"""WAV files of the usual codings are read; others are refused by name."""

import io
import os
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_speech import SpeechError, read_wav
from wav_files import chunk, extension, wav

VALUES = np.array([0, 1, -1, 32767, -32768, 12345], np.float32)
READ = "RIFF/WAVE with PCM of 8, 16, 24 or 32 bits, or with floating point of 32 bits, is read"


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

    recording = read_wav(io.BytesIO(wav(data, channels=2, rate=8000, before=before)))

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


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", f"expected a WAV file, the file is empty; {READ}"),
        (b"fLaC\0\0\0\x22\x10\0\x10\0", r"expected a WAV file, found b'fLaC"),
        (b"RIFF\0\0\0\0AVI LIST", r"expected a WAV file, found b'RIFF\x00\x00\x00\x00AVI '"),
        (wav(b"ab", 6, bits=8), f"the coding is A-law (format 6); {READ}"),
        (wav(b"ab", 7, bits=8), f"the coding is mu-law (format 7); {READ}"),
        (wav(b"ab", 0x55, bits=0), f"the coding is MP3 (format 85); {READ}"),
        (wav(b"ab", 4242), f"the coding is unknown (format 4242); {READ}"),
        (wav(b"ab", bits=12), f"the coding is PCM of 12 bits (format 1); {READ}"),
        (wav(b"abcdabcd", 3, bits=64), "the coding is floating point of 64 bits (format 3); "),
        (
            wav(b"ab", 0xFFFE, bits=8, extension=extension(6, 8)),
            f"the coding is A-law (format 6); {READ}",
        ),
        (
            wav(b"ab", 0xFFFE, extension=extension(1, 16)[:-1] + b"\0"),
            f"the coding has the identifier 0100000000001000800000aa00389b00; {READ}",
        ),
        (wav(b"ab", 0xFFFE), "the extensible format takes 16 bytes, expected 40"),
        (wav(b"", channels=0), "the recording has no channels"),
        (wav(b"ab", rate=0), "the recording has 0 samples in a second"),
        (
            wav(b"abcd", channels=2, block_align=2),
            "expected 4 bytes for 2 channels of 16 bits, found 2 (block align)",
        ),
        (wav(b"ab", size=2)[:-2], "truncated: expected 2 bytes of samples from byte 44, found 0"),
        (
            wav(b"abcd", size=9000),
            "truncated: expected 9000 bytes of samples from byte 44, found 4",
        ),
        (
            wav(b"abcdef", channels=2),
            "truncated: 6 bytes of samples are not a multiple of 4, the bytes of one sample of "
            "each channel",
        ),
        (wav(b""), "the recording has no samples"),
        (wav(b"")[:36], "the file ends at byte 36 without samples (no chunk 'data')"),
        (wav(b"")[:12], "the file ends at byte 12 without format (no chunk 'fmt ')"),
        (wav(b"")[:14], "the file ends at byte 14 without format (no chunk 'fmt ')"),
        (wav(b"")[:30], "truncated: chunk 'fmt ' should have 16 bytes, the file ends after 10"),
        (
            wav(b"", before=chunk(b"LIST", b"ab", 0xFFFFFFFE)),
            "truncated: chunk 'LIST' should have 1048576 bytes, the file ends after ",
        ),
        (wav(b"", before=chunk(b"data", b"ab")), "the samples at byte 12 come before the format"),
        (
            wav(b"", before=chunk(b"fmt ", b"ab")),
            "the format takes 2 bytes, expected at least 16",
        ),
        (wav(struct.pack("<2f", 1, np.nan), 3, bits=32), "sample 1 of 2 is not finite"),
        (wav(struct.pack("<2f", 1, 3e38), 3, bits=32), "sample 1 of 2 is not finite"),
    ],
)
def test_refused(data: bytes, message: str, tmp_path: Path) -> None:
    """What is damaged, or has another coding, is refused: the file, what was found."""
    path = tmp_path / "a.wav"
    path.write_bytes(data)

    with pytest.raises(SpeechError) as caught:
        read_wav(path)

    assert str(caught.value).startswith(f"{path}: {message}")


def test_missing_and_unnamed_files(tmp_path: Path) -> None:
    """A path that cannot be read is named; an open file without a name is the recording."""
    with pytest.raises(SpeechError, match=r"none\.wav: the file cannot be read: No such file"):
        read_wav(tmp_path / "none.wav")
    with pytest.raises(SpeechError, match=r": the file cannot be read: Is a directory"):
        read_wav(tmp_path)
    with pytest.raises(SpeechError, match=r"^the recording: expected a WAV file"):
        read_wav(io.BytesIO())


@given(
    st.binary(max_size=200),
    st.integers(0, 60),
    st.integers(0, 255),
)
def test_damaged_files(data: bytes, place: int, value: int) -> None:
    """A file with a changed byte, or any bytes, is read, or refused as any damaged file."""
    damaged = bytearray(wav(data))
    damaged[min(place, len(damaged) - 1)] = value
    for content in (bytes(damaged), data):
        try:
            recording = read_wav(io.BytesIO(content))
        except SpeechError:
            continue
        assert recording.samples.size
        assert np.isfinite(recording.samples).all()
