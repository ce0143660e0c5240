"""Pass: a component that runs backward many times updates its parameters once."""

from __future__ import annotations

import numpy as np
from nnet3_compiler.commands import (
    AcceptInput,
    AllocMatrixZeroed,
    Backprop,
    BackpropNoModelUpdate,
    DeallocMatrix,
    MatrixCopy,
    ProvideOutput,
)
from nnet3_compiler.declaration import FIRST_OPERAND_COLUMN, OPCODE_COLUMN
from nnet3_compiler.emission import command_rows
from nnet3_descriptors.components.properties import ComponentProperties as Property
from nnet3_optimizer.analysis.csr import Ids
from nnet3_optimizer.analysis.kinds import CommandKinds
from nnet3_optimizer.debug_info import concatenated
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.loops import is_loop
from nnet3_optimizer.operands import columns
from nnet3_optimizer.program import Program


def consolidate_model_update(program: Program) -> Program:
    """Gathers what the Backprop commands of a component need for one update at the end.

    In recurrent networks a component runs once for each time; the update of its parameters is a sum
    over all rows of all times, and one product of large matrices is faster than many of small ones.

    1. The component is updatable and simple (its update is a sum over rows), and has no memo.
    2. It has more than one Backprop. Each becomes BackpropNoModelUpdate, and goes away if it was
       there for the update alone; before each, the rows that it reads are copied into matrices that
       hold those of all of them, one below the other.
    3. One Backprop on these matrices, without input derivative, follows the last of them, so that
       what was gathered can be freed before the backward pass goes on.

    `merge_variables` then removes most of the copies: values are written where they are gathered.
    With natural gradient the rows of all times are preconditioned together.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = zeros
        m2(0:1, :) = affine.propagate(m1(0:1, :))
        m2(2:3, :) = affine.propagate(m1(2:3, :))
        provide output = m2
        segment end
        m3 = accept output
        - = affine.backprop(m3(2:3, :), input m1(2:3, :))
        - = affine.backprop(m3(0:1, :), input m1(0:1, :))
        free m1
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        m5 = 4 x 4
        m1 = accept input
        m4 = zeros
        m5 = zeros
        m2 = zeros
        m2(0:1, :) = affine.propagate(m1(0:1, :))
        m2(2:3, :) = affine.propagate(m1(2:3, :))
        provide output = m2
        segment end
        m3 = accept output
        m4(0:1, :) = m3(2:3, :)
        m5(0:1, :) = m1(2:3, :)
        m4(2:3, :) = m3(0:1, :)
        m5(2:3, :) = m1(0:1, :)
        - = affine.backprop(m4, input m5)
        free m4
        free m5
        free m1
        free m3
    """
    if is_loop(program.table):
        return program
    at = program.positions(Backprop.OPCODE)
    component = program.table[at, FIRST_OPERAND_COLUMN]
    properties = program.component_properties[component]
    wanted = int(Property.UPDATABLE | Property.SIMPLE)
    fits = (properties & (wanted | int(Property.USES_MEMO))) == wanted
    at, component = at[fits], component[fits]
    numbers, counts = np.unique(component, return_counts=True)
    repeated = numbers[counts > 1].tolist()
    if not repeated:
        return program
    edit = Edit(program)
    consolidation = _Consolidation(program, edit)
    for number in repeated:
        consolidation.add(number, at[component == number])
    consolidation.finish()
    return edit.program()


_AT_THE_END = CommandKinds.of(DeallocMatrix, ProvideOutput)


class _Consolidation:
    """The new commands: allocations first, copies before each Backprop, updates after the last."""

    def __init__(self, program: Program, edit: Edit) -> None:
        self.program = program
        self.edit = edit
        self.gathered: list[int] = []

    def add(self, component: int, at: Ids) -> None:
        """Consolidates the Backprop commands at these positions."""
        properties = int(self.program.component_properties[component])
        table = self.edit.table
        operands = {"output_deriv": self._gather(at, "output_deriv")}
        if properties & Property.BACKPROP_NEEDS_INPUT:
            operands["input_value"] = self._gather(at, "input_value")
        if properties & Property.BACKPROP_NEEDS_OUTPUT:
            operands["output_value"] = self._gather(at, "output_value")
        table[at, OPCODE_COLUMN] = BackpropNoModelUpdate.OPCODE
        self.edit.delete(at[table[at, columns(Backprop)["input_deriv"]] == 0])
        update = Backprop(component=component, **operands)
        self.edit.insert(int(at[-1]) + 1, np.array([update.row], np.int32))

    def _gather(self, at: Ids, operand: str) -> int:
        """Adds a matrix for one operand of all commands, and the copies; returns its submatrix."""
        program = self.program
        parts = program.table[at, columns(Backprop)[operand]]
        matrix, row, rows, _, cols = program.submatrices[parts].T
        debug_info = None
        if program.debug_info:
            debug_info = concatenated(
                [
                    (program.debug_info[m], first, count)
                    for m, first, count in zip(
                        matrix.tolist(), row.tolist(), rows.tolist(), strict=True
                    )
                ],
                are_whole=bool((rows == program.matrices[matrix, 0]).all()),
            )
        total, width = int(rows.sum()), int(cols[0])
        whole = self.edit.matrix(total, width, debug_info)
        number = self.edit.submatrix(whole)[0]
        places = np.zeros((len(at), 5), dtype=np.int64)
        places[:, 0], places[:, 1] = number, np.cumsum(rows) - rows
        places[:, 2], places[:, 4] = rows, width
        own = self.edit.submatrices(places)
        copies = command_rows(MatrixCopy, len(at), alpha=1.0, output=own, input=parts)
        self.edit.insert(at, copies)
        self.gathered.append(whole)
        return whole

    def finish(self) -> None:
        """Adds the allocations at the beginning and the deallocations at the end."""
        gathered = np.array(self.gathered)
        opcodes = self.program.opcodes
        inputs = np.flatnonzero(opcodes != AcceptInput.OPCODE)
        begin = int(inputs[0]) if len(inputs) else 0
        ends = _AT_THE_END.among(opcodes)
        end = int(np.flatnonzero(~ends)[-1]) + 1
        count = len(gathered)
        self.edit.insert(begin, command_rows(AllocMatrixZeroed, count, matrix=gathered))
        self.edit.insert(end, command_rows(DeallocMatrix, count, matrix=gathered))
