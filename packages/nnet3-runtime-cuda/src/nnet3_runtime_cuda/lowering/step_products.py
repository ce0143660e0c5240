"""Products that steps of a recurrence compute together: planned beforehand, recorded in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from nnet3_compiler import commands as c
from nnet3_compiler.computation import NnetComputation

from ..device import DeviceNnet
from ..kernels import KnownPart, Propagation
from ..panels import Panels
from ..tape import Array, Tape
from .deferred_derivatives import DeferredSteps, plan_deferred_derivatives
from .deferred_outputs import DeferredOutputs, plan_deferred_outputs
from .known_inputs import CHANGING_ROWS_AT_ONCE, ROWS_AT_ONCE, KnownSteps, plan_known_inputs
from .pending_zeros import Area
from .regular import Positions, regular_blocks
from .step_panels import Factor, StepPanels, gains
from .uses import Place, Uses

if TYPE_CHECKING:
    from .lowering import Lowering


class StepProducts:
    """What the steps of recurrences leave to products of many rows.

    The part of their output that is known before (`known_inputs`), the columns of it that nothing
    waits for (`deferred_outputs`), and derivatives likewise (`deferred_derivatives`). Methods are
    given the pass over the commands, whose current command they are about.
    """

    def __init__(
        self, nnet: DeviceNnet, tape: Tape, computation: NnetComputation, uses: Uses | None
    ) -> None:
        """Plans them.

        Args:
            nnet: The network on its device.
            tape: What they are to be recorded on.
            computation: The computation.
            uses: Those of the computation; None on a device, where a step takes its time for
                launches, and no outputs are put off, which costs a copy.
        """
        self._nnet = nnet

        def can_split(component: int) -> bool:
            return nnet.kernel(component).can_split_input

        def rows_at_once(component: int) -> int:
            is_changing = uses is not None and not nnet.kernel(component).store.is_fixed
            return CHANGING_ROWS_AT_ONCE if is_changing else ROWS_AT_ONCE

        self._known = plan_known_inputs(computation, can_split, rows_at_once)
        chunks = plan_deferred_derivatives(computation, can_split, uses)
        self._derivatives = {step.position: step for chunk in chunks for step in chunk.steps}
        self._copies = {step.copied for chunk in chunks for step in chunk.steps}
        self._chunks = {chunk.steps[-1].position: chunk for chunk in chunks}
        self._outputs = {} if uses is None else plan_deferred_outputs(computation, can_split, uses)
        self._due: dict[int, list[DeferredOutputs]] = defaultdict(list)
        for steps in {id(steps): steps for steps in self._outputs.values()}.values():
            if steps.later:
                self._due[steps.due].append(steps)
        factors = [
            (position, factor)
            for position, factor, num_rows in self._factors(computation, can_split)
            if gains(tape, nnet.kernel(factor.component), num_rows)
        ]
        self._panels = StepPanels(factors, self._size)
        self._known_values: dict[int, Array] = {}
        self._kept_inputs: dict[int, Array] = {}
        self._spare_memory: list[Array] = []

    def _spare(self, tape: Tape, rows: int, columns: int) -> Array:
        """Memory that no steps use any more, or new memory."""
        for number, free in enumerate(self._spare_memory):
            if len(free) >= rows and free.shape[1] == columns:
                return self._spare_memory.pop(number)
        return tape.persistent(rows, columns)

    # ---- parameters in panels ----

    def _factors(
        self, computation: NnetComputation, can_split: Callable[[int], bool]
    ) -> Iterator[tuple[int, Factor, int]]:
        """Positions of commands that may be steps, what they multiply by, and numbers of rows."""
        commands, submatrices = list(computation.commands), computation.submatrices.tolist()
        if any(isinstance(command, c.GotoLabel) for command in commands):
            return  # what the next round needs would have to be kept
        for position, command in enumerate(commands):
            if isinstance(command, c.Propagate) and can_split(command.component):
                known, outputs = self._known.get(position), self._outputs.get(position)
                skipped = known.area.column_end - known.area.column if known else 0
                _, _, num_rows, _, width = submatrices[command.output]
                rows = (outputs.now.start, outputs.now.stop) if outputs else (0, width)
                yield position, Factor(command.component, False, skipped, rows), num_rows
            elif isinstance(command, c.BackpropNoModelUpdate) and can_split(command.component):
                _, _, num_rows, _, width = submatrices[command.output_deriv]
                step = self._derivatives.get(position)
                skipped = step.columns if step else 0
                yield position, Factor(command.component, True, skipped, (0, width)), num_rows

    def _size(self, factor: Factor) -> int:
        return factor.of(self._nnet.kernel(factor.component)).size

    def panels(self, low: Lowering) -> Panels | None:
        """The parameters that the current command multiplies by, if they are in panels."""
        factor = self._panels.factor_at(low.position)
        if factor is None:
            return None
        kernel = low.nnet.kernel(factor.component)
        return self._panels.record(low.tape, low.position, kernel)

    # ---- what is known before ----

    def known_part(self, low: Lowering) -> KnownPart | None:
        """The part of the current Propagate that is known before; recorded with its first step."""
        steps = self._known.get(low.position)
        if steps is None:
            return None
        if low.position == steps.steps[0].position:
            self._known_values[id(steps)] = self._record_known(low, steps)
        values = self._known_values[id(steps)]
        if low.position == steps.steps[-1].position:
            # The next such steps may have the memory once this command has run.
            self._spare_memory.append(values)
        rows = steps.rows_at(low.position)
        return KnownPart(columns=steps.area.column_end - steps.area.column, value=values[rows])

    def _record_known(self, low: Lowering, steps: KnownSteps) -> Array:
        area, step = steps.area, steps.steps[0]
        rows = area.row_end - area.row
        x = low.read_area(step.source, area)
        values = self._spare(low.tape, rows, step.output_dim)
        low.nnet.kernel(step.component).propagate_known(low.tape, x, values[:rows])
        return values

    # ---- outputs that nothing waits for ----

    def columns_now(self, low: Lowering, x: Array) -> slice | None:
        """The columns that the current Propagate sets; None for all.

        If others are put off, its input x is kept for them.
        """
        steps = self._outputs.get(low.position)
        if steps is None:
            return None
        if steps.later and steps.kept is None:
            if id(steps) not in self._kept_inputs:
                self._kept_inputs[id(steps)] = self._spare(low.tape, steps.num_rows, x.shape[1])
            rows = steps.rows_at(low.position)
            low.tape.copy(x, self._kept_inputs[id(steps)][rows])
        return steps.now

    def record_due(self, low: Lowering) -> None:
        """Records what was put off until the current command."""
        for steps in self._due.pop(low.position, ()):
            low.tape.begin_command()
            self._record_outputs(low, steps)

    def _record_outputs(self, low: Lowering, steps: DeferredOutputs) -> None:
        if steps.kept is None:
            memory = self._kept_inputs.pop(id(steps))
            self._spare_memory.append(memory)
            x = memory[: steps.num_rows]
        else:
            x = low.read_area(*steps.kept)
        for columns in steps.later:
            values = low.tape.scratch(len(x), columns.stop - columns.start)
            low.nnet.kernel(steps.component).propagate(
                Propagation(tape=low.tape, x=x, y=values, columns=columns)
            )
            _record_rows(low, values, steps.targets(columns))

    # ---- derivatives that nothing waits for ----

    def deferred_columns(self, low: Lowering) -> int:
        """How many columns of the input derivative of the current command are computed later."""
        step = self._derivatives.get(low.position)
        return step.columns if step else 0

    def is_deferred_copy(self, low: Lowering) -> bool:
        """Whether the current command copies what was put off, and so is there already."""
        return low.position in self._copies

    def record_derivatives(self, low: Lowering) -> None:
        """Records what was put off until the current command, when that itself is recorded."""
        chunk = self._chunks.get(low.position)
        if chunk is not None:
            low.tape.begin_command()
            _record_derivatives(low, chunk)


def _record_rows(low: Lowering, values: Array, targets: Sequence[Place]) -> None:
    """Records that rows are copied, in order, to areas of matrices."""
    arena = low.arena
    rows = np.concatenate([_row_positions(low, *target) for target in targets])
    for block in regular_blocks(rows[None]):
        shape = (block.count, block.length, values.shape[1])
        out = arena.strided(block.first[0], shape, (block.outer[0], block.inner[0], 1))
        part = values[block.start : block.start + block.count * block.length]
        low.tape.copy(part.reshape(shape), out)


def _row_positions(low: Lowering, matrix: int, area: Area) -> Positions:
    """Where each row of an area starts, in elements of the arena."""
    stride = int(low.computation.matrices[matrix, 1])
    rows = np.arange(area.row, area.row_end, dtype=np.int64)
    return rows * stride + low.arena.offset(matrix) + area.column


def _record_derivatives(low: Lowering, steps: DeferredSteps) -> None:
    kept = low.strided_area(*steps.kept)
    component, columns = steps.steps[0].component, steps.steps[0].columns
    values = low.tape.scratch(len(kept), columns)
    low.nnet.kernel(component).backprop_known(low.tape, kept, values)
    for step in steps.steps:
        low.tape.copy(values[steps.rows_of(step)], low.set_area(*step.target))
