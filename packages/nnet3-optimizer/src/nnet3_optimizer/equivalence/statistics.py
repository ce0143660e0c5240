"""Symbolic execution of statistics over time: each row depends on a range of rows, not on all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import repeat
from typing import Any

import numpy as np
from nnet3_descriptors.components import (
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingPrecomputedIndexes,
)

from nnet3_optimizer.equivalence.frames_state import FramesState
from nnet3_optimizer.equivalence.keys import ABSENT, ABSENT_ROW, Keys, num_rows, rows_of
from nnet3_optimizer.equivalence.labelled_state import LabelledState
from nnet3_optimizer.equivalence.labels import Ints
from nnet3_optimizer.equivalence.pattern import Indexes, IrregularError
from nnet3_optimizer.equivalence.state import State
from nnet3_optimizer.equivalence.stretches import Stretches, rows_taken
from nnet3_optimizer.equivalence.unknowns import Function


def ranges_of(state: State, precomputed: int) -> Any:
    """Returns the precomputed indexes of statistics, or None for those of other components."""
    indexes = state.computation.precomputed_indexes[precomputed]
    known = StatisticsExtractionPrecomputedIndexes, StatisticsPoolingPrecomputedIndexes
    return indexes if isinstance(indexes, known) else None


def forward(state: State, component: int, indexes: Any, given: int, output: int) -> Stretches:
    """Returns an unknown for each output row: a function of the rows in its range."""
    function = state.unknowns.function(("statistics", component))
    if isinstance(state, LabelledState):
        spans = state.pattern.windows(*_ends(indexes.forward_indexes), output, given)
        return state.of_windows(function, spans, state.numbers_of_rows(given))
    if isinstance(state, FramesState):
        windows, of = state.pattern.windows(indexes.forward_indexes, output, given)
        column = function.of_each(_taken(list(rows_of(state.keys(given))), windows))
        return Stretches([0], [rows_taken(column, state.pattern.joined(output, of))])
    state.require_same_sequences(output, given)
    inputs = state.keys(given)
    begin, end = indexes.forward_indexes.T
    reduced = state.pattern.reduced_ranges(begin, end, output, given)
    column = function.of_call((inputs, reduced.tobytes()), lambda: _windows(inputs, reduced))
    return Stretches([0], [column])


def backward(
    state: State,
    component: int,
    indexes: Any,
    values: tuple[int, int, int],
    input_deriv: int,
) -> Stretches:
    """Returns an unknown for each input row: a function of the output rows that it goes into.

    Args:
        state: The state.
        component: The component.
        indexes: Its precomputed indexes.
        values: The input and the output, 0 if it does not look at them, and the derivative of the
            output.
        input_deriv: The derivative of the input.
    """
    function = state.unknowns.function(("statistics, backward", component))
    if isinstance(state, LabelledState):
        return _backward_by_labels(state, function, indexes, values, input_deriv)
    if isinstance(state, FramesState):
        return _backward_by_frames(state, function, indexes, values, input_deriv)
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


def _backward_by_labels(
    state: LabelledState,
    function: Function,
    indexes: Any,
    values: tuple[int, int, int],
    input_deriv: int,
) -> Stretches:
    """Returns the same for classes of rows."""
    given, output, deriv = values
    if isinstance(indexes, StatisticsExtractionPrecomputedIndexes):
        if given:
            state.require_same_order(given, input_deriv)
        rows = indexes.backward_indexes.astype(np.int64)
        if (rows < 0).any():
            raise IrregularError
        derivs = state.read(deriv).taken(state.pattern.moves(rows, input_deriv, deriv))
        return state.call(function, state.read(given) if given else None, derivs)
    if output:
        state.require_same_order(output, deriv)
    columns = [state.numbers_of_rows(each) for each in (output, deriv) if each]
    if given:
        windows = state.pattern.windows(*_ends(indexes.forward_indexes), deriv, given)
        held, is_absolute, place = windows.held(state.numbers_of_rows(given))
        number = state.unknowns.number
        in_windows = np.array([number(("window", is_absolute, each)) for each in held])
        columns.append(np.zeros_like(columns[0]) + in_windows[0 if place is None else place])
    different, place = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    numbers = [state.unknowns.number(("pooled", *each)) for each in different.tolist()]
    spans = state.pattern.windows(*_ends(indexes.backward_indexes), input_deriv, deriv)
    return state.of_windows(function, spans, np.array(numbers)[place.ravel()])


def _backward_by_frames(
    state: FramesState,
    function: Function,
    indexes: Any,
    values: tuple[int, int, int],
    input_deriv: int,
) -> Stretches:
    """Returns the same for frames."""
    pattern = state.pattern
    given, output, deriv = values
    for one, other in ((given, input_deriv), (output, deriv)):
        if one:
            state.require_same_order(one, other)
    inputs, outputs, derivs = (list(rows_of(state.keys(each))) if each else [] for each in values)
    if isinstance(indexes, StatisticsExtractionPrecomputedIndexes):
        rows = indexes.backward_indexes[:, None] + np.array([0, 1])
        windows, of = pattern.windows(rows, input_deriv, deriv)
        frame = pattern.part_of[input_deriv].frame
        pairs, of = np.unique(frame * len(windows) + of, return_inverse=True)
        of_outputs = _taken(derivs, windows)
        column = function.of_each(
            (inputs[frame] if given else ABSENT_ROW, of_outputs[window])
            for frame, window in np.stack(np.divmod(pairs, len(windows)), axis=1).tolist()
        )
        return Stretches([0], [rows_taken(column, pattern.joined(input_deriv, of.ravel()))])
    rows = pattern.part_of[deriv].frame
    in_windows: list[Hashable] = [ABSENT_ROW]
    if given:
        windows, of = pattern.windows(indexes.forward_indexes, deriv, given)
        rows, in_windows = of * len(derivs) + rows, _taken(inputs, windows)
    different, rows = np.unique(rows, return_inverse=True)
    numbers = [
        state.unknowns.number(
            (in_windows[window], outputs[frame] if output else ABSENT_ROW, derivs[frame])
        )
        for window, frame in np.stack(np.divmod(different, len(derivs)), axis=1).tolist()
    ]
    windows, of = pattern.windows(indexes.backward_indexes, input_deriv, deriv, rows.ravel())
    column = function.of_each(_taken(numbers, windows))
    return Stretches([0], [rows_taken(column, pattern.joined(input_deriv, of))])


def _taken(rows: list[Any], windows: list[list[int]]) -> list[Hashable]:
    """Returns the rows that each window holds."""
    return [tuple([rows[row] for row in window]) for window in windows]


def _ends(ranges: Indexes) -> tuple[Ints, Ints]:
    begin, end = ranges.T.astype(np.int64)
    return begin, end


def _rows_or_absent(keys: Keys, count: int) -> Iterable[Hashable]:
    return repeat(ABSENT_ROW, count) if keys == ABSENT else rows_of(keys)


def _windows(keys: Keys, spans: Indexes) -> list[tuple[Hashable, ...]]:
    """Returns the rows in each range, begin and end in the columns of (ranges, 2)."""
    rows = tuple(rows_of(keys))
    return [rows[begin:end] for begin, end in spans.tolist()]
