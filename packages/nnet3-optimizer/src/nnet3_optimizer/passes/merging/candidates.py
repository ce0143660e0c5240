"""Pairs of submatrices that could become one: both sides of a copy, or of a component in place."""

from __future__ import annotations

from typing import NamedTuple

import attrs
import numpy as np
from nnet3_compiler.commands import Backprop, BackpropNoModelUpdate, MatrixCopy, Propagate
from nnet3_compiler.declaration import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    Command,
    alpha_bits,
)
from nnet3_descriptors.components.properties import ComponentProperties as Property
from nnet3_optimizer.analysis.csr import Bools, Ids, ordering
from nnet3_optimizer.operands import operand
from nnet3_optimizer.program import Program

_ONE = alpha_bits(1.0)

BACKWARD = (Backprop, BackpropNoModelUpdate)


@attrs.frozen(kw_only=True)
class MergingOptions:
    """Which merges are made; see `merge_variables`.

    Attributes:
        remove_assignments: Merge across MatrixCopy.
        propagate_in_place: Merge input and output of Propagate.
        backprop_in_place: Merge the derivatives at both sides of a Backprop.
        left: Allow to keep the matrix that is read.
        right: Allow to keep the matrix that is written.
    """

    remove_assignments: bool = True
    propagate_in_place: bool = True
    backprop_in_place: bool = True
    left: bool = True
    right: bool = True


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


def find_candidates(program: Program, options: MergingOptions) -> Candidates:
    """Returns all candidates, legal or not."""
    found = []
    if options.remove_assignments:
        at = program.positions(MatrixCopy.OPCODE)
        s1, s2 = (operand(program.table, at, MatrixCopy, name) for name in ("input", "output"))
        found.append((at, s1, s2, program.table[at, ALPHA_COLUMN] == _ONE))
    if options.propagate_in_place:
        at = running(program, Property.PROPAGATE_IN_PLACE, Propagate)
        s1, s2 = (operand(program.table, at, Propagate, name) for name in ("input", "output"))
        found.append((at, s1, s2, np.zeros(len(at), np.bool_)))
    if options.backprop_in_place:
        found.append(_backward(program))
    command, s1, s2, is_assignment = map(np.concatenate, zip(*found, strict=True))
    order = ordering(command)
    return Candidates(
        command[order],
        s1[order],
        s2[order],
        is_assignment[order],
        np.full(len(order), options.left),
        np.full(len(order), options.right),
    )


def running(program: Program, wanted: Property, *types: type[Command]) -> Ids:
    """Returns the positions of commands of these types that run a component with a property."""
    at = program.positions(*(each.OPCODE for each in types))
    component = program.table[at, FIRST_OPERAND_COLUMN]
    running: Ids = at[(program.component_properties[component] & int(wanted)) != 0]
    return running


def _backward(program: Program) -> tuple[Ids, Ids, Ids, Bools]:
    """Returns the candidates that run backward; the values they read must lie elsewhere."""
    at = running(program, Property.BACKPROP_IN_PLACE, *BACKWARD)
    names = ("output_deriv", "input_deriv", "input_value", "output_value")
    places = [operand(program.table, at, Backprop, name) for name in names]
    output_deriv, input_deriv, *values = places
    apart = np.ones(len(at), np.bool_)
    for value in values if len(at) else ():
        for deriv in (output_deriv, input_deriv):
            apart &= ~program.layout.overlap(value, deriv)
    none = np.zeros(len(at), np.bool_)
    return at[apart], output_deriv[apart], input_deriv[apart], none[apart]
