"""Pairs of submatrices that could become one: both sides of a copy, or of a component in place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nnet3_computation.analysis import CommandKinds
from nnet3_computation.arrays import Bools, Ids, where
from nnet3_computation.commands import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    SCHEMA,
    TABLE_WIDTH,
    Backprop,
    BackpropNoModelUpdate,
    Command,
    MatrixCopy,
    Propagate,
    Table,
    alpha_bits,
    columns,
)
from nnet3_descriptors.components import ComponentProperties as Property

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.options import OptimizeOptions

_ONE = alpha_bits(1.0)

BACKWARD = (Backprop, BackpropNoModelUpdate)


class Candidates(NamedTuple):
    """Candidates by command: each field is (candidates,).

    Attributes:
        command: The command, ascending.
        s1: The submatrix that it reads.
        s2: The submatrix that it writes.
        is_assignment: Whether it is a copy with scale 1.
        left: Whether the matrix of s1 may be kept.
        right: Whether the matrix of s2 may be kept.
    """

    command: Ids
    s1: Ids
    s2: Ids
    is_assignment: Bools
    left: Bools
    right: Bools

    def where(self, wanted: Bools | Ids) -> Candidates:
        """The candidates for which `wanted` is True, or those at the positions `wanted`."""
        return Candidates(
            self.command[wanted],
            self.s1[wanted],
            self.s2[wanted],
            self.is_assignment[wanted],
            self.left[wanted],
            self.right[wanted],
        )


def find_candidates(draft: Draft, options: OptimizeOptions) -> Candidates:
    """Returns all candidates, legal or not."""
    kinds = [MatrixCopy] * options.remove_assignments
    in_place = (Propagate,) * options.propagate_in_place + BACKWARD * options.backprop_in_place
    at = CommandKinds.of(*kinds, *in_place).positions(draft.opcodes)
    opcode, rows = draft.opcodes.take(at), draft.table.take(at, axis=0)
    is_copy = opcode == MatrixCopy.OPCODE
    fits, runs = is_copy.copy(), where(~is_copy)
    properties = draft.component_properties.take(rows[runs, FIRST_OPERAND_COLUMN])
    fits[runs] = (properties & _IN_PLACE.take(opcode[runs])) != 0
    backward = where(fits & (opcode != Propagate.OPCODE) & ~is_copy)
    if len(backward):
        fits[backward] = _values_lie_elsewhere(draft, rows.take(backward, axis=0))
    at, opcode, rows, is_copy = at[fits], opcode[fits], rows[fits], is_copy[fits]
    cells = rows.reshape(-1)
    first_cell = np.arange(len(at)) * TABLE_WIDTH
    return Candidates(
        command=at,
        s1=cells.take(first_cell + _S1.take(opcode)).astype(np.int64),
        s2=cells.take(first_cell + _S2.take(opcode)).astype(np.int64),
        is_assignment=is_copy & (rows[:, ALPHA_COLUMN] == _ONE),
        left=np.full(len(at), options.allow_left_merge),
        right=np.full(len(at), options.allow_right_merge),
    )


def _values_lie_elsewhere(draft: Draft, rows: Table) -> Bools:
    """Returns which Backprop commands read no values in the memory of the derivatives."""
    named = {name: rows[:, column].astype(np.int64) for name, column in columns(Backprop).items()}
    apart = np.ones(len(rows), np.bool_)
    for value in ("input_value", "output_value"):
        for deriv in ("output_deriv", "input_deriv"):
            apart &= ~draft.layout.overlap(named[value], named[deriv])
    return apart


_IN_PLACE, _S1, _S2 = np.zeros((3, len(SCHEMA.types)), dtype=np.int64)
"""By opcode, the property that components of a candidate need, and the columns of s1 and s2."""

_OPERANDS: tuple[tuple[type[Command], int, str, str], ...] = (
    (MatrixCopy, 0, "input", "output"),
    (Propagate, int(Property.PROPAGATE_IN_PLACE), "input", "output"),
    *((each, int(Property.BACKPROP_IN_PLACE), "output_deriv", "input_deriv") for each in BACKWARD),
)
for _type, _property, _read, _written in _OPERANDS:
    _IN_PLACE[_type.OPCODE] = _property
    _S1[_type.OPCODE], _S2[_type.OPCODE] = (columns(_type)[name] for name in (_read, _written))
