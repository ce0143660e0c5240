"""The facts about the machine and the kernels of components that a plan needs."""

from __future__ import annotations

import sys

import attrs

from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.operations import Operations

MOST_STEP_ROWS = 48
"""A step of a recurrence with more rows than this has a fast product of its own on a processor."""

ROWS_AT_ONCE = 256
"""The number of rows of products for several steps: enough for them to be fast."""

CHANGING_ROWS_AT_ONCE = 640
"""The same with parameters that may change, which the library copies for each product."""

DEVICE_ROWS_AT_ONCE = 2048
"""The same on a device, where as many tiles as multiprocessors are computed at a time."""


@attrs.frozen
class Capabilities:
    """The capabilities of a network on its machine; components are given by their numbers.

    Attributes:
        nnet: The network on its device.
        tape: A tape of the device.
    """

    nnet: DeviceNnet
    tape: Operations

    def can_split(self, component: int) -> bool:
        """Whether it is an affine map that can compute some of its input columns at a time."""
        return self.nnet.kernel(component).can_split_input

    @property
    def most_step_rows(self) -> int:
        """The most rows of a step of a recurrence that gains by products for several steps."""
        return sys.maxsize if self.nnet.machine.is_device else MOST_STEP_ROWS

    @property
    def late_rows_at_once(self) -> int:
        """The approximate number of rows of a product that is put off until after several steps."""
        return DEVICE_ROWS_AT_ONCE if self.nnet.machine.is_device else ROWS_AT_ONCE

    def rows_at_once(self, component: int) -> int:
        """The approximate number of rows that a product made before several steps should have."""
        if self.nnet.machine.is_device:
            return DEVICE_ROWS_AT_ONCE
        is_changing = self.tape.gains_by_tiles and not self.nnet.kernel(component).store.is_fixed
        return CHANGING_ROWS_AT_ONCE if is_changing else ROWS_AT_ONCE

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
        store = self.nnet.kernel(component).store
        return not store.is_fixed and self.tape.gains_by_panels(rows)
