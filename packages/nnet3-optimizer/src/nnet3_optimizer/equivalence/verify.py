"""Comparison of what two computations do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from nnet3_compiler.computation import NnetComputation

from nnet3_optimizer.equivalence.execution import Behaviour, SymbolicExecution
from nnet3_optimizer.errors import EquivalenceError
from nnet3_optimizer.loops import is_loop

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

_BEFORE, _AFTER = 1, 2
ROUNDS = 3
_SHOWN = 5


def verify_equivalent(nnet: Nnet, before: NnetComputation, after: NnetComputation) -> None:
    """Proves that two computations give the same results, whatever the inputs and parameters.

    Both are executed on symbols: a computation is a straight line of commands on matrices of known
    sizes, so there is nothing to search and nothing is left out. Components are unknown functions;
    sums do not depend on their order; scales are exact. What is compared: every matrix given to the
    user, row by row; for each component the sum of the contributions to its update, and to its
    statistics. A result that depends on undefined elements equals nothing.

    Equality is equality of 61-bit fingerprints, so a wrong "equal" has a probability below 1e-9.

    A loop is compared with a straight line over the segments of the latter, and with another loop
    over some rounds.

    Args:
        nnet: The network.
        before: A computation.
        after: Another one.

    Raises:
        EquivalenceError: They differ; the message names the first result that does.
    """
    num_segments = _num_segments(before, after)
    one = SymbolicExecution(nnet, before, _BEFORE).run(num_segments)
    other = SymbolicExecution(nnet, after, _AFTER).run(num_segments)
    compare_behaviour(nnet, one, other)


def _num_segments(before: NnetComputation, after: NnetComputation) -> int | None:
    """Returns how many segments to compare; None for all of two straight lines."""
    straight = [each for each in (before, after) if not is_loop(each.command_table)]
    if len(straight) == 2:
        return None
    if straight:
        return len(straight[0].segment_ends)
    return ROUNDS * max(len(each.segment_ends) for each in (before, after))


def compare_behaviour(nnet: Nnet, one: Behaviour, other: Behaviour) -> None:
    """Raises an EquivalenceError that names the first difference between two behaviours."""
    names = nnet.node_names
    for segment, node in sorted(one.provided.keys() | other.provided.keys()):
        what = f"what is provided for node '{names[node]}' in segment {segment}"
        first = one.provided.get((segment, node))
        second = other.provided.get((segment, node))
        if first is None or second is None:
            which = "first" if second is None else "second"
            raise EquivalenceError(f"only the {which} computation has {what}", what=names[node])
        if len(first) != len(second):
            raise EquivalenceError(
                f"{what} has {len(first)} rows before and {len(second)} after", what=names[node]
            )
        rows = np.flatnonzero(first != second).tolist()
        if rows:
            shown = ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")
            raise EquivalenceError(
                f"{what} differs in {len(rows)} of {len(first)} rows: {shown}", what=names[node]
            )
    for kind, before, after in (
        ("update", one.updates, other.updates),
        ("statistics", one.stats, other.stats),
    ):
        for component in sorted(before.keys() | after.keys()):
            if before.get(component) != after.get(component):
                name = nnet.component_names[component]
                raise EquivalenceError(f"the {kind} of component '{name}' differs", what=name)
