"""The factors of tiled products: sums of the taps' parameters, laid out for products.

The factors are G w, with the matrix G of `MinimalFiltering`. The first factor is the first tap's
parameters and the last one the last tap's; the others are sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnet3_runtime_cuda.kernels.base import ComponentStore
from nnet3_runtime_cuda.kernels.tiles.tile_blocking import Part
from nnet3_runtime_cuda.operations import Array, Operations
from nnet3_runtime_cuda.operations.panels import WIDTH, Panels

PADDING = 16
"""Elements added to each row of a matrix that is read by columns, so that its rows do not all fall
into the same set of the cache."""

TRANSPOSED_ELEMENTS = 1 << 16
"""About how many elements are transposed at a time: 256 KiB, which stay in the cache."""


class TileFactors:
    """The factors for parameters A = [A_0 A_1 ...], (output_dim, taps * input_dim)."""

    def __init__(
        self,
        store: ComponentStore,
        linear: Array,
        taps: Array,
        parts: Sequence[Part],
        *,
        in_panels: bool,
    ) -> None:
        """Prepares the factors of some parts.

        Args:
            store: Keeps the factors of fixed parameters.
            linear: A, which can be a view of columns of a larger matrix.
            taps: G, (products, taps).
            parts: All parts.
            in_panels: Whether factors are laid out in panels.
        """
        self._store, self._linear, self._taps, self._parts = store, linear, taps, parts
        self._in_panels = in_panels

    def by_tap(self, matrix: Array, part: Part) -> Array:
        """A part of (output_dim, taps * input_dim) as (outputs, taps, inputs): a view."""
        by_tap = matrix.reshape(len(matrix), self._taps.shape[1], -1)
        return by_tap[part.outputs.span, :, part.inputs.span]

    def memory(self, tape: Operations, count: int) -> Array:
        """Scratch memory for `count` factors of any part."""
        return tape.scratch(count * max(math.prod(part.shape) for part in self._parts))

    def of_part(self, memory: Array, part: Part, count: int) -> Array:
        """The factors of a part in that memory: (factors, outputs, inputs)."""
        return memory[: count * math.prod(part.shape)].reshape(count, *part.shape)

    def forward(self, tape: Operations, part: Part) -> Sequence[Array | Panels]:
        """Records the computation of the factors of x A^T, each (inputs, outputs)."""
        if self._store.is_fixed:
            return self._fixed(part)
        return self._changing(tape, part, transposed=True)

    def backward(self, tape: Operations, part: Part) -> Sequence[Array | Panels]:
        """Records the computation of the factors of dy A, each (outputs, inputs)."""
        return self._changing(tape, part, transposed=False)

    def _fixed(self, part: Part) -> Sequence[Array | Panels]:
        def record(tape: Operations) -> list[list[Array]]:
            memories = [self.memory(tape, self._num_sums) for _ in self._parts]
            return [
                self._whole(tape, each, memory)
                for each, memory in zip(self._parts, memories, strict=True)
            ]

        groups = self._store.fixed_factors(
            self._linear, self._taps.shape, record, in_panels=self._in_panels
        )
        return groups[part.number]

    def _changing(
        self, tape: Operations, part: Part, *, transposed: bool
    ) -> Sequence[Array | Panels]:
        if self._in_panels:
            memory = self.memory(tape, self._num_sums + self._taps.shape[1])
            return self._panels(tape, part, memory, transposed=transposed)
        factors = self._whole(tape, part, self.memory(tape, self._num_sums))
        return [factor.T for factor in factors] if transposed else factors

    def _whole(self, tape: Operations, part: Part, memory: Array) -> list[Array]:
        """Records G w, each (outputs, inputs): the first and last are views of the parameters."""
        of_taps = self.by_tap(self._linear, part)
        sums = self.of_part(memory, part, self._num_sums)
        tape.small_products(self._taps[1:-1], of_taps, sums.transpose(1, 0, 2))
        return [of_taps[:, 0], *sums, of_taps[:, -1]]

    @property
    def _transposed_shape(self) -> tuple[int, int]:
        """Rows and columns of the memory in which parameters are transposed."""
        columns = max(part.shape[1] for part in self._parts) + PADDING
        return max(TRANSPOSED_ELEMENTS // (columns * WIDTH), 1) * WIDTH, columns

    def _panels(
        self, tape: Operations, part: Part, memory: Array, *, transposed: bool
    ) -> Sequence[Panels]:
        """Records G w in panels: copies of parameters, and sums of the panels.

        Args:
            tape: Records the arithmetic.
            part: The columns.
            memory: Memory for all taps and sums.
            transposed: Whether factors are (inputs, outputs), not (outputs, inputs).
        """
        count, of_taps = self._taps.shape[1], self.by_tap(self._linear, part)
        rows = self.of_part(memory, part, count + self._num_sums).reshape(-1, math.prod(part.shape))
        inner, columns = part.shape[::-1] if transposed else part.shape
        panels = [Panels.within(row, (inner, columns)) for row in rows]
        # A thread sums up the panels that it has copied, so it need not wait for other threads.
        for share in tape.shared(-(-columns // WIDTH), rows.size):
            start, end = share.start * WIDTH, min(share.stop * WIDTH, columns)
            for tap in range(count):
                if transposed:
                    self._record_transposed(tape, of_taps[start:end, tap], panels[tap], start)
                else:
                    panels[tap].record_copy(tape, of_taps[:, tap, start:end], start)
            for place in panels[0].places(start, end):
                tape.small_products(self._taps[1:-1], rows[:count, place], rows[count:, place])
        return [panels[0], *panels[count:], panels[count - 1]]

    def _record_transposed(
        self, tape: Operations, source: Array, panels: Panels, start: int
    ) -> None:
        """Records that the rows of the source become columns of the panels, from `start` on."""
        height, width = self._transposed_shape
        with tape.passing():
            memory = tape.scratch(height, width)
            for first in range(0, len(source), height):
                rows = source[first : first + height]
                copy = memory[: len(rows), : rows.shape[1]]
                tape.copy(rows, copy)
                panels.record_copy(tape, copy.T, start + first)

    @property
    def _num_sums(self) -> int:
        """Number of factors that are sums, not parameters of one tap."""
        return len(self._taps) - 2
