"""Symbolic execution of statistics over time: each row depends on a range of rows, not on all."""

from __future__ import annotations

from typing import Any

from nnet3_descriptors.components import (
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingPrecomputedIndexes,
)

from nnet3_optimizer.equivalence.state import State


def ranges_of(state: State, precomputed: int) -> Any:
    """Returns the precomputed indexes of statistics, or None for those of other components."""
    indexes = state.computation.precomputed_indexes[precomputed]
    known = StatisticsExtractionPrecomputedIndexes, StatisticsPoolingPrecomputedIndexes
    return indexes if isinstance(indexes, known) else None


def forward(state: State, component: int, indexes: Any, given: int, output: int) -> list[int]:
    """Returns an unknown for each output row: a function of the rows in its range."""
    state.require_same_sequences(output, given)
    windows = _windows(state, indexes, given, output)
    return state.unknowns.values(("statistics", component), windows)


def backward(
    state: State,
    component: int,
    indexes: Any,
    values: tuple[int, int, int],
    input_deriv: int,
) -> list[int]:
    """Returns an unknown for each input row: a function of the output rows that it goes into.

    Args:
        state: The state.
        component: The component.
        indexes: Its precomputed indexes.
        values: The input and the output, 0 if it does not look at them, and the derivative of the
            output.
        input_deriv: The derivative of the input.
    """
    given, output, deriv = values
    for each in (given, output, input_deriv):
        if each:
            state.require_same_sequences(each, deriv)
    derivs = list(state.read(deriv).keys())
    name = "statistics, backward", component
    if isinstance(indexes, StatisticsExtractionPrecomputedIndexes):
        rows = state.pattern.reduced_rows(indexes.backward_indexes, input_deriv, deriv)
        inputs = list(state.read(given).keys()) if given else [0] * len(rows)
        arguments = [(x, derivs[row]) for x, row in zip(inputs, rows, strict=True)]
        return state.unknowns.values(name, arguments)
    windows = _windows(state, indexes, given, deriv) if given else [()] * len(derivs)
    outputs = list(state.read(output).keys()) if output else [0] * len(derivs)
    rows_out = zip(windows, outputs, derivs, strict=True)
    numbers = [state.unknowns.number(about) for about in rows_out]
    first, last = indexes.backward_indexes.T
    spans = state.pattern.reduced_ranges(first, last, input_deriv, deriv)
    return state.unknowns.values(name, [tuple(numbers[begin:end]) for begin, end in spans])


def _windows(state: State, indexes: Any, given: int, output: int) -> list[tuple[Any, ...]]:
    """Returns for each row of the output, or of its derivative, the input rows in its range."""
    keys = list(state.read(given).keys())
    begin, end = indexes.forward_indexes.T
    spans = state.pattern.reduced_ranges(begin, end, output, given)
    return [tuple(keys[begin:end]) for begin, end in spans]
