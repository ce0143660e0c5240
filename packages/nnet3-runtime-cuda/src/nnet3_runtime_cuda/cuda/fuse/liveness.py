"""The readers of each result; a result without readers need not be stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.recorded.recorded_operations import Map, Operation, Product, Reduce

SMALLEST_STORE, LONGEST_SEARCH = 1 << 20, 400
"""For results of at least this many bytes, the search for readers goes on until they are
overwritten; and the most operations that it looks at."""

Stretch = tuple[int, int]
"""Addresses from the first to behind the last."""


def later_readers(
    operations: Sequence[Operation], is_scratch: Callable[[View], bool]
) -> list[list[int] | None]:
    """For each operation the numbers of the operations that read its result later.

    None if they are not known. Scratch memory is dead at the end of its command, other memory once
    all of it has been overwritten.
    """
    readers: list[list[int] | None] = []
    for number, operation in enumerate(operations):
        if all(is_scratch(view) for view in operation.writes):
            readers.append(_of_scratch(operations, number))
        else:
            readers.append(_before_overwritten(operations, number))
    return readers


def _of_scratch(operations: Sequence[Operation], number: int) -> list[int]:
    operation, found = operations[number], []
    for later in range(number + 1, len(operations)):
        other = operations[later]
        if other.command != operation.command:
            break
        if any(w.overlaps(r) for w in operation.writes for r in other.reads):
            found.append(later)
    return found


def _before_overwritten(operations: Sequence[Operation], number: int) -> list[int] | None:
    """The readers of a large element-wise result, if all of it is overwritten later."""
    operation = operations[number]
    if not isinstance(operation, Map) or not isinstance(operation.out, View):
        return None
    view = operation.out
    if not view.is_dense or view.size * view.itemsize < SMALLEST_STORE:
        return None
    left, found = [(view.begin, view.end)], []
    for later in range(number + 1, min(number + LONGEST_SEARCH, len(operations))):
        other = operations[later]
        if any(_meets(r, left) and r.overlaps(view) for r in other.reads):
            found.append(later)
        if other.is_opaque:
            return None
        if other.guards or other.decision >= 0 or not isinstance(other, Map | Product | Reduce):
            continue
        for written in other.writes:
            if written.is_dense and not _is_scattered(other):
                left = _without(left, (written.begin, written.end))
        if not left:
            return found
    return None


def _is_scattered(operation: Operation) -> bool:
    return isinstance(operation, Map) and not isinstance(operation.out, View)


def _meets(view: View, stretches: Sequence[Stretch]) -> bool:
    return any(begin < view.end and view.begin < end for begin, end in stretches)


def _without(stretches: Sequence[Stretch], taken: Stretch) -> list[Stretch]:
    """The parts of stretches outside of another stretch."""
    left = []
    for begin, end in stretches:
        if begin < min(taken[0], end):
            left.append((begin, min(taken[0], end)))
        if max(taken[1], begin) < end:
            left.append((max(taken[1], begin), end))
    return left
