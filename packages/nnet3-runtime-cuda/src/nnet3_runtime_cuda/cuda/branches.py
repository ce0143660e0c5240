"""Branches of a captured graph: calls that may run at the same time, and what each waits for.

A narrow product, or a kernel of few blocks, leaves most multiprocessors of a device idle. So the
calls of a segment go to a few branches. Within a branch they run in the order of recording; a call
waits for those calls of other branches that access the same memory, unless both only read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import attrs
import numpy as np

from nnet3_runtime_cuda.cuda.element_kernels import Stores
from nnet3_runtime_cuda.cuda.fusion import Group, Kind
from nnet3_runtime_cuda.cuda.recorded import Indexed, Map, View

MOST_BRANCHES = 4


@attrs.frozen
class Accesses:
    """The memory that a call accesses.

    Attributes:
        reads: The views that it reads, without values that it has made itself.
        writes: The views that it writes.
        is_opaque: Whether it may access any memory.
        decision: The number of the decision of the host on which it depends, or -1.
    """

    reads: tuple[View, ...]
    writes: tuple[View, ...]
    is_opaque: bool = False
    decision: int = -1


def accesses_of(groups: Sequence[tuple[Group, Stores]]) -> Accesses:
    """The accesses of groups that share a kernel, each with what it stores."""
    reads: list[View] = []
    writes: list[View] = []
    for group, stores in groups:
        made: set[View] = set()
        for position, operation in enumerate(group.operations):
            reads += [view for view in operation.reads if view not in made]
            made.update(operation.writes)
            is_scattered = isinstance(operation, Map) and isinstance(operation.out, Indexed)
            if group.kind is Kind.SINGLE or is_scattered or stores(position):
                writes += operation.writes
    operations = [operation for group, _ in groups for operation in group.operations]
    return Accesses(
        tuple(reads),
        tuple(writes),
        is_opaque=any(operation.is_opaque for operation in operations),
        decision=operations[0].decision,
    )


def needs_of(calls: Sequence[Accesses]) -> list[list[int]]:
    """For each call the numbers of calls before it that it must follow.

    Those that it follows in any case, because others that it follows do, are left out.
    """
    views = [(view, is_written) for each in calls for view, is_written in _views(each)]
    begin = np.array([view.begin for view, _ in views], dtype=np.int64)
    end = np.array([view.end for view, _ in views], dtype=np.int64)
    is_written = np.array([each for _, each in views], dtype=bool)
    owner = [number for number, each in enumerate(calls) for _ in _views(each)]
    needs: list[list[int]] = []
    all_before: list[int] = []  # of each call, with a bit for each that it follows
    opaque: list[int] = []
    first = 0
    for number, each in enumerate(calls):
        near: list[tuple[int, View | None, View | None]] = [
            (other, None, None) for other in (range(number) if each.is_opaque else opaque)
        ]
        for view, writes in _views(each):
            meets = (begin[:first] < view.end) & (end[:first] > view.begin)
            if not writes:
                meets &= is_written[:first]
            near += [(owner[k], views[k][0], view) for k in np.flatnonzero(meets).tolist()]
        found, before = [], 0
        for other, there, here in sorted(near, key=itemgetter(0), reverse=True):
            if before >> other & 1 or (there and here and not there.overlaps(here)):
                continue
            found.append(other)
            before |= 1 << other
            if calls[other].decision in (-1, each.decision):
                # It runs whenever this call does.
                before |= all_before[other]
        needs.append(found[::-1])
        all_before.append(before)
        if each.is_opaque:
            opaque.append(number)
        first += len(_views(each))
    return needs


def _views(each: Accesses) -> list[tuple[View, bool]]:
    return [(view, False) for view in each.reads] + [(view, True) for view in each.writes]


def branches_of(needs: Sequence[Sequence[int]], takes_time: Sequence[bool]) -> list[int]:
    """The branch of each call: the one where it begins first, if all calls take the same time.

    If it can begin in several, it follows the last call that it needs. Calls that take no time, as
    they hardly ever run, go to the first branch.
    """
    ends: list[int] = []
    branches: list[int] = []
    free = [0] * MOST_BRANCHES
    for each, counts in zip(needs, takes_time, strict=True):
        if not counts:
            ends.append(0)
            branches.append(0)
            continue
        latest = max(each, key=lambda number: (ends[number], number), default=None)
        ready, home = (0, 0) if latest is None else (ends[latest], branches[latest])
        start, _, _, branch = min(
            (max(ready, at), branch != home, -at, branch) for branch, at in enumerate(free)
        )
        free[branch] = start + 1
        ends.append(start + 1)
        branches.append(branch)
    return branches


def waits_of(
    branches: Sequence[int], needs: Sequence[Sequence[int]], chosen: Sequence[int]
) -> list[list[int]]:
    """For each chosen call the places of those of other branches that it waits for.

    Args:
        branches: Of all calls.
        needs: Of all calls, see `needs_of`.
        chosen: The numbers of those that run, in order; their places in it are the result.
    """
    places = {number: place for place, number in enumerate(chosen)}
    done: list[list[int]] = []  # for each call, the last place of each branch that is done with it
    last = [[-1] * MOST_BRANCHES for _ in range(MOST_BRANCHES)]
    waits: list[list[int]] = []
    for place, number in enumerate(chosen):
        before, kept = last[branches[number]], []
        for other in sorted((places[n] for n in needs[number] if n in places), reverse=True):
            if before[branches[chosen[other]]] < other:
                kept.append(other)
                before = [*map(max, before, done[other])]
        before = [*before]
        before[branches[number]] = place
        last[branches[number]] = before
        done.append(before)
        waits.append(kept)
    return waits
