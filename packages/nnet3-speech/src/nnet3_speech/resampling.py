"""Samples at another rate, as Kaldi's tools compute them.

The signal is low-passed and interpolated by a windowed sinc function: with C = 0.99 half of the
lower rate, h(t) = 2C sinc(2Ct) (1 + cos(2 pi C t / 6)) / 2 where |t| < 6 / 2C, and output k is the
sum over n of x[n] h(k / out - n / in) / in.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nnet3_speech.errors import SpeechError

_ZEROS = 6  # of the sinc function on each side
_HIGHEST_RATE = 1_000_000
_BLOCK = 1 << 16


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
        for start in range(self._outputs, end, _BLOCK):
            units, phases = np.divmod(np.arange(start, min(start + _BLOCK, end)), self._unit_out)
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
