"""The minibatches on which the estimates of the natural gradient begin and move, by counting.

An estimate begins with the first minibatch that uses it, moves on each of the next few, and then on
one in a period. A segment uses many estimates, so it makes the decisions for all of them at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.operations.gradients import INITIAL_UPDATES

ALWAYS = -1
"""The number for no decision: operations with it always run."""

Flags = npt.NDArray[np.bool_]


class Clock:
    """Counts the minibatches that have used each estimate of a network, and random draws.

    Attributes:
        minibatches: (estimates,).
        draws: For each operation that draws random numbers, how often it has.
        is_frozen: Whether estimates stay fixed after they have begun.
    """

    def __init__(self) -> None:
        """Starts without estimates."""
        self.minibatches = np.zeros(0, dtype=np.int64)
        self.draws: list[int] = []
        self.is_frozen = False

    def add(self) -> int:
        """A new estimate; returns its number."""
        self.minibatches = np.append(self.minibatches, 0)
        return len(self.minibatches) - 1

    def new_draws(self) -> Callable[[], float]:
        """Counts the draws of a further operation: calls give 0, 1, 2, ..."""
        number = len(self.draws)
        self.draws.append(0)

        def count() -> float:
            self.draws[number] += 1
            return float(self.draws[number] - 1)

        return count

    def keep(self) -> Callable[[], object]:
        """Keeps all counts; the call that it returns sets them back."""
        minibatches, draws = self.minibatches.copy(), self.draws.copy()

        def restore() -> None:
            self.minibatches[: len(minibatches)] = minibatches
            self.draws[: len(draws)] = draws

        return restore


@attrs.frozen
class Use:
    """The decisions about one of the times that a segment uses an estimate, by number.

    Attributes:
        begins: Whether the estimate begins.
        moves: Whether it moves.
    """

    begins: int
    moves: int


@attrs.frozen
class _Counted:
    """A use of an estimate: the estimate, its earlier uses in the same run, and its period."""

    estimate: int
    before: int
    period: int


class Schedule:
    """The decisions of one segment, in the order in which the tape asks for them.

    Attributes:
        length: Number of decisions.
    """

    def __init__(self, clock: Clock) -> None:
        """Starts without decisions; `clock` counts for the estimates."""
        self.length = 0
        self._clock = clock
        self._times: Counter[int] = Counter()
        self._counted: list[_Counted] = []
        self._uses: list[Use] = []
        self._unions: list[tuple[int, list[int]]] = []

    def use(self, estimate: int, period: int) -> Use:
        """The decisions about the next use of an estimate that moves once in a period."""
        self._counted.append(_Counted(estimate, self._times[estimate], period))
        self._times[estimate] += 1
        self._uses.append(Use(self.length, self.length + 1))
        self.length += 2
        return self._uses[-1]

    def any_of(self, decisions: Sequence[int]) -> int:
        """The decision whether any of these is positive; `ALWAYS` if there are none."""
        if not decisions:
            return ALWAYS
        if len(decisions) == 1:
            return decisions[0]
        self._unions.append((self.length, list(decisions)))
        self.length += 1
        return self.length - 1

    def decisions(self) -> Decisions:
        """All decisions, to be made in each run."""
        return Decisions(self._clock, self.length, self._counted, self._uses, self._unions)


class Decisions:
    """Makes the decisions of a segment.

    Attributes:
        length: Number of decisions.
        starts: Numbers of the decisions that are positive only when an estimate begins.
    """

    def __init__(
        self,
        clock: Clock,
        length: int,
        counted: Sequence[_Counted],
        uses: Sequence[Use],
        unions: Sequence[tuple[int, list[int]]],
    ) -> None:
        """Puts the uses of estimates into arrays."""
        self.length = length
        self.starts = frozenset(use.begins for use in uses)
        self._clock = clock
        self._estimates = np.array([c.estimate for c in counted], dtype=np.int64)
        self._before = np.array([c.before for c in counted], dtype=np.int64)
        self._periods = np.array([c.period for c in counted], dtype=np.int64)
        self._begins = np.array([use.begins for use in uses], dtype=np.int64)
        self._moves = np.array([use.moves for use in uses], dtype=np.int64)
        self._unions = [(number, np.array(members)) for number, members in unions]
        self._steps = np.bincount(self._estimates)
        self._flags: Flags = np.zeros(length, dtype=np.bool_)

    def next(self) -> Flags:
        """Makes the decisions for the coming run, which is counted; (decisions,), until the next.

        Returns:
            For each decision whether it is positive.
        """
        flags = self._flags
        if not len(flags):
            return flags
        seen = self._clock.minibatches[self._estimates] + self._before
        flags[self._begins] = seen == 0
        since = seen - INITIAL_UPDATES
        is_time = (since <= 0) | (since % self._periods == 0)
        flags[self._moves] = is_time & (not self._clock.is_frozen)
        for number, members in self._unions:
            flags[number] = flags[members].any()
        self._clock.minibatches[: len(self._steps)] += self._steps
        return flags
