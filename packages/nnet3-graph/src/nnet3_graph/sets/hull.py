"""Hulls: boxes of (t, x) that contain a set of indexes; bounds may be infinite."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from nnet3_computation import RequestError
from nnet3_descriptors.indexes import INT32_MAX, LEAST_TIME, IndexArray, T, X

INFINITY = math.inf


class Hull(NamedTuple):
    """All (t, x) with t_first <= t <= t_last and x_first <= x <= x_last; bounds may be infinite."""

    t_first: float
    t_last: float
    x_first: float
    x_last: float

    def shifted(self, t: float, x: float) -> Hull:
        """Returns the hull moved by (t, x)."""
        if t == 0 and x == 0:
            return self
        return Hull(self.t_first + t, self.t_last + t, self.x_first + x, self.x_last + x)

    def extended(self, t: float, x: float) -> Hull:
        """Returns the hull with t more on either side in t, and x more in x."""
        return Hull(self.t_first - t, self.t_last + t, self.x_first - x, self.x_last + x)

    def __bool__(self) -> bool:
        """Whether there is anything inside."""
        return self.t_first <= self.t_last and self.x_first <= self.x_last

    @property
    def is_finite(self) -> bool:
        """Whether no bound is infinite; the empty hull is not."""
        t_first, t_last, x_first, x_last = self
        return -INFINITY < t_first <= t_last < INFINITY and -INFINITY < x_first <= x_last < INFINITY


NOWHERE = Hull(INFINITY, -INFINITY, INFINITY, -INFINITY)
EVERYWHERE = Hull(-INFINITY, INFINITY, -INFINITY, INFINITY)


def check_rows_exist(hull: Hull) -> None:
    """Raises a RequestError if a hull reaches beyond the t and x that a row can have."""
    for what, first, last in (
        ("t", hull.t_first, hull.t_last),
        ("x", hull.x_first, hull.x_last),
    ):
        far = first if first < LEAST_TIME else last
        if not LEAST_TIME <= far <= INT32_MAX:
            raise RequestError(
                f"the outputs need rows as far as {what} = {int(far)}; "
                f"expected {what} from {LEAST_TIME} to {INT32_MAX}"
            )


def join(first: Hull, second: Hull) -> Hull:
    """Returns the smallest hull that contains both."""
    if first is second:
        return first
    a_first, a_last, a_x_first, a_x_last = first
    b_first, b_last, b_x_first, b_x_last = second
    return Hull(
        a_first if a_first < b_first else b_first,
        a_last if a_last > b_last else b_last,
        a_x_first if a_x_first < b_x_first else b_x_first,
        a_x_last if a_x_last > b_x_last else b_x_last,
    )


def meet(first: Hull, second: Hull) -> Hull:
    """Returns the intersection of both; NOWHERE if it is empty."""
    a_first, a_last, a_x_first, a_x_last = first
    b_first, b_last, b_x_first, b_x_last = second
    t_first = a_first if a_first > b_first else b_first
    t_last = a_last if a_last < b_last else b_last
    x_first = a_x_first if a_x_first > b_x_first else b_x_first
    x_last = a_x_last if a_x_last < b_x_last else b_x_last
    if t_first > t_last or x_first > x_last:
        return NOWHERE
    return Hull(t_first, t_last, x_first, x_last)


def join_all(hulls: Iterable[Hull]) -> Hull:
    """Returns the smallest hull that contains all of them."""
    columns = list(zip(*hulls, strict=True))
    if not columns:
        return NOWHERE
    t_first, t_last, x_first, x_last = columns
    return Hull(min(t_first), max(t_last), min(x_first), max(x_last))


def widened(old: Hull, new: Hull) -> Hull:
    """Returns `new` with each bound that lies beyond that of `old` moved to infinity."""
    return Hull(
        -INFINITY if new[0] < old[0] else new[0],
        INFINITY if new[1] > old[1] else new[1],
        -INFINITY if new[2] < old[2] else new[2],
        INFINITY if new[3] > old[3] else new[3],
    )


def hull_of(indexes: IndexArray) -> Hull:
    """Returns the hull of (N, 3) indexes."""
    if not len(indexes):
        return NOWHERE
    times, extras = indexes[:, T], indexes[:, X]
    return Hull(int(times.min()), int(times.max()), int(extras.min()), int(extras.max()))
