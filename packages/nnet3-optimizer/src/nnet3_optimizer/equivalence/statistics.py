"""Symbolic execution of statistics over time: each row depends on a range of rows, not on all.

Only where all rows are followed: the ranges are those of all sequences.
"""

from __future__ import annotations

from typing import Any

from nnet3_descriptors.components import (
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingPrecomputedIndexes,
)

from nnet3_optimizer.equivalence.state import State

Ranges = list[tuple[int, int]]


def ranges_of(state: State, precomputed: int) -> Any:
    """Returns the precomputed indexes of statistics, or None for those of other components."""
    if state.pattern.sequences > 1:
        return None
    indexes = state.computation.precomputed_indexes[precomputed]
    known = StatisticsExtractionPrecomputedIndexes, StatisticsPoolingPrecomputedIndexes
    return indexes if isinstance(indexes, known) else None


def forward(state: State, component: int, indexes: Any, given: int) -> list[int]:
    """Returns an unknown for each output row: a function of the rows in its range."""
    windows = _windows(state, indexes, given)
    return state.unknowns.values(("statistics", component), windows)


def backward(
    state: State, component: int, indexes: Any, given: int, output: int, deriv: int
) -> list[int]:
    """Returns an unknown for each input row: a function of the output rows that it goes into.

    Args:
        state: The state.
        component: The component.
        indexes: Its precomputed indexes.
        given: The input; 0 if it does not look at it.
        output: The output; 0 if it does not look at it.
        deriv: The derivative of the output.
    """
    derivs = list(state.read(deriv).keys())
    name = "statistics, backward", component
    if isinstance(indexes, StatisticsExtractionPrecomputedIndexes):
        rows = indexes.backward_indexes.tolist()
        inputs = list(state.read(given).keys()) if given else [0] * len(rows)
        arguments = [(x, derivs[row]) for x, row in zip(inputs, rows, strict=True)]
        return state.unknowns.values(name, arguments)
    windows = _windows(state, indexes, given) if given else [()] * len(derivs)
    outputs = list(state.read(output).keys()) if output else [0] * len(derivs)
    each = [state.unknowns.number(about) for about in zip(windows, outputs, derivs, strict=True)]
    spans: Ranges = indexes.backward_indexes.tolist()
    return state.unknowns.values(name, [tuple(each[begin:end]) for begin, end in spans])


def _windows(state: State, indexes: Any, given: int) -> list[tuple[Any, ...]]:
    keys = list(state.read(given).keys())
    spans: Ranges = indexes.forward_indexes.tolist()
    return [tuple(keys[begin:end]) for begin, end in spans]
