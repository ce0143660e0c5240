"""The parts of the columns of a tiled product, and its factors.

The wider side, input or output, is computed in parts of its columns. The narrower side is
transformed once.

The factors are G w, with the matrix G of `MinimalFiltering`. The first factor is the first tap's
parameters and the last one the last tap's; the others are sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nnet3_runtime_cuda.kernels.base import ComponentStore
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.panels import WIDTH, Panels
from nnet3_runtime_cuda.operations.scratch import parts_of_at_most

PART_COLUMNS = 768
"""The most columns of the wider side that are computed at a time."""

ABOUT_AS_WIDE = 2
"""Sides are about as wide if neither has this many times the columns of the other."""


class Part(NamedTuple):
    """The columns that are computed at a time; one of the two sides has all its columns.

    Attributes:
        number: Number of the part, from 0.
        inputs, outputs: Columns of the input, and of the output.
        begins_inputs, begins_outputs: Whether no earlier part uses these columns.
        ends_inputs, ends_outputs: Whether no later part uses these columns.
    """

    number: int
    inputs: slice
    outputs: slice
    begins_inputs: bool
    begins_outputs: bool
    ends_inputs: bool
    ends_outputs: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Number of outputs and of inputs."""
        return self.outputs.stop - self.outputs.start, self.inputs.stop - self.inputs.start


def parts_of(spans: Sequence[slice], everything: slice, *, is_wide_input: bool) -> list[Part]:
    """Parts of the wider side's columns, each with all columns of the narrower side."""
    parts = []
    for number, span in enumerate(spans):
        is_first, is_last = number == 0, number == len(spans) - 1
        if is_wide_input:
            parts.append(Part(number, span, everything, True, is_first, True, is_last))
        else:
            parts.append(Part(number, everything, span, is_first, True, is_last, True))
    return parts


def fixed_parts(input_dim: int, output_dim: int) -> list[Part]:
    """The parts for parameters in panels that never change, whatever the number of rows."""
    narrow, wide = sorted((input_dim, output_dim))
    spans = parts_of_at_most(wide, most_fixed_columns(narrow, wide))
    return parts_of(spans, slice(0, narrow), is_wide_input=input_dim > output_dim)


def most_fixed_columns(narrow: int, wide: int) -> int:
    """The most columns of the wider side in such a part."""
    return wide if wide < ABOUT_AS_WIDE * narrow else PART_COLUMNS


SAME_SET = 4096
"""Bytes between rows that fall into the same set of a cache, if they are a multiple of it."""

PADDING = 16
"""Elements added to each row of a matrix that is read by columns, so that its rows do not."""

TRANSPOSED_ELEMENTS = 1 << 16
"""About how many elements are transposed at a time: 256 KiB, which stay in the cache."""


def _record_transposed(tape: Tape, source: Array, panels: Panels, start: int) -> None:
    """Records that the rows of the source become columns of the panels, from `start` on."""
    columns = source.shape[1] + PADDING
    height = max(TRANSPOSED_ELEMENTS // (columns * WIDTH), 1) * WIDTH
    with tape.passing():
        memory = tape.scratch(height, columns)
        for first in range(0, len(source), height):
            rows = source[first : first + height]
            copy = memory[: len(rows), : rows.shape[1]]
            tape.copy(rows, copy)
            panels.record_copy(tape, copy.T, start + first)


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
        return by_tap[part.outputs, :, part.inputs]

    def memory(self, tape: Tape, count: int) -> Array:
        """Scratch memory for `count` factors of any part."""
        return tape.scratch(count * max(math.prod(part.shape) for part in self._parts))

    def of_part(self, memory: Array, part: Part, count: int) -> Array:
        """The factors of a part in that memory: (factors, outputs, inputs)."""
        return memory[: count * math.prod(part.shape)].reshape(count, *part.shape)

    def forward(self, tape: Tape, part: Part) -> Sequence[Array | Panels]:
        """Records the computation of the factors of x A^T, each (inputs, outputs)."""
        if self._store.is_fixed:
            return self._fixed(part)
        return self._changing(tape, part, transposed=True)

    def backward(self, tape: Tape, part: Part) -> Sequence[Array | Panels]:
        """Records the computation of the factors of dy A, each (outputs, inputs)."""
        return self._changing(tape, part, transposed=False)

    def _fixed(self, part: Part) -> Sequence[Array | Panels]:
        def record(tape: Tape) -> list[list[Array]]:
            memories = [self.memory(tape, self._num_sums) for _ in self._parts]
            wholes = [
                self._whole(tape, each, memory)
                for each, memory in zip(self._parts, memories, strict=True)
            ]
            return [whole[1:-1] if self._in_panels else whole for whole in wholes]

        groups = self._store.fixed_factors(
            self._linear, self._taps.shape, record, in_panels=self._in_panels
        )
        if not self._in_panels:
            return groups[part.number]
        # Products of few rows use the same panels: see `record_by_taps`.
        of_taps = self.by_tap(self._linear, part)
        first, last = (self._store.panels(of_taps[:, tap]) for tap in (0, -1))
        return [first, *groups[part.number], last]

    def _changing(self, tape: Tape, part: Part, *, transposed: bool) -> Sequence[Array | Panels]:
        if self._in_panels:
            memory = self.memory(tape, self._num_sums + self._taps.shape[1])
            return self._panels(tape, part, memory, transposed=transposed)
        factors = self._whole(tape, part, self.memory(tape, self._num_sums))
        return [factor.T for factor in factors] if transposed else factors

    def _whole(self, tape: Tape, part: Part, memory: Array) -> list[Array]:
        """Records G w, each (outputs, inputs): the first and last are views of the parameters."""
        of_taps = self.by_tap(self._linear, part)
        sums = self.of_part(memory, part, self._num_sums)
        tape.small_products(self._taps[1:-1], of_taps, sums.transpose(1, 0, 2))
        return [of_taps[:, 0], *sums, of_taps[:, -1]]

    def _panels(
        self, tape: Tape, part: Part, memory: Array, *, transposed: bool
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
                if not transposed:
                    panels[tap].record_copy(tape, of_taps[:, tap, start:end], start)
                elif of_taps.strides[0] % SAME_SET:
                    panels[tap].record_copy(tape, of_taps[start:end, tap].T, start)
                else:
                    _record_transposed(tape, of_taps[start:end, tap], panels[tap], start)
            for place in panels[0].places(start, end):
                tape.small_products(self._taps[1:-1], rows[:count, place], rows[count:, place])
        return [panels[0], *panels[count:], panels[count - 1]]

    @property
    def _num_sums(self) -> int:
        """Number of factors that are sums, not parameters of one tap."""
        return len(self._taps) - 2
