"""What is said of objectives while and after a network is trained, as Kaldi's scripts expect it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from nnet3_training import Objective, ObjectiveSum

Say = Callable[[str], None]


def value(total: ObjectiveSum, sign: str = "is") -> str:
    """The objective per frame, with the auxiliary part if there is one, and the frames."""
    main, frames = total.per_frame, f"{total.weight:.6g} frames."
    if not total.auxiliary:
        return f"{sign} {main:.6g} over {frames}"
    part = total.auxiliary / total.weight
    return f"{sign} {main:.6g} + {part:.6g} = {main + part:.6g} over {frames}"


@attrs.define
class ObjectiveLog:
    """Says the objective of each output every few minibatches.

    As in Kaldi, a range of minibatches is said when the next one begins, so the last is not.

    Attributes:
        interval: Number of minibatches of a range.
        say: Takes a line.
    """

    interval: int
    say: Say
    _first: int = 0
    _sums: dict[str, ObjectiveSum] = attrs.field(factory=dict)

    def add(self, minibatch: int, objectives: Mapping[str, Objective]) -> None:
        """Adds the objectives of a minibatch, counted from 0."""
        first = minibatch // self.interval * self.interval
        if first != self._first:
            for name, total in self._sums.items():
                minibatches = f"{self._first}-{self._first + self.interval - 1}"
                self.say(
                    f"Average objective function for '{name}' for minibatches {minibatches} "
                    + value(total)
                )
            self._first, self._sums = first, {}
        for name, objective in objectives.items():
            self._sums.setdefault(name, ObjectiveSum()).add(objective)


def say_totals(totals: Mapping[str, ObjectiveSum], say: Say) -> None:
    """Says the objective of each output over all minibatches."""
    for name, total in totals.items():
        say(f"Overall average objective function for '{name}' " + value(total))
        say(f"[this line is to be parsed by a script:] log-prob-per-frame={total.per_frame:.6g}")
