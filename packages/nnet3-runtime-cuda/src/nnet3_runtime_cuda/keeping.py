"""Keeps the present state of objects and of arrays on a machine, to go back to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nnet3_runtime_cuda.machine import Machine
from nnet3_runtime_cuda.operations import Array

Restore = Callable[[], object]
"""Goes back to the state that was kept; a second call does no harm."""


def keep_attributes(objects: Iterable[object]) -> Restore:
    """Keeps the attributes of objects, for those that are set anew instead of being changed."""
    kept = [(vars(each), vars(each).copy()) for each in objects]

    def restore() -> None:
        for attributes, before in kept:
            attributes.update(before)

    return restore


class KeptArrays:
    """Copies of arrays of a machine."""

    def __init__(self) -> None:
        """Begins without arrays."""
        self._count = 0
        self._copies: list[tuple[Restore, Restore]] = []

    def keep(self, machine: Machine, arrays: Sequence[Array]) -> Restore:
        """Keeps the contents of arrays, in place of the contents that were kept before.

        Args:
            machine: The machine of the arrays. It may own this object, which does not refer to it:
                memory is freed without garbage collection.
            arrays: Those of the call before, and perhaps further ones behind them.
        """
        new = arrays[self._count :]
        if new:
            there, back = (machine.tape(is_alone=True) for _ in range(2))
            for array in new:
                copy = machine.zeros(array.shape, array.dtype)
                there.copy(array, copy)
                back.copy(copy, array)
            self._copies.append((machine.finish(there), machine.finish(back)))
            self._count = len(arrays)
        for copy_there, _ in self._copies:
            copy_there()
        return self._restore

    def _restore(self) -> None:
        for _, copy_back in self._copies:
            copy_back()
