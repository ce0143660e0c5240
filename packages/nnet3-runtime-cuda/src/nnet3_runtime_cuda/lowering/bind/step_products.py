"""The changes of a plan by command, and the products that steps of a recurrence share."""

from __future__ import annotations

from typing import Protocol

from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.kernels import KnownPart
from nnet3_runtime_cuda.lowering.areas import Place
from nnet3_runtime_cuda.lowering.plan.plan import (
    EarlyProduct,
    EarlyStep,
    LateProduct,
    PanelledFactor,
    Plan,
    SplicedDerivative,
    Taps,
)
from nnet3_runtime_cuda.operations import Array, Operations, Tape
from nnet3_runtime_cuda.operations.panels import Panels


class ByPosition:
    """The changes of a plan, by the position of the command.

    Attributes:
        left_out: Positions of commands that are not bound at all.
        early: The product from which a step takes a part of its result, and the step.
        late: The product that computes the first columns of a step.
        panels: The factor of a step, in panels.
        inputs: The rows of which an input is made.
        idle: Positions of commands whose input has a matrix without content.
        derivatives: The derivative that a command sums up, its matrix and taps.
        sums: The same for the command that adds the sum.
    """

    def __init__(self, plan: Plan) -> None:
        self.early: dict[int, tuple[EarlyProduct, EarlyStep]] = {
            step.position: (product, step) for product in plan.early for step in product.steps
        }
        self.late: dict[int, LateProduct] = {
            step.position: product for product in plan.late for step in product.steps
        }
        self.panels: dict[int, PanelledFactor] = {
            position: factor for factor in plan.panels for position in factor.positions
        }
        self.inputs: dict[int, Taps] = {each.position: each.taps for each in plan.inputs}
        self.idle = frozenset(each.position for each in plan.inputs if each.is_idle)
        self.derivatives: dict[int, tuple[int, Taps]] = {
            each.position: (each.matrix, each.taps) for each in plan.derivatives
        }
        self.sums: dict[int, SplicedDerivative] = {each.added[0]: each for each in plan.derivatives}
        self.left_out = frozenset(
            [
                *plan.left_out,
                *(step.copied for product in plan.late for step in product.steps),
                *(at for each in plan.derivatives for at in each.added[1:]),
            ]
        )


class CommandPass(Protocol):
    """The part of the pass over the commands (`Binding`) that this module uses.

    Attributes:
        nnet: The network on its device.
        tape: Records the calls of the current segment.
        position: Of the current command.
        changes: The changes of the plan, by command.
    """

    nnet: DeviceNnet
    tape: Tape
    position: int
    changes: ByPosition

    def read_place(self, place: Place) -> Array:
        """The view of an area that is read."""

    def set_place(self, place: Place) -> Array:
        """The view of an area that is written as a whole."""

    def strided(self, place: Place) -> Array:
        """The view of an area."""


class StepProducts:
    """The values that steps of recurrences take from products of many rows, and their panels.

    Methods are given the pass over the commands, whose current command they are about.
    """

    def __init__(self, plan: Plan) -> None:
        self._panel_sizes = plan.panel_memory
        self._panel_memory: dict[int, Array] = {}
        self._panels: dict[int, Panels] = {}
        self._early_values: dict[int, Array] = {}
        self._spare_memory: list[Array] = []

    def _spare(self, tape: Operations, rows: int, columns: int) -> Array:
        """Memory that no steps use any more, or new memory."""
        for number, free in enumerate(self._spare_memory):
            if len(free) >= rows and free.shape[1] == columns:
                return self._spare_memory.pop(number)
        return tape.persistent(rows, columns)

    # ---- parameters in panels ----

    def panels(self, binding: CommandPass) -> Panels | None:
        """The parameters of the current command, if they are in panels.

        The first command that does so records the copy.
        """
        factor = binding.changes.panels.get(binding.position)
        if factor is None:
            return None
        key = factor.positions[0]
        if key not in self._panels:
            part = binding.nnet.kernel(factor.component).factor(factor.skipped)
            matrix = part if factor.is_backward else part.T
            if factor.memory not in self._panel_memory:
                size = self._panel_sizes[factor.memory]
                self._panel_memory[factor.memory] = binding.tape.persistent(size)
            memory = self._panel_memory[factor.memory][: matrix.size]
            inner, columns = matrix.shape
            panels = Panels.within(memory, (inner, columns))
            panels.record_copy(binding.tape, matrix)
            self._panels[key] = panels
        return self._panels[key]

    # ---- products made before the steps ----

    def known_part(self, binding: CommandPass) -> KnownPart | None:
        """The known part of the current Propagate; it is recorded with the first step."""
        product, step = binding.changes.early.get(binding.position, (None, None))
        if product is None or step is None:
            return None
        first, last = product.steps[0].position, product.steps[-1].position
        if step.position == first:
            self._early_values[first] = self._record_early(binding, product)
        values = self._early_values[first]
        if step.position == last:
            # The next such steps may have the memory once this command has run.
            self._spare_memory.append(values)
        return KnownPart(columns=product.columns, value=values[slice(*step.rows)])

    def _record_early(self, binding: CommandPass, product: EarlyProduct) -> Array:
        kernel = binding.nnet.kernel(product.component)
        x = binding.read_place(product.source)
        values = self._spare(binding.tape, len(x), kernel.component.output_dim)
        kernel.propagate_known(binding.tape, x, values[: len(x)])
        return values

    # ---- derivatives that are put off ----

    def late_columns(self, binding: CommandPass) -> int:
        """The number of columns of the current input derivative that are computed later."""
        product = binding.changes.late.get(binding.position)
        return product.columns if product else 0

    def record_late(self, binding: CommandPass) -> None:
        """Records the products that were postponed until after the current command."""
        product = binding.changes.late.get(binding.position)
        if product is not None and binding.position == product.steps[-1].position:
            binding.tape.begin_command()
            _record_late(binding, product)


def _record_late(binding: CommandPass, product: LateProduct) -> None:
    kept = binding.strided(product.kept)
    values = binding.tape.scratch(len(kept), product.columns)
    binding.nnet.kernel(product.component).backprop_known(binding.tape, kept, values)
    for step in product.steps:
        binding.tape.copy(values[slice(*step.rows)], binding.set_place(step.target))
