"""Comparison of the behaviour of two computations."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from nnet3_computation import checks, text
from nnet3_computation import commands as c
from nnet3_computation.computation import NnetComputation

from nnet3_optimizer.equivalence.contents import Rectangle
from nnet3_optimizer.equivalence.execution import Behaviour, Execution
from nnet3_optimizer.equivalence.hashes import NUMBERS, Supply
from nnet3_optimizer.errors import EquivalenceError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

ROUNDS = 3
_SHOWN = 5


def verify_equivalent(nnet: Nnet, before: NnetComputation, after: NnetComputation) -> None:
    """Proves that two computations give the same results for all inputs and parameters.

    The proof executes both on hashes: a computation is a straight line of commands on matrices of
    known sizes, so there is nothing to search and nothing is left out. Components are unknown
    functions; sums do not depend on their order; products of scales are exact. The proof compares
    every matrix that the user gets, row by row, and for each component the sums of the
    contributions to its update and to its statistics. A result that depends on undefined elements
    equals nothing.

    Hashes have 64 bits: a wrong "equal" has a probability below 2**-30, for computations of any
    size that fits into memory.

    A loop is compared with a straight line over the segments of the straight line, and with another
    loop over some rounds.

    Args:
        nnet: The network.
        before: A computation.
        after: Another one.

    Raises:
        EquivalenceError: They differ; the message names the first result that does, and the
            element or the calls. Or they were compiled for different requests.
        CheckError: A command of one of them cannot run, because sizes or lists do not fit; or a
            computation was compiled for another network.
    """
    for computation in (before, after):
        checks.check_fitting(nnet, computation)
    _compare_requests(before, after)
    Prover(nnet).verify(before, after)


class Prover:
    """Compares computations for one network, each with the next; see `verify_equivalent`."""

    def __init__(self, nnet: Nnet) -> None:
        self._nnet = nnet
        self._supply = Supply()
        self._last: tuple[NnetComputation, int | None, Behaviour] | None = None

    def verify(
        self, before: NnetComputation, after: NnetComputation, *, same_calls: bool = False
    ) -> None:
        """Proves that two computations give the same results.

        Args:
            before: A computation. If it was `after` in the previous call, it is not executed again.
            after: Another one.
            same_calls: Whether each component has to be updated by the same calls, in the same
                order. The calls do not matter for a plain gradient, which is a sum over all rows.
                They matter if updates are preconditioned, because the preconditioning depends on
                earlier calls.

        Raises:
            EquivalenceError: They differ.
        """
        segments = _num_segments(before, after)
        one = self._last_behaviour(before, segments) or self._execute(before, segments)
        other = self._execute(after, segments)
        self._last = after, segments, other
        try:
            _compare(self._nnet, one, other, same_calls=same_calls)
        except EquivalenceError as error:
            raise _explained(error, self._nnet, (before, after)) from None

    def _execute(self, computation: NnetComputation, segments: int | None) -> Behaviour:
        return Execution(self._nnet, computation, self._supply).run(segments)

    def _last_behaviour(
        self, computation: NnetComputation, segments: int | None
    ) -> Behaviour | None:
        """Returns the result for `after` of the previous call, if this is the same run."""
        if self._last is None or self._last[0] is not computation or self._last[1] != segments:
            return None
        return self._last[2]


def _compare_requests(before: NnetComputation, after: NnetComputation) -> None:
    """Raises an EquivalenceError if the fingerprints of their requests differ.

    A loop may come from more segments than the computation that it is compared with.
    """
    one, other = before.requests, after.requests
    if not one or not other:
        return
    loops = c.is_loop(before.command_table) or c.is_loop(after.command_table)
    if len(one) != len(other) and not loops:
        raise EquivalenceError(
            f"they were compiled for {len(one)} and for {len(other)} segments", what="requests"
        )
    for number, (made, wanted) in enumerate(zip(one, other, strict=False)):
        difference = made.difference(wanted)
        if difference is not None:
            raise EquivalenceError(
                f"they were compiled for different requests; segment {number} of the first: "
                f"{difference}",
                what="requests",
            )


def _explained(
    error: EquivalenceError, nnet: Nnet, computations: tuple[NnetComputation, NnetComputation]
) -> EquivalenceError:
    """Adds to the message the commands that the error names by their positions."""
    lines = [str(error)]
    for when, computation, positions in zip(
        ("before", "after"), computations, error.commands, strict=True
    ):
        shown = text.command_lines(computation, nnet, positions[:_SHOWN])
        lines += [f"  {when}, {line}" for line in shown]
    return EquivalenceError(
        "\n".join(lines),
        what=error.what,
        segment=error.segment,
        row=error.row,
        column=error.column,
        commands=error.commands,
    )


def _num_segments(before: NnetComputation, after: NnetComputation) -> int | None:
    """Returns how many segments to compare; None for all of two straight lines."""
    straight = [each for each in (before, after) if not c.is_loop(each.command_table)]
    if len(straight) == 2:
        return None
    if straight:
        return len(straight[0].segment_ends)
    return ROUNDS * max(len(each.segment_ends) for each in (before, after))


# -- differences -----------------------------------------------------------------------------------


def _compare(nnet: Nnet, one: Behaviour, other: Behaviour, *, same_calls: bool) -> None:
    """Raises an EquivalenceError that names the first difference between two behaviours.

    Args:
        nnet: The network.
        one: The behaviour of the first computation.
        other: The behaviour of the second one.
        same_calls: Whether components have to be updated by the same calls, in order.
    """
    for segment, node in sorted(one.provided.keys() | other.provided.keys()):
        first = one.provided.get((segment, node))
        second = other.provided.get((segment, node))
        name = nnet.node_names[node]
        what = f"what is provided for node '{name}' in segment {segment}"
        if first is None or second is None:
            which = "first" if second is None else "second"
            raise EquivalenceError(f"only the {which} computation has {what}", what=name)
        _compare_provided(first, second, segment, name)
    for kind, before, after in (
        ("update", one.updates, other.updates),
        ("statistics", one.stats, other.stats),
    ):
        for component in sorted(before.keys() | after.keys()):
            calls = before.get(component, []), after.get(component, [])
            added = [[each for each, _ in of_one] for of_one in calls]
            name = nnet.component_names[component]
            if (sum(added[0]) - sum(added[1])) % NUMBERS:
                message = f"the {kind} of component '{name}' differs"
            elif same_calls and kind == "update" and added[0] != added[1]:
                message = (
                    f"the update of component '{name}' is the same sum, but made by other calls, "
                    f"{len(added[0])} before and {len(added[1])} after, or in another order"
                )
            else:
                continue
            odd = _not_in(*calls), _not_in(*calls[::-1])
            raise EquivalenceError(message, what=name, commands=odd)


def _compare_provided(first: Rectangle, second: Rectangle, segment: int, name: str) -> None:
    one, other = first.rows(), second.rows()
    if np.array_equal(one, other):
        return
    what = f"what is provided for node '{name}' in segment {segment}"
    if len(one) != len(other):
        raise EquivalenceError(
            f"{what} has {len(one)} rows before and {len(other)} after", what=name
        )
    rows = np.flatnonzero(one != other).tolist()
    shown = ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")
    column = _first_column(first, second, rows[0])
    raise EquivalenceError(
        f"{what} differs in {len(rows)} of {len(one)} rows: {shown}; "
        f"row {rows[0]} from column {column} on",
        what=name,
        segment=segment,
        row=rows[0],
        column=column,
    )


def _first_column(one: Rectangle, other: Rectangle, row: int) -> int:
    """Returns the first column in which a row of one differs from that of the other."""
    points = sorted({*one.splits[:-1], *other.splits[:-1]})
    return next(point for point in points if one.at(row, point) != other.at(row, point))


def _not_in(calls: list[tuple[int, int]], others: list[tuple[int, int]]) -> tuple[int, ...]:
    """Returns the positions of the calls that only the first computation makes."""
    left, odd = Counter(call for call, _ in others), []
    for call, command in calls:
        left[call] -= 1
        if left[call] < 0:
            odd.append(command)
    return tuple(odd)
