"""The effects of a computation that a user can observe."""

from __future__ import annotations

from collections import defaultdict

import attrs

from nnet3_optimizer.equivalence.symbols.prime_field import PRIME
from nnet3_optimizer.equivalence.symbols.stretches import Stretches


@attrs.frozen(eq=False)
class Provided:
    """A matrix that was given to the user.

    Attributes:
        command: The position of the ProvideOutput.
        content: Its elements, one row for each row of the pattern.
        block: The order of its rows; see `pattern`.
    """

    command: int
    content: Stretches
    block: int


@attrs.define
class Contributions:
    """The terms that calls of a component add to its update or its statistics.

    Attributes:
        total: The sum over all rows of all calls.
        calls: The sum over the rows of each call, in order.
        commands: The positions of the calls.
    """

    total: int = 0
    calls: list[int] = attrs.field(factory=list)
    commands: list[int] = attrs.field(factory=list)

    def add(self, contribution: int, command: int) -> None:
        """Adds a call."""
        self.total = (self.total + contribution) % PRIME
        self.calls.append(contribution)
        self.commands.append(command)


def _contributions() -> dict[int, Contributions]:
    return defaultdict(Contributions)


@attrs.define
class Behaviour:
    """The effects of a computation that a user can observe.

    Attributes:
        provided: The matrices given to the user, by segment and node.
        updates: For each component that is updated, the terms of its update.
        stats: For each component with new statistics, the terms of these.
    """

    provided: dict[tuple[int, int], Provided] = attrs.field(factory=dict)
    updates: dict[int, Contributions] = attrs.field(factory=_contributions)
    stats: dict[int, Contributions] = attrs.field(factory=_contributions)
