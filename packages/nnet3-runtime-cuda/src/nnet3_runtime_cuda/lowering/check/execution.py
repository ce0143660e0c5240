"""Two executions of a computation at the same time: by its commands, and by the plan.

Both work on numbers that stand for elements (`cells`). Wherever a component, its statistics or the
user read, both must read the same numbers; numbers that nobody reads may differ. Results of
components are new numbers, the same in both. If the plan may use memory for other things (the
memory of an idle matrix, or of a freed one once another is allocated), its numbers change in the
planned execution only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import numpy as np
from nnet3_computation import NnetComputation
from nnet3_computation import commands as c
from nnet3_computation.commands import Access, Command, OperandKind
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import ComponentProperties

from nnet3_runtime_cuda.errors import PlanError
from nnet3_runtime_cuda.lowering.areas import Place
from nnet3_runtime_cuda.lowering.check.by_position import Changes
from nnet3_runtime_cuda.lowering.check.cells import (
    BOTH,
    PLAIN,
    PLAIN_ONLY,
    PLANNED,
    PLANNED_ONLY,
    Cells,
    Numbers,
)
from nnet3_runtime_cuda.lowering.check.columns import borders_of
from nnet3_runtime_cuda.lowering.check.memory import Memory
from nnet3_runtime_cuda.lowering.check.moves import MOVES, move
from nnet3_runtime_cuda.lowering.check.order import running_order
from nnet3_runtime_cuda.lowering.plan.plan import (
    DeferredOutput,
    LateProduct,
    SplicedDerivative,
    Taps,
)

_INPUTS = ("input", "input_value")


@attrs.frozen(eq=False)
class _PutOff:
    """The derivatives that a step left to a later product.

    Attributes:
        output_deriv: The output derivative of the step: (rows, stretches).
        values: The derivatives of its first columns: (rows, stretches).
    """

    output_deriv: Numbers
    values: Numbers


class Execution:
    """The two executions."""

    def __init__(self, nnet: Nnet, computation: NnetComputation, changes: Changes) -> None:
        """Begins them.

        Args:
            nnet: The network.
            computation: The computation.
            changes: The changes in the planned execution; their form has been checked.
        """
        self._nnet = nnet
        self._computation = computation
        self._commands = list(computation.commands)
        self._changes = changes
        self._cells = Cells(computation, borders_of(computation, changes))
        self._matrix_of: list[int] = computation.submatrices[:, 0].tolist()
        self._memory = Memory(self._cells, len(computation.matrices))
        self._products: dict[int, Numbers] = {}
        self._put_off: dict[int, _PutOff] = {}
        self._outputs_put_off: dict[int, Numbers] = {}
        self._provided: list[tuple[int, int]] = []

    def run(self) -> None:
        """Runs all commands, the rounds of a loop a few times.

        Raises:
            PlanError: The planned execution reads other numbers than the commands do, or writes to
                a matrix without memory.
        """
        for position in running_order(self._commands):
            command = self._commands[position]
            if isinstance(command, MOVES):
                self._run_move(position, command)
            else:
                run = _RUN.get(type(command))
                if run is not None:
                    run(self, position, command)
        self._end_segment()

    # ---- memory ----

    def _run_alloc(
        self, position: int, command: c.AllocMatrixUndefined | c.AllocMatrixZeroed
    ) -> None:
        self._memory.appears(self._matrix_of[command.matrix])
        numbers = self._cells.of(command.matrix)
        if isinstance(command, c.AllocMatrixZeroed):
            numbers[...] = 0
        else:
            numbers[...] = self._cells.results(command.matrix)

    def _run_dealloc(self, position: int, command: c.DeallocMatrix) -> None:
        self._memory.goes(self._matrix_of[command.matrix])

    def _run_swap(self, position: int, command: c.SwapMatrix) -> None:
        values = self._cells.of(command.source).copy()
        self._memory.appears(self._matrix_of[command.destination])
        self._cells.of(command.destination)[...] = values
        self._memory.goes(self._matrix_of[command.source])

    def _run_compress(self, position: int, command: c.CompressMatrix | c.DecompressMatrix) -> None:
        """Replaces each element by another one, which is a function of it."""
        matrix = self._matrix_of[command.matrix]
        if isinstance(command, c.CompressMatrix):
            self._memory.is_compressed(matrix)
        else:
            self._memory.appears(matrix)
        numbers = self._cells.of(command.matrix)
        numbers ^= numbers >> np.uint64(31)
        numbers *= self._cells.factor()

    # ---- inputs and outputs ----

    def _run_accept(self, position: int, command: c.AcceptInput) -> None:
        self._end_segment()
        self._memory.appears(self._matrix_of[command.matrix])
        self._cells.of(command.matrix)[...] = self._cells.results(command.matrix)

    def _run_provide(self, position: int, command: c.ProvideOutput) -> None:
        self._compare(position, "what is provided", command.matrix)
        self._provided.append((position, command.matrix))

    def _run_end(self, position: int, command: Command) -> None:
        self._end_segment()

    def _end_segment(self) -> None:
        """The user gets outputs when all of their segment has run."""
        for position, submatrix in self._provided:
            if self._memory.is_there(self._matrix_of[submatrix]):
                self._compare(position, "what is provided at the end of the segment", submatrix)
        self._provided.clear()

    # ---- copies and sums ----

    def _run_move(self, position: int, command: Command) -> None:
        changes = self._changes
        run = partial(move, self._cells, self._computation, command)
        if position in changes.left_out:
            run(PLAIN_ONLY)
        elif position in changes.added:
            run(PLAIN_ONLY)
            self._add_sum(position, command, changes.added[position])
        else:
            run(BOTH)

    def _add_sum(self, position: int, command: Command, derivative: SplicedDerivative) -> None:
        """Adds the sum of blocks, once; where the first block would be copied, it replaces."""
        taps = derivative.taps
        values = self._memory.packed(position, derivative.matrix, derivative.position)
        self._memory.check(position, taps.matrix)
        target = self._cells.of_place(Place(taps.matrix, taps.area))[PLANNED]
        if isinstance(command, c.MatrixCopy):
            target[: taps.rows] = 0
        target += values

    # ---- components ----

    def _run_component(
        self, position: int, command: c.Propagate | c.Backprop | c.BackpropNoModelUpdate
    ) -> None:
        lent = self._lent(position, command)
        for matrix in lent:
            self._memory.spoil(matrix)
        self._read(position, command)
        result = command.output if isinstance(command, c.Propagate) else command.input_deriv
        total = self._write(position, command, result) if result else None
        for matrix in lent:
            self._memory.spoil(matrix)
        if total is not None:
            self._memory.pack(self._matrix_of[result], total)
        late = self._changes.late.get(position)
        if late is not None and position == late[0].steps[-1].position:
            self._make_late(position, late[0])
        output = self._changes.outputs.get(position)
        if output is not None and position == output[0].steps[-1].position:
            self._make_outputs(position, output[0])

    def _lent(
        self, position: int, command: c.Propagate | c.Backprop | c.BackpropNoModelUpdate
    ) -> list[int]:
        """The matrices whose memory the command uses for other things while it runs."""
        lent = []
        if position in self._changes.idle:
            operand = command.input if isinstance(command, c.Propagate) else command.input_value
            lent.append(self._matrix_of[operand])
        if position in self._changes.sums and not isinstance(command, c.Propagate):
            lent.append(self._matrix_of[command.input_deriv])
        return lent

    def _read(self, position: int, command: Command) -> None:
        """Compares all numbers that a command reads."""
        changes = self._changes
        for operand in command.OPERANDS:
            submatrix = getattr(command, operand.name)
            is_read = operand.kind == OperandKind.SUBMATRIX and operand.access == Access.READ
            if not (is_read and submatrix):
                continue
            if operand.name in _INPUTS and position in changes.inputs:
                self._read_taps(position, submatrix, changes.inputs[position])
            elif operand.name == "input" and position in changes.early:
                self._read_early(position, submatrix)
            else:
                self._compare(position, operand.name.replace("_", " "), submatrix)

    def _read_taps(self, position: int, submatrix: int, taps: Taps) -> None:
        """The blocks of an input must be what the taps read."""
        values = self._cells.of_place(Place(taps.matrix, taps.area))[PLANNED]
        expected, width = self._cells.of(submatrix)[PLAIN], values.shape[1]
        for number, offset in enumerate(taps.offsets):
            block = expected[:, number * width : (number + 1) * width]
            self._require(
                position,
                f"block {number} of the input, from {taps},",
                submatrix,
                values[offset : offset + taps.rows] == block,
                first=number * width,
            )

    def _read_early(self, position: int, submatrix: int) -> None:
        """The first columns of an input must be the rows that an earlier product used."""
        product, step = self._changes.early[position]
        first, last = product.steps[0].position, product.steps[-1].position
        if position == first:
            self._products[first] = self._cells.of_place(product.source)[PLANNED].copy()
        values = self._products.get(first)
        if values is None:
            raise PlanError(f"c{position}: the product made before c{first} is not there")
        if position == last:
            del self._products[first]
        plain, planned = self._cells.of(submatrix)
        width = values.shape[1]
        self._require(
            position,
            f"the first columns of the input, in the product of {product.source} before c{first},",
            submatrix,
            values[slice(*step.rows)] == plain[:, :width],
        )
        rest = planned[:, width:] == plain[:, width:]
        self._require(position, "the input", submatrix, rest, first=width)

    def _write(
        self,
        position: int,
        command: c.Propagate | c.Backprop | c.BackpropNoModelUpdate,
        submatrix: int,
    ) -> Numbers | None:
        """Writes new numbers to the output or the input derivative of a command.

        Returns:
            The sum of the blocks, if they are added up: (rows, stretches).
        """
        results, target = self._cells.results(submatrix), self._cells.of(submatrix)
        if not self._adds(command):
            target[...] = 0
        target += results
        taps, late = self._changes.sums.get(position), self._changes.late.get(position)
        if late is not None:
            assert isinstance(command, c.BackpropNoModelUpdate)
            width = self._cells.width(submatrix, late[0].columns)
            self._put_off[position] = _PutOff(
                self._cells.of(command.output_deriv)[PLANNED].copy(), results[:, :width].copy()
            )
            target[PLANNED, :, :width] = self._cells.results(submatrix)[:, :width]
        output = self._changes.outputs.get(position)
        if output is not None:
            later = results.shape[1] - self._cells.of_place(output[1].target).shape[2]
            self._outputs_put_off[position] = results[:, later:].copy()
            target[PLANNED, :, later:] = self._cells.results(submatrix)[:, later:]
        return None if taps is None else _sum_of_blocks(results, taps)

    def _adds(self, command: c.Propagate | c.Backprop | c.BackpropNoModelUpdate) -> bool:
        """Whether a command adds to the place of its result."""
        properties = self._nnet.components[command.component].properties
        if isinstance(command, c.Propagate):
            adds = properties & ComponentProperties.PROPAGATE_ADDS
            return bool(adds) and command.input != command.output
        adds = properties & ComponentProperties.BACKPROP_ADDS
        return bool(adds) and command.input_deriv != command.output_deriv

    def _make_late(self, position: int, product: LateProduct) -> None:
        """Computes the derivatives that steps have put off, and writes them to their targets."""
        kept = self._cells.of_place(product.kept)[PLANNED].copy()
        for step in product.steps:
            put_off = self._put_off.pop(step.position, None)
            if put_off is None:
                raise PlanError(f"c{position}: c{step.position} has put nothing off by then")
            command = self._commands[step.position]
            assert isinstance(command, c.BackpropNoModelUpdate)
            self._require(
                step.position,
                f"the output derivative, kept in {product.kept} until c{position},",
                command.output_deriv,
                kept[slice(*step.rows)] == put_off.output_deriv,
            )
            self._memory.check(position, step.target.matrix)
            self._cells.of_place(step.target)[PLANNED_ONLY] = put_off.values

    def _make_outputs(self, position: int, product: DeferredOutput) -> None:
        """Computes the columns of outputs that steps have put off, in their targets."""
        for step in product.steps:
            values = self._outputs_put_off.pop(step.position, None)
            if values is None:
                raise PlanError(f"c{position}: c{step.position} has put nothing off by then")
            self._memory.check(position, step.target.matrix)
            self._cells.of_place(step.target)[PLANNED_ONLY] = values

    def _run_statistics(self, position: int, command: c.StoreStats) -> None:
        self._read(position, command)

    # ---- comparing ----

    def _compare(self, position: int, what: str, submatrix: int) -> None:
        """The numbers of a submatrix must be the same in both executions."""
        plain, planned = self._cells.of(submatrix)
        self._require(position, what, submatrix, plain == planned)

    def _require(
        self, position: int, what: str, submatrix: int, same: Any, *, first: int = 0
    ) -> None:
        """Raises the error for the first cell of a submatrix that is not the same.

        Args:
            position: The position of the command that reads it.
            what: The name of the operand.
            submatrix: The submatrix.
            same: Whether each cell is the same: (rows, stretches).
            first: The stretch of the submatrix with which `same` begins.
        """
        if same.all():
            return
        row, stretch = np.argwhere(~same)[0].tolist()
        name = type(self._commands[position]).__name__
        column = self._cells.column(submatrix, first + stretch)
        raise PlanError(
            f"c{position}: {name}: {what} is not what it would be without the plan, at row {row}, "
            f"column {column} of m{self._matrix_of[submatrix]}"
        )


def _sum_of_blocks(results: Numbers, taps: Taps) -> Numbers:
    """The blocks of columns, (rows of a block, stretches) each, added to the rows of all taps."""
    width = results.shape[1] // taps.count
    total = np.zeros((taps.area.rows, width), np.uint64)
    for number, offset in enumerate(taps.offsets):
        block = results[:, number * width : (number + 1) * width]
        total[offset : offset + taps.rows] += block
    return total


_RUN: dict[type[Command], Callable[[Execution, int, Any], None]] = {
    c.AllocMatrixUndefined: Execution._run_alloc,
    c.AllocMatrixZeroed: Execution._run_alloc,
    c.DeallocMatrix: Execution._run_dealloc,
    c.SwapMatrix: Execution._run_swap,
    c.CompressMatrix: Execution._run_compress,
    c.DecompressMatrix: Execution._run_compress,
    c.Propagate: Execution._run_component,
    c.StoreStats: Execution._run_statistics,
    c.Backprop: Execution._run_component,
    c.BackpropNoModelUpdate: Execution._run_component,
    c.AcceptInput: Execution._run_accept,
    c.ProvideOutput: Execution._run_provide,
    c.NoOperationMarker: Execution._run_end,
    c.NoOperationLabel: Execution._run_end,
    c.GotoLabel: Execution._run_end,
}
