"""Weighted finite-state transducers, as arrays: states, and the arcs between them."""

from __future__ import annotations

from typing import Any, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import frozen

from nnet3_training.errors import ExampleError
from nnet3_training.example_arrays import array_of

EPSILON = 0
"""The label of an arc that reads nothing."""
NO_STATE = -1
"""The start of an FST without states."""


def _array(values: npt.ArrayLike, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The values as a read-only array of a type that they have to fit.

    Raises:
        ExampleError: they do not.
    """
    array = array_of(values, "arrays of an FST")
    is_fit = array.size == 0 or np.can_cast(array.dtype, dtype, "same_kind")
    if array.ndim != 1 or not is_fit:
        raise ExampleError(
            f"an FST is made of (entries,) {np.dtype(dtype)}, found {array.shape} of {array.dtype}"
        )
    with np.errstate(over="ignore"):
        stored = array.astype(dtype)
    is_exact = array.dtype.kind not in "iu" or np.array_equal(stored, array)
    if not is_exact or not np.array_equal(np.isinf(stored), np.isinf(array)):
        raise ExampleError(f"numbers of an FST do not fit in {np.dtype(dtype)}")
    return frozen(stored)


def _costs(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    return _array(values, np.float32)


def _positions(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    return _array(values, np.int64)


def _numbers(values: npt.ArrayLike) -> npt.NDArray[np.int32]:
    return _array(values, np.int32)


def _brief(array: npt.NDArray[Any]) -> str:
    return f"<{len(array)}>"


@attrs.frozen(kw_only=True, eq=False)
class Fst:
    """A weighted finite-state transducer with tropical weights: costs, negative log-probabilities.

    The arcs of a state lie next to one another.

    Attributes:
        start: Number of the start state; -1 if there are no states.
        final_costs: (states,) float32, the cost of ending there; infinite where no path ends.
        splits: (states + 1,) int64; arcs splits[s] to splits[s + 1] leave state s.
        labels: (arcs,) int32, the labels that arcs read; 0 for nothing.
        output_labels: (arcs,) int32, the labels that arcs write; equal to `labels` in an acceptor.
        costs: (arcs,) float32.
        destinations: (arcs,) int32, the states that arcs lead to.

    Raises:
        ExampleError: the arrays do not fit each other, or name states that there are not.
    """

    start: int
    final_costs: npt.NDArray[np.float32] = attrs.field(converter=_costs, repr=_brief)
    splits: npt.NDArray[np.int64] = attrs.field(converter=_positions, repr=_brief)
    labels: npt.NDArray[np.int32] = attrs.field(converter=_numbers, repr=_brief)
    output_labels: npt.NDArray[np.int32] = attrs.field(converter=_numbers, repr=_brief)
    costs: npt.NDArray[np.float32] = attrs.field(converter=_costs, repr=_brief)
    destinations: npt.NDArray[np.int32] = attrs.field(converter=_numbers, repr=_brief)

    def __attrs_post_init__(self) -> None:
        states, arcs, s = self.num_states, self.num_arcs, self.splits
        if not isinstance(self.start, int | np.integer):
            raise ExampleError(f"the start of an FST must be an integer (got {self.start!r})")
        sizes = {len(each) for each in (self.output_labels, self.costs, self.destinations)}
        if sizes != {arcs}:
            raise ExampleError(f"an FST with {arcs} labels has other arrays of {sorted(sizes)}")
        if len(s) != states + 1 or s[0] != 0 or s[-1] != arcs or bool((np.diff(s) < 0).any()):
            raise ExampleError(f"the splits of {states} states must rise from 0 to {arcs} arcs")
        if not (0 <= self.start < states or (states == 0 and self.start == NO_STATE)):
            raise ExampleError(f"an FST of {states} states cannot start at state {self.start}")
        if arcs and not 0 <= self.destinations.min() <= self.destinations.max() < states:
            wrong = self.destinations[(self.destinations < 0) | (self.destinations >= states)][0]
            raise ExampleError(f"an arc leads to state {wrong} of an FST of {states} states")
        if arcs and min(self.labels.min(), self.output_labels.min()) < 0:
            raise ExampleError("an arc has a negative label")
        if np.isnan(self.costs).any() or np.isnan(self.final_costs).any():
            raise ExampleError("a cost is not a number")

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.final_costs)

    @property
    def num_arcs(self) -> int:
        """Number of arcs."""
        return len(self.labels)

    @property
    def sources(self) -> npt.NDArray[np.int64]:
        """(arcs,), the state that each arc leaves."""
        return np.repeat(np.arange(self.num_states), np.diff(self.splits))

    @property
    def is_acceptor(self) -> bool:
        """Whether the input and output label of every arc are the same."""
        return np.array_equal(self.labels, self.output_labels)

    @property
    def is_top_sorted(self) -> bool:
        """Whether every arc leads to a state with a larger number."""
        return bool((self.destinations > self.sources).all())

    def equals(self, other: Fst) -> bool:
        """Whether states, arcs and costs are the same, number by number."""
        fields = attrs.fields(Fst)
        return all(
            np.array_equal(getattr(self, each.name), getattr(other, each.name)) for each in fields
        )

    @classmethod
    def empty(cls) -> Self:
        """The FST without states."""
        return cls(
            start=NO_STATE,
            final_costs=(),
            splits=(0,),
            labels=(),
            output_labels=(),
            costs=(),
            destinations=(),
        )

    @classmethod
    def from_arcs(
        cls,
        *,
        start: int,
        final_costs: npt.ArrayLike,
        sources: npt.ArrayLike,
        labels: npt.ArrayLike,
        costs: npt.ArrayLike,
        destinations: npt.ArrayLike,
        output_labels: npt.ArrayLike | None = None,
    ) -> Self:
        """An FST from arcs in any order; the arcs of each state keep their order.

        Args:
            start: The start state.
            final_costs: (states,).
            sources: (arcs,), the state that each arc leaves.
            labels: (arcs,).
            costs: (arcs,).
            destinations: (arcs,).
            output_labels: (arcs,); as `labels` if not given.

        Raises:
            ExampleError: the arrays do not fit each other, or name states that there are not.
        """
        left, finals = _positions(sources), _costs(final_costs)
        columns = [_numbers(labels), _costs(costs), _numbers(destinations)]
        columns.append(columns[0] if output_labels is None else _numbers(output_labels))
        if any(len(each) != len(left) for each in columns):
            raise ExampleError("the arrays of arcs differ in their length")
        if left.size and not 0 <= left.min() <= left.max() < len(finals):
            raise ExampleError(f"an arc leaves a state that is none of the {len(finals)} states")
        order = np.argsort(left, kind="stable")
        label, cost, destination, output_label = (each[order] for each in columns)
        counts = np.bincount(left, minlength=len(finals))
        return cls(
            start=start,
            final_costs=finals,
            splits=np.concatenate(([0], np.cumsum(counts))),
            labels=label,
            output_labels=output_label,
            costs=cost,
            destinations=destination,
        )
