"""Stretches of columns: all columns of a stretch are moved together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from nnet3_computation import NnetComputation
from nnet3_computation import commands as c
from nnet3_computation.commands import Command

from nnet3_runtime_cuda.lowering.areas import Place
from nnet3_runtime_cuda.lowering.check.by_position import Changes

Columns = tuple[int, int, int, int, int]
"""Two matrices, the first column of each, and the number of columns that go together."""

_MOVES = c.MatrixCopy | c.MatrixAdd | c.CopyRows | c.AddRows | c.AddRowRanges
_FROM_LISTS = c.CopyRowsMulti | c.AddRowsMulti
_TO_LISTS = c.CopyToRowsMulti | c.AddToRowsMulti


def borders_of(computation: NnetComputation, changes: Changes) -> list[list[int]]:
    """Finds the columns of each matrix at which a stretch begins; its number of columns is last.

    A border in the source of a move is a border in its target, and the other way round, so that
    stretches are moved as a whole.
    """
    borders = [1 | 1 << columns for _, columns in computation.matrices.tolist()]
    for matrix, _, _, first, columns in computation.submatrices.tolist():
        borders[matrix] |= 1 << first | 1 << first + columns
    for matrix, area in changes.places():
        borders[matrix] |= 1 << area.column | 1 << area.column_end
    pairs = dict.fromkeys(_moved(computation)) | dict.fromkeys(_planned(computation, changes))
    for matrix, first, other, other_first, columns in pairs:
        borders[matrix] |= 1 << first | 1 << first + columns
        borders[other] |= 1 << other_first | 1 << other_first + columns
    _close(borders, list(pairs))
    return [_bits(each) for each in borders]


def _close(borders: list[int], pairs: list[Columns]) -> None:
    """Has borders of columns that go together be the same; bit i of a number is column i."""
    changed = True
    while changed:
        changed = False
        for matrix, first, other, other_first, columns in pairs:
            mask = (2 << columns) - 1
            both = (borders[matrix] >> first | borders[other] >> other_first) & mask
            ours, theirs = both << first, both << other_first
            if ours & ~borders[matrix] or theirs & ~borders[other]:
                borders[matrix] |= ours
                borders[other] |= theirs
                changed = True
        pairs.reverse()


def _bits(number: int) -> list[int]:
    """The places of the bits that are set, in order."""
    found = []
    while number:
        low = number & -number
        found.append(low.bit_length() - 1)
        number ^= low
    return found


def _moved(computation: NnetComputation) -> Iterable[Columns]:
    """The columns that commands move."""
    submatrices = computation.submatrices.tolist()
    named = [np.unique(pairs[:, 0]).tolist() for pairs in computation.indexes_multi]

    def together(ours: int, theirs: int) -> Columns:
        matrix, _, _, first, columns = submatrices[ours]
        other, _, _, other_first, _ = submatrices[theirs]
        return matrix, first, other, other_first, columns

    for command in computation.commands:
        if isinstance(command, _MOVES):
            yield together(command.input, command.output)
        elif isinstance(command, c.SwapMatrix):
            yield together(command.source, command.destination)
        elif isinstance(command, _FROM_LISTS | _TO_LISTS):
            block = command.output if isinstance(command, _FROM_LISTS) else command.input
            for submatrix in named[command.indexes_multi]:
                if submatrix >= 0:
                    yield together(submatrix, block)


def _planned(computation: NnetComputation, changes: Changes) -> Iterable[Columns]:
    """The columns that the plan has go together."""
    commands, submatrices = computation.commands, computation.submatrices.tolist()
    for product, step in changes.early.values():
        command = commands[step.position]
        assert isinstance(command, c.Propagate)
        yield _beside(product.source, submatrices[command.input], product.columns)
    for late, late_step in changes.late.values():
        command = commands[late_step.position]
        assert isinstance(command, c.BackpropNoModelUpdate)
        yield _beside(late_step.target, submatrices[command.input_deriv], late.columns)
        yield _beside(late.kept, submatrices[command.output_deriv], late.kept.area.columns)
    for spliced, derivatives in ((changes.inputs, False), (changes.sums, True)):
        for position, taps in spliced.items():
            operand = submatrices[spliced_operand(commands[position], is_derivative=derivatives)]
            matrix, _, _, first, _ = operand
            width = taps.area.columns
            for block in range(taps.count):
                yield matrix, first, matrix, first + block * width, width
            yield matrix, first, taps.matrix, taps.area.column, width


def _beside(place: Place, submatrix: Sequence[int], columns: int) -> Columns:
    return place.matrix, place.area.column, submatrix[0], submatrix[3], columns


def spliced_operand(command: Command, *, is_derivative: bool) -> int:
    """The submatrix of a command's input, or of the derivative of its input."""
    if isinstance(command, c.Propagate):
        return command.input
    assert isinstance(command, c.Backprop | c.BackpropNoModelUpdate)
    return command.input_deriv if is_derivative else command.input_value
