"""The random numbers of the GNU C library, which Kaldi draws on Linux, and random order.

With these numbers the package chooses the same examples as Kaldi's tools, and cuts utterances at
the same places.

Source: `random_r` of the GNU C library, an additive feedback generator: x[i] = x[i-3] + x[i-31]
modulo 2^32; the lowest bit is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

_DEGREE, _LAG = 31, 3
_WARM_UP = 310
_MODULUS = 2**31 - 1
_RANGE = 1 << 31


class Random(Protocol):
    """A source of random numbers; NumPy's `Generator` is one."""

    def integers(self, low: int, high: int) -> int | np.int64:
        """An integer from `low` on, below `high`."""
        ...

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        """The numbers below `count` in random order."""
        ...


class CRandom:
    """`rand` of the GNU C library, as Kaldi uses it."""

    def __init__(self, seed: int = 1) -> None:
        """Begins as after `srand(seed)`; the C library's default is seed 1.

        Args:
            seed: Its lowest 32 bits count, as a number with a sign; 0 is taken for 1.
        """
        state = [(seed + (1 << 31)) % (1 << 32) - (1 << 31) or 1]
        self._seed = state[0]
        for _ in range(_DEGREE - 1):
            state.append(16807 * state[-1] % _MODULUS)
        self._state = deque(state, maxlen=_DEGREE)
        self._state.rotate(-_LAG)
        for _ in range(_WARM_UP):
            self._next()

    def _next(self) -> int:
        value = (self._state[-_LAG] + self._state[0]) % (1 << 32)
        self._state.append(value)
        return value

    def rand(self) -> int:
        """The next number, from 0 to 2^31 - 1."""
        return self._next() >> 1

    def integers(self, low: int, high: int) -> int:
        """An integer from `low` on, below `high`; if there is only one, nothing is drawn."""
        return low + self.rand() % (high - low) if high - low > 1 else low

    def uniform(self) -> float:
        """A number above 0 and at most 1, in single precision."""
        return float(np.float32((self.rand() + 1.0) / (_RANGE + 1.0)))

    def with_probability(self, probability: float) -> bool:
        """True with this probability."""
        if probability in (0.0, 1.0):
            return probability == 1.0
        if probability * (_RANGE - 1) < 128.0:
            return self.rand() < (_RANGE - 1) // 128 and self.with_probability(probability * 128.0)
        return self.rand() < _RANGE * float(np.float32(probability))

    @cached_property
    def _shuffling(self) -> np.random.Generator:
        """Another generator: Kaldi's takes no numbers from this one, either."""
        return np.random.default_rng(abs(self._seed))

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        """The numbers below `count` in random order."""
        return self._shuffling.permutation(count)


def shuffled(items: Iterable[T], rng: Random, buffer_size: int = 0) -> Iterator[T]:
    """The items in random order.

    With `CRandom` and a buffer, the order is that of Kaldi's tools. Without a buffer these take
    their seed from the system, so that no two orders are the same.

    Args:
        items: Any number of items.
        rng: The random generator.
        buffer_size: Number of places in the buffer. Each item goes to a random place, and the item
            that was there is next; at the end come the remaining items, place by place. 0 for a
            place for each item.
    """
    if not buffer_size:
        held = list(items)
        for number in rng.permutation(len(held)):
            yield held[number]
        return
    places: dict[int, T] = {}
    for item in items:
        place = int(rng.integers(0, buffer_size))
        if place in places:
            yield places[place]
        places[place] = item
    for place in sorted(places):
        yield places[place]
