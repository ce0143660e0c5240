"""Fingerprints: arithmetic modulo the prime 2**61 - 1, and mixing of 64-bit numbers.

An element of the field stands for a linear combination of unknowns: each unknown has a random
element, so sums and multiples of fingerprints are the fingerprints of sums and multiples. Different
combinations have the same fingerprint with a probability of about 2**-61 (J. Schwartz, 1980).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

PRIME = 2**61 - 1
_BITS = 61
Elements = npt.NDArray[np.uint64]

_P = np.uint64(PRIME)
_SHIFT = np.uint64(_BITS)
_LOW31, _LOW30 = np.uint64(2**31 - 1), np.uint64(2**30 - 1)
_31, _30, _1 = np.uint64(31), np.uint64(30), np.uint64(1)


def element_of(value: float) -> int:
    """Returns the element of a finite binary fraction: exact, so that products of scales agree."""
    mantissa, exponent = math.frexp(value)
    return int(mantissa * 2**53) * pow(2, (exponent - 53) % _BITS, PRIME) % PRIME


def power(base: int, exponent: int) -> int:
    """Returns a power; the exponent may be negative."""
    return pow(base, exponent % (PRIME - 1), PRIME)


def add(a: Elements, b: Elements) -> Elements:
    """Returns a + b."""
    return _reduced(a + b)


def _reduced(a: Elements) -> Elements:
    """Returns numbers below twice the prime as elements."""
    reduced: Elements = a - _P * (a >= _P)
    return reduced


def times(a: Elements, factor: int) -> Elements:
    """Returns a times one element."""
    factor %= PRIME
    if factor == 1:
        return a
    high, low = np.uint64(factor >> 31), np.uint64(factor & (2**31 - 1))
    a_high, a_low = a >> _31, a & _LOW31
    # 2**62 is 2, and 2**61 is 1, so each product of two halves is reduced by shifting.
    middle = a_high * low + a_low * high
    lowest = a_low * low
    total = ((a_high * high) << _1) + (middle >> _30) + ((middle & _LOW30) << _31)
    total += (lowest & _P) + (lowest >> _SHIFT)
    total = (total & _P) + (total >> _SHIFT)
    return _reduced(total)


def column_sums(rows: Elements) -> Elements:
    """Returns the sum over the first axis."""
    if not len(rows):
        return np.zeros(rows.shape[1:], dtype=np.uint64)
    high = (rows >> _31).sum(axis=0, dtype=np.uint64)
    low = (rows & _LOW31).sum(axis=0, dtype=np.uint64)
    # With fewer than 2**30 rows neither sum overflows.
    return add(times(high % _P, 2**31), low % _P)


def mix(x: Elements) -> Elements:
    """Scrambles 64-bit numbers one by one (the finalizer of SplitMix64; G. Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Elements = x ^ (x >> np.uint64(31))
    return mixed


def combine(*parts: Elements | int) -> Elements:
    """Returns a hash of the parts in their order, element by element: 64 bits."""
    result = np.zeros(1, dtype=np.uint64)
    for number, part in enumerate(parts):
        array = np.array([part % 2**64], np.uint64) if isinstance(part, int) else part
        result = mix(result + mix(array + np.uint64((number + 1) * 0x9E3779B97F4A7C15 % 2**64)))
    return result


def as_elements(hashes: Elements) -> Elements:
    """Returns 64-bit hashes as elements of the field."""
    return _reduced(hashes & _P)
