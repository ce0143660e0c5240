"""Examples, or anything else, in random order, with few of them held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from nnet3_training.egs.c_random import Random

T = TypeVar("T")


def shuffled(items: Iterable[T], rng: Random, buffer_size: int = 0) -> Iterator[T]:
    """The items in random order.

    Args:
        items: Any number of them.
        rng: Draws.
        buffer_size: So many are held back, from which the next is drawn; 0 for all.
    """
    held: list[T] = []
    for item in items:
        held.append(item)
        if buffer_size and len(held) > buffer_size:
            yield held.pop(int(rng.integers(0, len(held))))
    for number in rng.permutation(len(held)):
        yield held[number]
