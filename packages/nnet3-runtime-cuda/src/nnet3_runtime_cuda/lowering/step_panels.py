"""Panels of parameters that may change, for the steps of a recurrence.

Parameters that are fixed lie in panels once and for all (`panels`). Those that are trained would
have to be copied for each product; but the steps of a recurrence multiply a few rows each by the
same parameters, and these do not change during a run. So the first step copies them, forward and
backward.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import attrs

from ..kernels import Kernel
from ..kernels.parameter_products import gains_by_panels
from ..panels import Panels
from ..tape import Array, Tape

FEWEST_STEPS = 16
"""A copy takes as long as what seven steps of eight rows save."""

FEWEST_PARAMETERS = 1 << 16
"""Fewer are read from a cache at each step, however they lie."""


@attrs.frozen
class Factor:
    """The part of the parameters A of an affine map that a step multiplies by.

    Attributes:
        component: Number of the component.
        is_backward: Whether dy A is computed, else x A^T.
        skipped: The first columns of A that are left out.
        rows: The rows of A: first, and end.
    """

    component: int
    is_backward: bool
    skipped: int
    rows: tuple[int, int]

    def of(self, kernel: Kernel) -> Array:
        """The factor, (inner, columns), as a view of the parameters of the component's kernel."""
        part = kernel.factor(slice(*self.rows), self.skipped)
        return part if self.is_backward else part.T


def gains(tape: Tape, kernel: Kernel, num_rows: int) -> bool:
    """Whether steps of so many rows gain by a copy of the parameters in panels.

    Fixed parameters are in panels anyhow.
    """
    return not kernel.store.is_fixed and gains_by_panels(tape, num_rows)


@attrs.define(eq=False)
class Buffer:
    """Memory for the panels of several factors, of which one is in use at a time.

    Attributes:
        size: Of the largest.
        uses: For each, the positions of its first and last step.
        memory: (size,), once it is needed.
    """

    size: int
    uses: list[tuple[int, int]] = attrs.field(factory=list)
    memory: Array | None = None

    def is_free(self, first: int, last: int) -> bool:
        """Whether no panels are in it from one position to another."""
        return all(last < begin or end < first for begin, end in self.uses)


class StepPanels:
    """Which steps use which panels, and the memory of these."""

    def __init__(
        self, steps: Iterable[tuple[int, Factor]], size_of: Callable[[Factor], int]
    ) -> None:
        """Plans them.

        Args:
            steps: Positions of commands, in order, and what they multiply by.
            size_of: The number of elements of a factor.
        """
        positions: dict[Factor, list[int]] = defaultdict(list)
        for position, factor in steps:
            positions[factor].append(position)
        self._factors: dict[int, Factor] = {}
        self._buffers: dict[Factor, Buffer] = {}
        self._panels: dict[Factor, Panels] = {}
        buffers: list[Buffer] = []
        for factor in sorted(positions, key=size_of, reverse=True):
            at = positions[factor]
            if len(at) < FEWEST_STEPS or size_of(factor) < FEWEST_PARAMETERS:
                continue
            use = at[0], at[-1]
            buffer = next((buffer for buffer in buffers if buffer.is_free(*use)), None)
            if buffer is None:
                buffer = Buffer(size_of(factor))
                buffers.append(buffer)
            buffer.uses.append(use)
            self._factors.update(dict.fromkeys(at, factor))
            self._buffers[factor] = buffer

    def factor_at(self, position: int) -> Factor | None:
        """What the command at a position is to multiply by, if that is to be in panels."""
        return self._factors.get(position)

    def record(self, tape: Tape, position: int, kernel: Kernel) -> Panels:
        """The panels for the command at a position; the first of its steps records the copy.

        Args:
            tape: Records the copy.
            position: Of a command that has a factor.
            kernel: Of its component.
        """
        factor = self._factors[position]
        if factor not in self._panels:
            matrix, buffer = factor.of(kernel), self._buffers[factor]
            if buffer.memory is None:
                buffer.memory = tape.persistent(buffer.size)
            inner, columns = matrix.shape
            panels = Panels.within(buffer.memory[: matrix.size], (inner, columns))
            panels.record_copy(tape, matrix)
            self._panels[factor] = panels
        return self._panels[factor]
