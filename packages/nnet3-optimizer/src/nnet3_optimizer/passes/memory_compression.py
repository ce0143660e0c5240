"""Pass: values that the backward part needs are kept in fewer bits until then."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from nnet3_computation import analysis, arrays
from nnet3_computation import commands as c
from nnet3_descriptors.values import remembered

from nnet3_optimizer.draft import Draft, Edit

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


LOSSY_RANGE = 10.0
"""Level 2 keeps values between -10 and 10."""


RELU = "RectifiedLinearComponent"

_BACKWARD = analysis.CommandKinds.of(c.Backprop, c.BackpropNoModelUpdate)


def memory_compression(draft: Draft, level: int) -> Draft:
    """Compresses matrices between their last use before and their first use after the marker.

    1. Level 1 loses nothing: the output of a RectifiedLinear that is needed only to run it backward
       is kept as one bit an element: whether it is positive. That backward pass must be the only
       access in the backward part, and read the matrix as nothing but the output value.
    2. Level 2 keeps all other matrices that are used on both sides in 16 bits, between -10 and 10;
       values beyond are cut off. Results change a little.
    3. Outputs of the computation are not compressed; neither is anything in computations of several
       segments or in loops.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        m1 = accept input
        m1 = relu.propagate(m1)
        m2 = undefined
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
        m3 = accept output
        m4 = undefined
        m4 = relu.backprop(m3, output m1)
        provide input = m4
        free m1
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        m1 = accept input
        m1 = relu.propagate(m1)
        m2 = undefined
        m2 = affine.propagate(m1)
        compress m1 (type 5, truncate 1, range 0.0)
        provide output = m2
        segment end
        m3 = accept output
        m4 = undefined
        decompress m1
        m4 = relu.backprop(m3, output m1)
        provide input = m4
        free m1
        free m3
    """
    markers = draft.positions(c.NoOperationMarker.OPCODE)
    if level < 1 or c.is_loop(draft.table) or len(markers) != 1:
        return draft
    bits, others = idle_matrices(draft, int(markers[0]), level)
    if not len(bits.matrix) and not len(others.matrix):
        return draft
    edit = Edit(draft)
    for idle, kind, alpha in ((bits, c.ONE_BIT, 0.0), (others, c.INT16, LOSSY_RANGE)):
        if not len(idle.matrix):
            continue
        count, whole = len(idle.matrix), draft.layout.whole_submatrix[idle.matrix]
        packs = c.command_rows(
            c.CompressMatrix, count, alpha, matrix=whole, compression_type=kind, truncate=1
        )
        edit.insert(idle.last_forward + 1, packs)
        edit.insert(idle.first_backward, c.command_rows(c.DecompressMatrix, count, matrix=whole))
    return edit.draft()


class Idle(NamedTuple):
    """Matrices that are idle: nothing uses them for a while; each array is (N,) int64.

    Attributes:
        matrix: The matrices.
        last_forward, first_backward: The last command of the forward part and the first of the
            backward part that use each.
    """

    matrix: arrays.Ids
    last_forward: arrays.Ids
    first_backward: arrays.Ids


_NONE_IDLE = Idle(*np.zeros((3, 0), dtype=np.int64))


def idle_matrices(draft: Draft, marker: int, level: int) -> tuple[Idle, Idle]:
    """Returns the matrices that a level compresses to one bit an element, and to 16 bits."""
    if level < 1:
        return _NONE_IDLE, _NONE_IDLE
    bits = _kept_as_bits(draft, marker)
    if level < 2:
        return bits, _NONE_IDLE
    is_other = _is_used_on_both_sides(draft, marker)
    is_other[bits.matrix] = False
    others = arrays.where(is_other)
    return bits, Idle(others, *draft.analysis.uses.around(others, marker))


def _kept_as_bits(draft: Draft, marker: int) -> Idle:
    """Returns the matrices whose signs are all that the backward part needs: rule 1."""
    candidates = _outputs_of_relus(draft)
    if not len(candidates):
        return _NONE_IDLE
    before, after, is_read = _last_two(draft, candidates)
    # The last access is the only one of the backward part, and only reads.
    fits = (before >= 0) & (before < marker) & (after > marker) & is_read
    fits &= draft.opcodes[before] != c.AllocMatrixZeroed.OPCODE
    fits &= ~draft.analysis.lifetimes.is_output[candidates]
    fits &= _is_looked_at_by_relu(draft, candidates, after)
    return Idle(candidates[fits], before[fits], after[fits])


def _last_two(draft: Draft, matrices: arrays.Ids) -> tuple[arrays.Ids, arrays.Ids, arrays.Bools]:
    """Returns the second last command that accesses each matrix, or -1, and the last command.

    Allocation with zeros is an access.

    Returns:
        The two commands, and whether the last one only reads the matrix; (N,) each.
    """
    command, submatrix, access = draft.analysis.accesses_within(matrices)
    matrix, count = draft.layout.matrix_of.take(submatrix), len(draft.matrices)
    before, after = np.full((2, count), -1, dtype=np.int64)
    # Of several assignments to one element the last one holds.
    after[matrix] = command
    earlier = command < after.take(matrix)
    before[matrix[earlier]] = command[earlier]
    is_written = np.zeros(count, dtype=np.bool_)
    is_written[matrix[~earlier & (access != analysis.READ)]] = True
    return before[matrices], after[matrices], ~is_written[matrices]


def _is_used_on_both_sides(draft: Draft, marker: int) -> arrays.Bools:
    """Returns which matrices, (M,), other than outputs, are used before and after the marker."""
    first, last = draft.analysis.matrix_use
    is_output = draft.analysis.lifetimes.is_output
    return (first >= 0) & (first < marker) & (last > marker) & ~is_output


@remembered
def _relus(nnet: Nnet) -> arrays.Bools:
    """Which components, (components,) bool, are rectified linear units."""
    return np.array([each.type == RELU for each in nnet.components], dtype=np.bool_)


def _outputs_of_relus(draft: Draft) -> arrays.Ids:
    """The matrices that hold output values of rectified linear units that run backward."""
    at = draft.positions(c.Backprop.OPCODE, c.BackpropNoModelUpdate.OPCODE)
    at = at[_relus(draft.nnet)[c.operand(draft.table, at, c.Backprop, "component")]]
    values = c.operand(draft.table, at, c.Backprop, "output_value")
    is_output = np.zeros(len(draft.matrices), dtype=np.bool_)
    is_output[draft.layout.matrix_of[values]] = True
    is_output[0] = False
    return arrays.where(is_output)


def _is_looked_at_by_relu(draft: Draft, matrices: arrays.Ids, commands: arrays.Ids) -> arrays.Bools:
    """Whether commands run rectified linear units backward and read a matrix only as output value.

    Args:
        draft: The draft.
        matrices: (N,) the matrices.
        commands: (N,) the command for each.
    """
    runs = _BACKWARD.among(draft.opcodes[commands])
    component = np.where(runs, c.operand(draft.table, commands, c.Backprop, "component"), 0)
    fits = runs & _relus(draft.nnet)[component]
    for name in ("input_value", "output_deriv", "input_deriv"):
        other = np.where(runs, c.operand(draft.table, commands, c.Backprop, name), 0)
        fits &= draft.layout.matrix_of[other] != matrices
    return fits
