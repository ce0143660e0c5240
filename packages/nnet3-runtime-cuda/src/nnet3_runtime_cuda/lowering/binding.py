"""The state of a pass over the commands of a computation, which become bound calls.

The plan has the changes; here each command is bound to memory and to a kernel.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from nnet3_computation import commands as c
from nnet3_computation.computation import NnetComputation

from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.kernels import Memo
from nnet3_runtime_cuda.lowering.areas import Area, PendingZeros
from nnet3_runtime_cuda.lowering.arena import Arena, Memory, Positions, record_scaled
from nnet3_runtime_cuda.lowering.plan import Plan
from nnet3_runtime_cuda.lowering.splices import SplicedDerivative, input_of
from nnet3_runtime_cuda.machine import Program, Segment
from nnet3_runtime_cuda.operations import Array, Call, Tape
from nnet3_runtime_cuda.operations.gradients import TimeSplice
from nnet3_runtime_cuda.operations.panels import Panels

if TYPE_CHECKING:
    from nnet3_runtime_cuda.tracing.tracer import Watch

Flags = npt.NDArray[np.bool_]


class Binding:
    """The state of one pass over the commands of a computation.

    Attributes:
        nnet: The network on its device.
        computation: The computation to lower.
        arena: The memory of its matrices.
        areas: The area of each submatrix.
        tape: Records the calls of the current segment.
        plan: The changes, by command.
        memos: By memo number.
        zeros: Zeroed areas that have not been written yet.
        read_whole: On a device, the matrices that commands read whatever has been written of them.
        compressed: The number of the form, the limit and the memory of each matrix that is
            compressed now.
        signs: The packed signs of the output value of the next command, which then has no values;
            usually None.
        replaced: Components whose gradient replaces the old content.
        num_updates: The number of commands that compute a part of the gradient of a component.
        position: Of the current command.
    """

    def __init__(
        self,
        nnet: DeviceNnet,
        computation: NnetComputation,
        plan: Plan,
        tape: Tape,
        watch: Watch | None = None,
    ) -> None:
        """Begins the pass.

        Args:
            nnet: The network on its device.
            computation: The computation to lower.
            plan: The changes.
            tape: An empty tape of the device.
            watch: Times the calls of each command; usually None.
        """
        self.nnet = nnet
        self.computation = computation
        self.commands = tuple(computation.commands)
        self.tape = tape
        self.plan = plan
        self.arena = Arena(computation, self.tape.empty, nnet.dtype)
        self.areas = self.arena.areas
        self.memos: dict[int, Memo] = {}
        self.zeros = PendingZeros()
        self.read_whole = self._find_read_whole() if nnet.machine.is_device else frozenset()
        self.replaced: set[int] = set()
        self.compressed: dict[int, tuple[int, float, Array]] = {}
        self.signs: Array | None = None
        self.position = 0
        self._forward_end = computation.forward_end
        self._sums = {each.added[0]: each for each in plan.derivatives.values()}
        self._panels: dict[object, Panels] = {}
        self._panel_memory: dict[int, Array] = {}
        self._early_values: dict[int, Array] = {}
        self._spare_memory: list[Array] = []
        self._watch = watch
        self._watched: list[Call] = []
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array] = {}
        self._segments: list[Segment] = []
        self._num_forward = 0
        self._labels: dict[int, int] = {}
        self._loop_to: int | None = None
        self.num_updates = Counter(
            command.component for command in self.commands if isinstance(command, c.Backprop)
        )

    def begin_command(self, position: int) -> bool:
        """Begins the command at a position; returns whether it is to be bound."""
        self.position = position
        if position == self._forward_end:
            self.end_segment()
            self._num_forward = len(self._segments)
        if position in self.plan.left_out:
            return False
        self.tape.begin_command()
        return True

    def program(self) -> Program:
        """The program of all commands."""
        self.end_segment()
        count = self._num_forward
        if count == 0 or self._loop_to is not None:
            count = len(self._segments)
        backward = self._segments[count:]
        return Program(
            forward=tuple(self._segments[:count]),
            backward=backward[0] if backward else None,
            loop_to=self._loop_to,
            replaced=frozenset(self.replaced),
            memory_bytes=self.arena.nbytes + self.tape.scratch_bytes + self.tape.persistent_bytes,
        )

    def _find_read_whole(self) -> frozenset[int]:
        """The matrices that are compressed or handed over, undefined elements included."""
        found = {
            command.matrix if isinstance(command, c.CompressMatrix) else command.source
            for command in self.commands
            if isinstance(command, c.CompressMatrix | c.SwapMatrix)
        }
        return frozenset(self.areas[submatrix].matrix for submatrix in found)

    # ---- segments ----

    def end_segment(self) -> None:
        """Ends the current segment, if anything is in it."""
        self.end_command()
        if not (self._has_calls or self._inputs or self._outputs):
            return
        calls = () if self.tape.is_empty else self.tape.take()
        self._segments.append(Segment(self._inputs, (*self._watched, *calls), self._outputs))
        self._watched, self._inputs, self._outputs = [], {}, {}

    @property
    def _has_calls(self) -> bool:
        """Whether anything runs in the current segment so far."""
        return bool(self._watched) or not self.tape.is_empty

    def end_command(self) -> None:
        """Makes the calls of the current command timed ones, if there is a watch."""
        if self._watch is not None:
            calls = () if self.tape.is_empty else self.tape.take()
            # A later command may write the first columns of the result.
            is_complete = self.position not in self.plan.late
            self._watched += self._watch.command(self.position, calls, is_complete=is_complete)

    def accept(self, area: Area, node: int) -> None:
        """Adds an input to the current segment; inputs after work begin a new one."""
        if self._has_calls or self._outputs:
            self.end_segment()
        self._inputs[self.nnet.nnet.nodes[node].name] = self.arena.view(area)

    def provide(self, area: Area, node: int) -> None:
        """Adds an output to the current segment; pending zeros in it are written first."""
        self._outputs[self.nnet.nnet.nodes[node].name] = self.read(area)

    def label(self) -> None:
        """Notes that a loop begins here."""
        self.flush_zeros()
        self.end_segment()
        self._labels[self.position] = len(self._segments)

    def loop(self, label: int) -> None:
        """Notes that the program continues at a label."""
        self.flush_zeros()
        self.end_segment()
        self._loop_to = self._labels[label]

    # ---- operands ----

    def read(self, area: Area) -> Array:
        """A view to read; pending zeros in it are written first."""
        self._flush(area)
        return self.arena.view(area)

    def set(self, area: Area) -> Array:
        """A view to set every element of."""
        # Pending zeros within the area would be overwritten; only zeros that reach beyond the area
        # are written first.
        view = self.arena.view(area) if self.zeros.take(area) else self.read(area)
        self._note_written(area)
        return view

    def change(self, area: Area) -> Array:
        """A view to read and overwrite."""
        self._note_written(area)
        return self.read(area)

    def add_to(self, area: Area) -> tuple[Array, bool]:
        """A view to add to, and whether it has values: if not, the command must set it."""
        self._note_written(area)
        if self.zeros.take(area):
            return self.arena.view(area), False
        return self.read(area), True

    def _note_written(self, area: Area) -> None:
        """Tells the watch that the current command sets or changes an area of a matrix."""
        if self._watch is not None:
            self._watch.writes(area.matrix, area.row, self.arena.view(area))

    def memory(self, area: Area) -> Memory:
        """The place of a whole matrix; pending zeros in it are written first."""
        return self.arena.offset(area.matrix), self.read(area)

    def _flush(self, area: Area) -> None:
        for pending in self.zeros.touching(area):
            self.write_zeros(pending)

    def flush_zeros(self) -> None:
        """Writes all zeros that are pending."""
        for area in self.zeros.all():
            self.write_zeros(area)

    def write_zeros(self, area: Area) -> None:
        """Records that an area is set to zero."""
        self.tape.fill(0.0, self.arena.view(area))

    # ---- splices ----

    def input_splice(
        self, command: c.Propagate | c.Backprop | c.BackpropNoModelUpdate
    ) -> TimeSplice | None:
        """The rows of which the input of the current command is made, if the plan uses them."""
        taps = self.plan.inputs.get(self.position)
        if taps is None:
            return None
        if self.position in self.plan.idle:
            self.tape.lend(self.arena.flat(self.areas[input_of(command)].matrix))
        return TimeSplice(self.read(taps.area), taps.offsets, taps.rows)

    def derivative_splice(self) -> TimeSplice | None:
        """The place in which the current Backprop adds up its input derivative; None for none."""
        found = self.plan.derivatives.get(self.position)
        if found is None:
            return None
        matrix, taps, _ = found
        self.zeros.forget(matrix)
        total, rest = self.packed(matrix, taps.area)
        self.tape.lend(rest)
        return TimeSplice(total, taps.offsets, taps.rows)

    def packed(self, matrix: int, area: Area) -> tuple[Array, Array]:
        """The first memory of a matrix as (rows, columns) of an area; and the rest, flat."""
        memory, size = self.arena.flat(matrix), area.rows * area.columns
        return memory[:size].reshape(area.rows, area.columns), memory[size:]

    def is_sum_of_blocks(self) -> bool:
        """Records a sum of blocks if the plan has one for the current command; returns whether."""
        derivative = self._sums.get(self.position)
        if derivative is not None:
            self._record_sum(derivative)
        return derivative is not None

    def _record_sum(self, derivative: SplicedDerivative) -> None:
        """Records that the sum of the blocks is added to, or replaces, what the target holds."""
        command, taps = self.commands[self.position], derivative.taps
        total, _ = self.packed(derivative.matrix, taps.area)
        split = taps.area.row + taps.rows
        target, add = self.add_to(taps.area._replace(row_end=split))
        add = add and not isinstance(command, c.MatrixCopy)
        record_scaled(self.tape, total[: taps.rows], 1.0, target, add=add)
        target, add = self.add_to(taps.area._replace(row=split))
        record_scaled(self.tape, total[taps.rows :], 1.0, target, add=add)

    # ---- lookups ----

    def memo(self, number: int) -> Memo | None:
        """The memo of that number; None for 0."""
        return self.memos.setdefault(number, {}) if number else None

    def next_takes_signs_of(self, submatrix: int) -> bool:
        """Whether the next command runs a component backward that needs only signs of its output.

        Nothing else reads a matrix that stores only signs (`nnet3_optimizer.checks`).
        """
        commands = self.commands
        if self.position + 1 == len(commands):
            return False
        following = commands[self.position + 1]
        return (
            isinstance(following, (c.Backprop, c.BackpropNoModelUpdate))
            and bool(following.output_value)
            and self.areas[following.output_value] == self.areas[submatrix]
            and self.nnet.kernel(following.component).takes_signs
        )

    def multi_positions(self, number: int) -> tuple[Positions, Flags]:
        """The starts of the rows of a list of (submatrix, row), and the entries that name none."""
        pairs = self.computation.indexes_multi[number].astype(np.int64)
        present = pairs[:, 0] >= 0
        positions = self.arena.positions(np.where(present, pairs[:, 0], 0), pairs[:, 1])
        return positions, present

    def flush_multi(self, number: int) -> None:
        """Writes pending zeros in the submatrices of a list of (submatrix, row)."""
        pairs = self.computation.indexes_multi[number]
        for submatrix in np.unique(pairs[:, 0]).tolist():
            if submatrix >= 0:
                self._flush(self.areas[submatrix])

    # ---- work that steps of a recurrence share ----

    def panels(self) -> Panels | None:
        """The parameters of the current command, if they are in panels.

        The first command that does so records the copy.
        """
        factor = self.plan.panels.get(self.position)
        if factor is None:
            return None
        if factor not in self._panels:
            part = self.nnet.kernel(factor.component).factor(factor.skipped)
            matrix = part if factor.is_backward else part.T
            number = self.plan.panel_memory[factor]
            if number not in self._panel_memory:
                size = self.plan.panel_sizes[number]
                self._panel_memory[number] = self.tape.persistent(size)
            inner, columns = matrix.shape
            memory = self._panel_memory[number][: matrix.size]
            self._panels[factor] = Panels.within(memory, (inner, columns))
            self._panels[factor].record_copy(self.tape, matrix)
        return self._panels[factor]

    def known_part(self) -> tuple[int, Array | None]:
        """How many first columns of the current input are known, and their product with the bias.

        It is recorded with the first step.
        """
        if self.position not in self.plan.early:
            return 0, None
        product, step = self.plan.early[self.position]
        first = product.steps[0].position
        if step.position == first:
            kernel = self.nnet.kernel(step.component)
            x = self.read(product.area)
            self._early_values[first] = self._spare(len(x), kernel.component.output_dim)
            kernel.propagate_known(self.tape, x, self._early_values[first][: len(x)])
        values = self._early_values[first]
        if step is product.steps[-1]:
            # The next such steps may have the memory once this command has run.
            self._spare_memory.append(values)
        return step.columns, values[product.rows(step)]

    def _spare(self, rows: int, columns: int) -> Array:
        """Memory that no steps use any more, or new memory."""
        for number, free in enumerate(self._spare_memory):
            if len(free) >= rows and free.shape[1] == columns:
                return self._spare_memory.pop(number)
        return self.tape.persistent(rows, columns)

    def late_columns(self) -> int:
        """The number of columns of the current input derivative that are computed later."""
        return self.plan.late[self.position][1].columns if self.position in self.plan.late else 0

    def record_late(self) -> None:
        """Records the product that was put off until after the current command, if there is one."""
        found = self.plan.late.get(self.position)
        if found is None or found[1] is not found[0].steps[-1]:
            return
        product, step = found
        self.tape.begin_command()
        kept = self.arena.view(product.area)
        values = self.tape.scratch(len(kept), step.columns)
        self.nnet.kernel(step.component).backprop_known(self.tape, kept, values)
        for each in product.steps:
            assert each.target is not None, "backward steps have a target"
            self.tape.copy(values[product.rows(each)], self.set(each.target))
