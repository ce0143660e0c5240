"""Step info: the matrices and submatrices that hold the values and derivatives of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from nnet3_computation import ComputationRequest
from nnet3_computation.analysis import COL_OFFSET, MATRIX, NUM_COLS, NUM_ROWS, ROW_OFFSET
from nnet3_computation.arrays import IntArray, expand_ranges, run_starts, where
from numpy.typing import NDArray

from nnet3_compiler.locations import Pieces
from nnet3_compiler.shortcut import Minibatch
from nnet3_compiler.steps.building import Steps
from nnet3_compiler.steps.network import Network, NodeKind

BoolArray = NDArray[np.bool_]


def derivatives_needed(
    network: Network, requests: Sequence[ComputationRequest], pieces: Pieces
) -> BoolArray:
    """Returns which steps need a derivative: (S,) bool.

    A step needs one if it lies on a way from an input whose derivative is wanted, or from a
    component that is updated, to an output whose derivative is given. Those inputs and outputs need
    one in any case.
    """
    steps = pieces.steps
    wanted = _wanted(network, requests, steps)
    given = _with_deriv(network, requests, steps, NodeKind.OUTPUT)
    if not wanted.any() and not given.any():
        return wanted
    user, used = step_dependencies(network, pieces)
    arcs = list(zip(user.tolist(), used.tolist(), strict=True))
    from_wanted = bytearray(wanted)
    for step, dependency in arcs:
        if from_wanted[dependency]:
            from_wanted[step] = 1
    to_given = bytearray(given)
    for step, dependency in reversed(arcs):
        if to_given[step]:
            to_given[dependency] = 1
    between = np.frombuffer(from_wanted, np.bool_) & np.frombuffer(to_given, np.bool_)
    inputs = steps.is_given & wanted
    return between | inputs | given


def _wanted(network: Network, requests: Sequence[ComputationRequest], steps: Steps) -> BoolArray:
    """Returns the inputs whose derivative is wanted, and the components that are updated."""
    wanted = _with_deriv(network, requests, steps, NodeKind.INPUT)
    updates = np.array([request.need_model_derivative for request in requests])
    updated: BoolArray = network.is_updated[steps.node] & updates[steps.segment] & ~steps.is_given
    return wanted | updated


def _with_deriv(
    network: Network, requests: Sequence[ComputationRequest], steps: Steps, kind: NodeKind
) -> BoolArray:
    """Returns the steps of the inputs, or of the outputs, that have derivatives."""
    has_deriv = np.zeros((len(requests), len(network.kind)), np.bool_)
    for segment, request in enumerate(requests):
        for io in request.outputs if kind is NodeKind.OUTPUT else request.inputs:
            has_deriv[segment, network.nnet.node_index(io.name)] = io.has_deriv
    is_kind = steps.is_given if kind is NodeKind.INPUT else network.kind[steps.node] == kind
    chosen: BoolArray = has_deriv[steps.segment, steps.node] & is_kind
    return chosen


def step_dependencies(
    network: Network, pieces: Pieces
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns on which steps each step depends directly, as pairs (user, used), sorted by user."""
    steps = pieces.steps
    size = len(steps)
    # a descriptor takes rows from other steps
    present = where(pieces.source >= 0)
    user = np.repeat(pieces.step.astype(np.int64), pieces.num_rows)[present]
    pair = user * size + steps.step_of_row[pieces.source[present]]
    pairs = [pair[run_starts(pair)]]
    # a component uses the step before it, a range of columns uses its source
    component = where((network.kind[steps.node] == NodeKind.COMPONENT) & ~steps.is_given)
    pairs.append(component * size + component - 1)
    column_range = where(steps.source >= 0)
    pairs.append(column_range * size + steps.source[column_range])
    pair = np.sort(np.concatenate(pairs))
    return np.divmod(pair[run_starts(pair)], size)


class SubmatrixTable:
    """The submatrices of a computation in the making, as pieces of a table."""

    def __init__(self, rows: IntArray) -> None:
        """Begins with (count, 5) submatrices."""
        self._pieces = [rows]
        self._size = len(rows)

    def add(self, rows: IntArray) -> IntArray:
        """Adds (count, 5) submatrices; returns their numbers."""
        first, self._size = self._size, self._size + len(rows)
        self._pieces.append(rows)
        return np.arange(first, self._size, dtype=np.int32)

    @property
    def table(self) -> IntArray:
        """All submatrices: (S, 5) int32."""
        if len(self._pieces) > 1:
            self._pieces = [np.concatenate(self._pieces)]
        return self._pieces[0]

    def parts(self, base: IntArray, row_offset: IntArray, num_rows: IntArray) -> IntArray:
        """Returns the numbers of submatrices that are ranges of rows of others, shaped as `base`.

        A range that takes all rows is the submatrix itself.
        """
        of_base = self.table[base]
        partial = where((row_offset > 0) | (num_rows < of_base[:, NUM_ROWS]))
        rows = of_base[partial]
        rows[:, ROW_OFFSET] += row_offset[partial]
        rows[:, NUM_ROWS] = num_rows[partial]
        numbers = base.copy()
        numbers[partial] = self.add(rows)
        return numbers


class StepInfo(NamedTuple):
    """Where the values and derivatives of steps live.

    Attributes:
        value: (S,) int32, the submatrix of each step's value; 0 if the step is empty.
        deriv: (S,) int32, that of its derivative; 0 if there is none.
        value_part: (S,) int32, the submatrix of the first part of a descriptor; the submatrices of
            the other parts follow it.
        deriv_part: (S,) int32, the same of the derivative.
        matrices: (M, 2) int32, rows and columns; matrix m is the whole of submatrix m.
        matrix_step: (M,) int32, the step of each matrix; -1 for matrix 0.
        matrix_is_deriv: (M,) bool.
        submatrices: The submatrices.
    """

    value: IntArray
    deriv: IntArray
    value_part: IntArray
    deriv_part: IntArray
    matrices: IntArray
    matrix_step: IntArray
    matrix_is_deriv: NDArray[np.bool_]
    submatrices: SubmatrixTable


def make_step_info(
    network: Network, steps: Steps, minibatch: Minibatch, needs_deriv: NDArray[np.bool_]
) -> StepInfo:
    """Gives every step a matrix for its value, and one for its derivative if it needs one.

    Steps of dim-range nodes get columns of the matrices of their source.
    """
    own_matrix = (steps.count > 0) & (steps.source < 0)
    count = own_matrix.astype(np.int32) + (own_matrix & needs_deriv)
    first = np.cumsum(count, dtype=np.int32) - count + 1
    value = np.where(own_matrix, first, 0).astype(np.int32)
    deriv = np.where(own_matrix & needs_deriv, first + 1, 0).astype(np.int32)
    matrix_step = np.repeat(np.arange(len(steps), dtype=np.int32), count)
    rows = steps.count[matrix_step] * minibatch.size
    cols = network.dim[steps.node[matrix_step]]
    matrices = np.zeros((len(matrix_step) + 1, 2), np.int32)
    matrices[1:, 0], matrices[1:, 1] = rows, cols
    whole = np.zeros((len(matrices), 5), np.int32)
    whole[1:, MATRIX] = np.arange(1, len(matrices))
    whole[1:, NUM_ROWS], whole[1:, NUM_COLS] = rows, cols
    submatrices = SubmatrixTable(whole)
    _add_dim_ranges(network, steps, submatrices, value, deriv, needs_deriv)
    is_deriv = np.zeros(len(matrices), np.bool_)
    is_deriv[deriv[own_matrix & needs_deriv]] = True
    return StepInfo(
        value=value,
        deriv=deriv,
        value_part=_add_parts(network, steps, submatrices, value),
        deriv_part=_add_parts(network, steps, submatrices, deriv),
        matrices=matrices,
        matrix_step=np.concatenate([[-1], matrix_step]).astype(np.int32),
        matrix_is_deriv=is_deriv,
        submatrices=submatrices,
    )


def _add_dim_ranges(
    network: Network,
    steps: Steps,
    submatrices: SubmatrixTable,
    value: IntArray,
    deriv: IntArray,
    needs_deriv: NDArray[np.bool_],
) -> None:
    """Fills in the value and derivative of the steps of dim-range nodes."""
    ranges = where(steps.source >= 0)
    node, source = steps.node[ranges], steps.source[ranges]
    for whole, wanted in ((value, True), (deriv, needs_deriv[ranges])):
        rows = submatrices.table[whole[source]]
        rows[:, COL_OFFSET] += network.dim_offset[node]
        rows[:, NUM_COLS] = network.dim[node]
        present = where((whole[source] > 0) & wanted)
        whole[ranges[present]] = submatrices.add(rows[present])


def _add_parts(
    network: Network, steps: Steps, submatrices: SubmatrixTable, whole: IntArray
) -> IntArray:
    """Returns the submatrix of the first part of each step; new ones if there are several parts."""
    num_parts = network.num_parts[steps.node]
    divided = where((num_parts > 1) & (whole > 0))
    count = num_parts[divided].astype(np.int64)
    rows = np.repeat(submatrices.table[whole[divided]], count, axis=0)
    part = expand_ranges(network.part_begin[steps.node[divided]].astype(np.int64), count)
    rows[:, COL_OFFSET] += network.part_offset[part]
    rows[:, NUM_COLS] = network.part_dim[part]
    first = whole.copy()
    first[divided] = submatrices.add(rows)[0:1] + np.cumsum(count) - count if len(divided) else 0
    return first
