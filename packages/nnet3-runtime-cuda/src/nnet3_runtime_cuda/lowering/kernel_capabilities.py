"""The capabilities of a machine, according to its kernels and its tape."""

from __future__ import annotations

import attrs

from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.operations import Operations

ROWS_AT_ONCE = 256
"""The number of rows of products for several steps: enough for them to be fast."""

CHANGING_ROWS_AT_ONCE = 640
"""The same with parameters that may change, which the library copies for each product."""


@attrs.frozen
class KernelCapabilities:
    """The capabilities of the kernels of a network.

    Attributes:
        nnet: The network on its device.
        tape: A tape of the device.
    """

    nnet: DeviceNnet
    tape: Operations

    def can_split(self, component: int) -> bool:
        """See `Capabilities`."""
        return self.nnet.kernel(component).can_split_input

    def rows_at_once(self, component: int) -> int:
        """See `Capabilities`."""
        is_changing = self.tape.gains_by_tiles and not self.nnet.kernel(component).store.is_fixed
        return CHANGING_ROWS_AT_ONCE if is_changing else ROWS_AT_ONCE

    def gains_by_deferring(self, component: int) -> bool:
        """See `Capabilities`; a device takes the time for launches, trained steps have panels."""
        return self.tape.gains_by_tiles and self.nnet.kernel(component).store.is_fixed

    def gains_by_taps(self, component: int, rows: int, offsets: tuple[int, ...]) -> bool:
        """See `Capabilities`."""
        return self.nnet.kernel(component).gains_by_splice(self.tape, rows, offsets)

    def gains_by_panels(self, component: int, rows: int) -> bool:
        """See `Capabilities`; fixed parameters are in panels anyhow."""
        store = self.nnet.kernel(component).store
        return not store.is_fixed and self.tape.gains_by_panels(rows)
