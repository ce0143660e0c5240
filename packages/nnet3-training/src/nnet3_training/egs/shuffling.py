"""Examples, or any other items, in random order, with few of them in memory.

With `CRandom`, which has Kaldi's numbers, the order is that of Kaldi's tools with a buffer. Without
a buffer these take their seed from the system, so that no two orders are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from nnet3_training.egs.c_random import Random

T = TypeVar("T")


def shuffled(items: Iterable[T], rng: Random, buffer_size: int = 0) -> Iterator[T]:
    """The items in random order.

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
