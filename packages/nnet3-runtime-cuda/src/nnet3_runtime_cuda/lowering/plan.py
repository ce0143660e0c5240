"""The plan of a computation: all changes of lowering, as a value, before anything is bound.

A plan names the commands that are replaced or moved, and the work in their place. All other
commands are bound as they are. The rules read one `MatrixUses` of the commands: `recurrences` finds
products and parameters that steps share, and `splices` inputs whose rows lie in another matrix.
They are for training, and for networks that `nnet3_descriptors.editing.for_inference` has not
rewritten.

Positions are those of the commands (c12 is the command at position 12); rows and columns are
counted from 0.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet

from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.lowering import recurrences, splices
from nnet3_runtime_cuda.lowering.areas import MatrixUses
from nnet3_runtime_cuda.lowering.recurrences import (
    Factor,
    Step,
    StepProduct,
    deferred_derivatives,
    known_inputs,
    step_panels,
)
from nnet3_runtime_cuda.operations import Tape

Shared = Mapping[int, tuple[StepProduct, Step]]
"""By position of a command the product that it shares, and its step of that."""


class Plan(NamedTuple):
    """All changes that lowering makes to a computation, by the position of the command.

    Attributes:
        early: The product from which a step takes a part of its result.
        late: The product that computes the first columns of a step.
        panels: The factor of a step, in panels.
        panel_memory: The number of the memory for each of these factors; two that share one are not
            used at the same time.
        panel_sizes: Elements of each memory.
        inputs: The rows of which an input is made.
        idle: Positions of commands whose input has a matrix without content.
        derivatives: The derivative that a command sums up itself.
        left_out: Positions of commands that are not bound at all.
    """

    early: Shared
    late: Shared
    panels: Mapping[int, Factor]
    panel_memory: Mapping[Factor, int]
    panel_sizes: tuple[int, ...]
    inputs: Mapping[int, splices.Taps]
    idle: frozenset[int]
    derivatives: Mapping[int, splices.SplicedDerivative]
    left_out: frozenset[int]


class Capabilities(NamedTuple):
    """The capabilities of a network on its machine; components are given by their numbers.

    Attributes:
        nnet: The network on its device.
        tape: A tape of the device.
    """

    nnet: DeviceNnet
    tape: Tape

    def can_split(self, component: int) -> bool:
        """Whether it is an affine map that can compute some of its input columns at a time."""
        return self.nnet.kernel(component).can_split_input

    @property
    def most_step_rows(self) -> int:
        """The most rows of a step of a recurrence that gains by products for several steps."""
        return sys.maxsize if self.nnet.machine.is_device else recurrences.MOST_STEP_ROWS

    @property
    def late_rows_at_once(self) -> int:
        """The approximate number of rows of a product that is put off until after several steps."""
        is_device = self.nnet.machine.is_device
        return recurrences.DEVICE_ROWS_AT_ONCE if is_device else recurrences.ROWS_AT_ONCE

    def rows_at_once(self, component: int) -> int:
        """The approximate number of rows that a product made before several steps should have."""
        if self.nnet.machine.is_device:
            return recurrences.DEVICE_ROWS_AT_ONCE
        is_fixed = self.nnet.kernel(component).store.is_fixed
        return recurrences.ROWS_AT_ONCE if is_fixed else recurrences.CHANGING_ROWS_AT_ONCE

    def gains_by_taps(self, component: int, rows: int, offsets: tuple[int, ...]) -> bool:
        """Whether a component computes an input of taps faster than blocks of columns.

        Args:
            component: Number of the component.
            rows: Rows of the input.
            offsets: The first row of each tap.
        """
        return self.nnet.kernel(component).gains_by_splice(self.tape, rows, offsets)

    def gains_by_panels(self, component: int, rows: int) -> bool:
        """Whether steps of `rows` rows are faster with the parameters copied into panels.

        Fixed parameters are in panels anyhow.
        """
        kernel = self.nnet.kernel(component)
        is_changing = kernel.can_split_input and not kernel.store.is_fixed
        return is_changing and self.tape.gains_by_panels(rows)


def plan_with(nnet: Nnet, computation: NnetComputation, can: Capabilities) -> Plan:
    """Makes the plan of a computation.

    Args:
        nnet: The network.
        computation: A computation of it, which has passed `check_runnable`.
        can: The capabilities of the machine.
    """
    uses = MatrixUses(computation)
    most = can.most_step_rows
    early = StepProduct.by_position(known_inputs(uses, can.can_split, can.rows_at_once, most))
    late = StepProduct.by_position(
        deferred_derivatives(uses, can.can_split, can.late_rows_at_once, most)
    )
    inputs, idle, left_out = splices.spliced_inputs(uses, can.gains_by_taps)
    skipped = {at: step.columns for at, (_, step) in (early | late).items()}

    def size(factor: Factor) -> int:
        component = nnet.components[factor.component]
        return component.output_dim * (component.input_dim - factor.skipped)

    panels, panel_memory, panel_sizes = step_panels(uses, can.gains_by_panels, skipped, size)
    derivatives = {
        at: each
        for at, each in splices.spliced_derivatives(uses, can.gains_by_taps)
        # The taps of a command's input are the same, or it has none.
        if at not in inputs or inputs[at].offsets == each.taps.offsets
    }
    copies = [step.copied for _, step in late.values()]
    added = [at for each in derivatives.values() for at in each.added[1:]]
    return Plan(
        early=early,
        late=late,
        panels=panels,
        panel_memory=panel_memory,
        panel_sizes=panel_sizes,
        inputs=inputs,
        idle=idle,
        derivatives=derivatives,
        left_out=frozenset([*left_out, *copies, *added]),
    )
