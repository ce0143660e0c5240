"""Symbolic execution of statistics over time: each row depends on a range of rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import repeat
from typing import Any

from nnet3_descriptors.components import (
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingPrecomputedIndexes,
)

from nnet3_optimizer.equivalence.execution.symbolic_state import SymbolicState
from nnet3_optimizer.equivalence.pattern import Indexes
from nnet3_optimizer.equivalence.symbols.keys import ABSENT, ABSENT_ROW, Keys, num_rows, rows_of
from nnet3_optimizer.equivalence.symbols.stretches import Stretches


def ranges_of(state: SymbolicState, precomputed: int) -> Any:
    """Returns the precomputed indexes of statistics, or None for another component."""
    indexes = state.computation.precomputed_indexes[precomputed]
    known = StatisticsExtractionPrecomputedIndexes, StatisticsPoolingPrecomputedIndexes
    return indexes if isinstance(indexes, known) else None


def forward(
    state: SymbolicState, component: int, indexes: Any, given: int, output: int
) -> Stretches:
    """Returns an unknown for each output row: a function of the rows in its range."""
    function = state.unknowns.function(("statistics", component))
    state.require_same_sequences(output, given)
    inputs = state.keys(given)
    begin, end = indexes.forward_indexes.T
    reduced = state.pattern.reduced_ranges(begin, end, output, given)
    column = function.of_call((inputs, reduced.tobytes()), lambda: _windows(inputs, reduced))
    return Stretches([0], [column])


def backward(
    state: SymbolicState,
    component: int,
    indexes: Any,
    values: tuple[int, int, int],
    input_deriv: int,
) -> Stretches:
    """Returns an unknown for each input row: a function of the output rows that it adds to.

    Args:
        state: The state.
        component: The component.
        indexes: Its precomputed indexes.
        values: The input and the output, 0 if the component does not read them, and the derivative
            of the output.
        input_deriv: The derivative of the input.
    """
    function = state.unknowns.function(("statistics, backward", component))
    given, output, deriv = values
    for each in (given, output, input_deriv):
        if each:
            state.require_same_sequences(each, deriv)
    inputs, outputs, derivs = (state.keys(each) if each else ABSENT for each in values)
    if isinstance(indexes, StatisticsExtractionPrecomputedIndexes):
        rows = state.pattern.reduced_rows(indexes.backward_indexes, input_deriv, deriv)

        def of_rows() -> list[Hashable]:
            of_outputs = list(_rows_or_absent(derivs, 0))
            pairs = zip(_rows_or_absent(inputs, len(rows)), rows.tolist(), strict=True)
            return [(each, of_outputs[row]) for each, row in pairs]

        return Stretches([0], [function.of_call((inputs, derivs, rows.tobytes()), of_rows)])

    begin, end = indexes.forward_indexes.T
    windows = state.pattern.reduced_ranges(begin, end, deriv, given) if given else None
    first, last = indexes.backward_indexes.T
    spans = state.pattern.reduced_ranges(first, last, input_deriv, deriv)

    def of_ranges() -> list[tuple[Hashable, ...]]:
        count = num_rows(derivs)
        in_windows = [()] * count if windows is None else _windows(inputs, windows)
        rows = zip(in_windows, _rows_or_absent(outputs, count), rows_of(derivs), strict=True)
        numbers = [state.unknowns.number(row) for row in rows]
        return [tuple(numbers[begin:end]) for begin, end in spans.tolist()]

    about = None if windows is None else windows.tobytes()
    call = inputs, outputs, derivs, about, spans.tobytes()
    return Stretches([0], [function.of_call(call, of_ranges)])


def _rows_or_absent(keys: Keys, count: int) -> Iterable[Hashable]:
    return repeat(ABSENT_ROW, count) if keys == ABSENT else rows_of(keys)


def _windows(keys: Keys, spans: Indexes) -> list[tuple[Hashable, ...]]:
    """Returns the rows in each range, begin and end in the columns of (ranges, 2)."""
    rows = tuple(rows_of(keys))
    return [rows[begin:end] for begin, end in spans.tolist()]
