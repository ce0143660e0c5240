"""Pass: what the backward part needs of the forward part is kept in fewer bits meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nnet3_compiler.commands import (
    Backprop,
    BackpropNoModelUpdate,
    CompressMatrix,
    DecompressMatrix,
    NoOperationMarker,
)
from nnet3_optimizer.analysis.accesses import READ
from nnet3_optimizer.compression import INT16, UINT8
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.loops import is_loop
from nnet3_optimizer.program import Program

LOSSY_RANGE = 10.0
"""Values are kept between -10 and 10 where precision may be lost."""


class _Gap(NamedTuple):
    """A time during which a matrix is not looked at, from the forward to the backward part."""

    matrix: int
    last_forward: int
    first_backward: int


def compress_activations(program: Program, level: int) -> Program:
    """Compresses matrices between their last use before and their first use after the marker.

    1. Level 1 loses nothing: the output of a RectifiedLinear that is needed only to run it backward
       is kept as whether each element is positive. That backward pass must be the only access in
       the backward part, and read the matrix as nothing but the output value.
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
        compress m1 (type 2, truncate 1, range 0.0)
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
    markers = program.positions(NoOperationMarker.OPCODE)
    if level < 1 or is_loop(program.table) or len(markers) != 1:
        return program
    edit = Edit(program)
    changed = False
    whole = program.analysis.whole_submatrix
    for gap in _gaps(program, int(markers[0])):
        if _needs_only_signs(program, gap):
            kind, alpha = UINT8, 0.0
        elif level >= 2:
            kind, alpha = INT16, LOSSY_RANGE
        else:
            continue
        matrix = int(whole[gap.matrix])
        pack = CompressMatrix(matrix=matrix, compression_type=kind, truncate=1, alpha=alpha)
        edit.insert(gap.last_forward + 1, np.array([pack.row], np.int32))
        unpack = DecompressMatrix(matrix=matrix)
        edit.insert(gap.first_backward, np.array([unpack.row], np.int32))
        changed = True
    return edit.program() if changed else program


def _gaps(program: Program, marker: int) -> list[_Gap]:
    lists = program.analysis.matrix_accesses
    is_output = program.analysis.lifetimes.is_output
    gaps = []
    for matrix in np.flatnonzero(lists.is_accessed & ~is_output).tolist():
        commands, _ = lists[matrix]
        place = int(np.searchsorted(commands, marker))
        if 0 < place < len(commands):
            gaps.append(_Gap(matrix, int(commands[place - 1]), int(commands[place])))
    return gaps


def _needs_only_signs(program: Program, gap: _Gap) -> bool:
    commands, accesses = program.analysis.matrix_accesses[gap.matrix]
    if commands[-1] != gap.first_backward or accesses[-1] != READ:
        return False
    row = program.table[gap.first_backward].tolist()
    if row[0] not in (Backprop.OPCODE, BackpropNoModelUpdate.OPCODE):
        return False
    backprop = Backprop.from_row(row)
    if program.nnet.components[backprop.component].type != "RectifiedLinearComponent":
        return False
    others = [backprop.input_value, backprop.output_deriv, backprop.input_deriv]
    return gap.matrix not in program.submatrices[others, 0].tolist()
