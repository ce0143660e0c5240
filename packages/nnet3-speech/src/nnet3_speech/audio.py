"""Recordings from WAV files, as samples in the units of 16-bit integers.

The layout of the files: "Multimedia Programming Interface and Data Specifications 1.0" (IBM and
Microsoft, 1991) for RIFF/WAVE, and Microsoft's WAVEFORMATEXTENSIBLE.

Another rate is made as Kaldi's tools make it. The signal is low-passed and interpolated by a
windowed sinc function: with C = 0.99 half of the lower rate, h(t) = 2C sinc(2Ct) (1 + cos(2 pi C t
/ 6)) / 2 where |t| < 6 / 2C, and output k is the sum over n of x[n] h(k / out - n / in) / in.
"""

from __future__ import annotations

import math
import os
from contextlib import ExitStack
from typing import IO, Literal, NoReturn

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_speech.errors import SpeechError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_CODINGS = {
    2: "Microsoft ADPCM",
    6: "A-law",
    7: "mu-law",
    0x11: "IMA ADPCM",
    0x31: "GSM 6.10",
    0x55: "MP3",
}
_GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")  # of a coding in WAVE_FORMAT_EXTENSIBLE
_UNKNOWN_SIZES = (0, 0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000)  # by programs that write to a pipe
_READ = "RIFF/WAVE with PCM of 8, 16, 24 or 32 bits, or with floating point of 32 bits, is read"
_BLOCK = 1 << 20
_LARGEST_FORMAT = 1 << 16


@attrs.frozen(eq=False)
class Recording:
    """The samples of a recording.

    Attributes:
        samples: (channels, n) float32 in the units of 16-bit integers: PCM of 16 bits as it is,
            the full scale of other formats at 32768.
        rate: samples of a channel in a second.
    """

    samples: npt.NDArray[np.float32]
    rate: int


def read_wav(source: str | os.PathLike[str] | IO[bytes]) -> Recording:
    """A recording from a WAV file.

    Args:
        source: A path, or a file open for reading bytes, which may be a pipe. If the header does
            not say how many samples follow (its sizes are 0, or those that programs write to a
            pipe), they are read to the end of the file.

    Raises:
        SpeechError: the file cannot be read, is no WAV file, is damaged or truncated, has no
            samples, or has a coding that is not read here.
    """
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
    elif hasattr(source, "read"):
        name = str(getattr(source, "name", "the recording"))
    else:
        raise SpeechError(
            f"a recording: expected the path of a WAV file, or a file open for reading bytes, "
            f"found {type(source).__name__}"
        )
    try:
        with ExitStack() as stack:
            if isinstance(source, (str, os.PathLike)):
                source = stack.enter_context(open(source, "rb"))
            return _Reader(source, name).recording()
    except SpeechError:
        raise
    except (OSError, ValueError) as error:  # a name that no file has, or a file that is closed
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise SpeechError(f"{name}: the file cannot be read: {reason}") from error


_Format = tuple[int, int, int, int]
"""The coding, the number of channels, the rate, and the bits of a sample."""


class _Reader:
    """Reads a file from its beginning to the end of its samples, without seeking."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._position = 0
        self._order: Literal["little", "big"] = "little"

    def recording(self) -> Recording:
        first = self._read(12)
        if bytes(first[:4]) not in (b"RIFF", b"RIFX") or first[8:] != b"WAVE":
            found = f"found {bytes(first)!r}" if first else "the file is empty"
            self._refuse(f"expected a WAV file, {found}; {_READ}")
        self._order = "little" if first[:4] == b"RIFF" else "big"
        unknown_end = self._integer(first[4:8]) in _UNKNOWN_SIZES
        format_ = None
        while True:
            start = self._position
            header = self._read(8)
            if len(header) < 8:
                missing = "samples (no chunk 'data')" if format_ else "format (no chunk 'fmt ')"
                self._refuse(f"the file ends at byte {self._position} without {missing}")
            name, size = header[:4], self._integer(header[4:])
            rest = size + size % 2
            if name == b"data":
                if format_ is None:
                    self._refuse(f"the samples at byte {start} come before the format")
                return self._samples(format_, size, unknown_end)
            if name == b"fmt ":
                format_ = self._format(self._chunk(name, min(size, _LARGEST_FORMAT)))
                rest -= min(size, _LARGEST_FORMAT)
            self._skip(name, rest)

    def _format(self, chunk: bytearray) -> _Format:
        if len(chunk) < 16:
            self._refuse(f"the format takes {len(chunk)} bytes, expected at least 16")
        coding = self._integer(chunk[:2])
        channels, bits = self._integer(chunk[2:4]), self._integer(chunk[14:16])
        rate, bytes_each = self._integer(chunk[4:8]), self._integer(chunk[12:14])
        if coding == _EXTENSIBLE:
            if len(chunk) < 40:
                self._refuse(f"the extensible format takes {len(chunk)} bytes, expected 40")
            if chunk[26:40] != _GUID_TAIL:
                self._refuse(f"the coding has the identifier {chunk[24:40].hex()}; {_READ}")
            coding = self._integer(chunk[24:26])
        if (coding, bits) not in [(_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32)]:
            kind = {_PCM: "PCM", _FLOAT: "floating point"}.get(coding, _CODINGS.get(coding, ""))
            kind = f"{kind} of {bits} bits" if coding in (_PCM, _FLOAT) else kind or "unknown"
            self._refuse(f"the coding is {kind} (format {coding}); {_READ}")
        if not channels:
            self._refuse("the recording has no channels")
        if not rate:
            self._refuse("the recording has 0 samples in a second")
        if bytes_each != channels * bits // 8:
            self._refuse(
                f"expected {channels * bits // 8} bytes for {channels} channels of {bits} bits, "
                f"found {bytes_each} (block align)"
            )
        return coding, channels, rate, bits

    def _samples(self, format_: _Format, size: int, unknown_end: bool) -> Recording:
        coding, channels, rate, bits = format_
        start = self._position
        to_end = size in _UNKNOWN_SIZES
        data = self._read(None if to_end else size)
        if not to_end and len(data) < size and not unknown_end:
            self._refuse(
                f"truncated: expected {size} bytes of samples from byte {start}, found {len(data)}"
            )
        whole = channels * bits // 8
        if len(data) % whole:
            self._refuse(
                f"truncated: {len(data)} bytes of samples are not a multiple of {whole}, the bytes "
                f"of one sample of each channel"
            )
        if not data:
            self._refuse("the recording has no samples")
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            values = _decoded(data, coding, bits, "<" if self._order == "little" else ">")
        finite = np.isfinite(values)
        if not finite.all():
            place = int(finite.argmin()) // channels
            self._refuse(f"sample {place} of {len(values) // channels} is not finite")
        samples = np.ascontiguousarray(values.reshape(-1, channels).T)
        return Recording(samples, rate)

    def _chunk(self, name: bytearray, size: int) -> bytearray:
        chunk = self._read(size)
        if len(chunk) < size:
            self._refuse(
                f"truncated: chunk {name.decode('latin-1')!r} should have {size} bytes, the file "
                f"ends after {len(chunk)}"
            )
        return chunk

    def _skip(self, name: bytearray, size: int) -> None:
        while size > 0:
            size -= len(self._chunk(name, min(size, _BLOCK)))

    def _read(self, size: int | None) -> bytearray:
        """Up to `size` bytes, or all; in blocks, for a header may claim gigabytes."""
        blocks = bytearray()
        while size is None or len(blocks) < size:
            wanted = _BLOCK if size is None else min(_BLOCK, size - len(blocks))
            block: object = self._file.read(wanted)
            if not block:
                break
            if not isinstance(block, bytes | bytearray | memoryview):
                self._refuse(
                    "expected a file open for reading bytes, found one that gives "
                    f"{type(block).__name__}"
                )
            blocks += block
        self._position += len(blocks)
        return blocks

    def _integer(self, text: bytearray) -> int:
        return int.from_bytes(text, self._order)

    def _refuse(self, why: str) -> NoReturn:
        raise SpeechError(f"{self._name}: {why}")


def _decoded(data: bytearray, coding: int, bits: int, order: str) -> npt.NDArray[np.float32]:
    if bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) * 256
    if bits == 24:  # the three bytes above an empty lowest one: 65536 times the value
        places = np.zeros((len(data) // 3, 4), np.uint8)
        places[:, slice(1, 4) if order == "<" else slice(3)] = np.frombuffer(
            data, np.uint8
        ).reshape(-1, 3)
        return _scaled(places.view(f"{order}i4").ravel(), 1 / 65536)
    if coding == _FLOAT:
        return _scaled(np.frombuffer(data, f"{order}f4"), 32768)
    kind = f"{order}i{bits // 8}"
    return _scaled(np.frombuffer(data, kind), 1 if bits == 16 else 1 / 65536)


def _scaled(values: npt.NDArray[np.generic], scale: float) -> npt.NDArray[np.float32]:
    return values.astype(np.float32) * np.float32(scale)


_ZEROS = 6  # of the sinc function on each side
_HIGHEST_RATE = 1_000_000
_OUTPUTS_AT_ONCE = 1 << 16


class Resampler:
    """Resamples one recording, which comes in pieces.

    Args:
        rate_in: Samples in a second of what comes.
        rate_out: Of what is returned.

    Raises:
        SpeechError: a rate is above a million.
    """

    def __init__(self, rate_in: int, rate_out: int) -> None:
        if max(rate_in, rate_out) > _HIGHEST_RATE:
            raise SpeechError(
                f"expected rates up to {_HIGHEST_RATE} samples in a second, found "
                f"{max(rate_in, rate_out)}"
            )
        divisor = math.gcd(rate_in, rate_out)
        self._unit_in, self._unit_out = rate_in // divisor, rate_out // divisor
        cutoff = 0.99 * 0.5 * min(rate_in, rate_out)
        width = _ZEROS / (2 * cutoff)
        times = np.arange(self._unit_out) / rate_out  # of the outputs in one period of both rates
        self._first = np.ceil((times - width) * rate_in).astype(np.int64)
        taps = int(np.floor(2 * width * rate_in)) + 2
        offsets = (self._first[:, None] + np.arange(taps)) / rate_in - times[:, None]
        window = np.where(
            np.abs(offsets) < width, 1 + np.cos(2 * np.pi * cutoff / _ZEROS * offsets), 0.0
        )
        self._weights = cutoff * np.sinc(2 * cutoff * offsets) * window / rate_in
        self._outputs = 0
        self._kept = np.zeros(0)
        self._kept_from = 0

    def push(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The outputs for which no later sample counts: (k,) of the next samples, (n,)."""
        self._kept = np.concatenate([self._kept, samples])
        last = self._kept_from + len(self._kept) - self._weights.shape[1] - self._first[0]
        return self._until(max(last * self._unit_out // self._unit_in, self._outputs))

    def finish(self) -> npt.NDArray[np.float32]:
        """The last outputs, (k,): up to the time of the end; behind it, the samples are zero."""
        samples = self._kept_from + len(self._kept)
        self._kept = np.concatenate([self._kept, np.zeros(self._weights.shape[1])])
        return self._until(-(-samples * self._unit_out // self._unit_in))

    def _until(self, end: int) -> npt.NDArray[np.float32]:
        outputs = np.empty(end - self._outputs, np.float32)
        taps = np.arange(self._weights.shape[1])
        for start in range(self._outputs, end, _OUTPUTS_AT_ONCE):
            units, phases = np.divmod(
                np.arange(start, min(start + _OUTPUTS_AT_ONCE, end)), self._unit_out
            )
            places = (units * self._unit_in + self._first[phases] - self._kept_from)[:, None] + taps
            values = np.where(places < 0, 0.0, self._kept[np.maximum(places, 0)])
            outputs[start - self._outputs :][: len(values)] = np.einsum(
                "ij,ij->i", values, self._weights[phases]
            )
        self._outputs = end
        unit, phase = divmod(end, self._unit_out)
        needed = unit * self._unit_in + int(self._first[phase])
        unneeded = min(max(needed - self._kept_from, 0), len(self._kept))
        self._kept = self._kept[unneeded:]
        self._kept_from += unneeded
        return outputs
