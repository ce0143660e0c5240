"""Capabilities that a test states instead of asking a machine."""

from __future__ import annotations

import attrs
from nnet3_runtime_cuda.lowering.kernel_capabilities import ROWS_AT_ONCE


@attrs.frozen(kw_only=True)
class Stated:
    """What pays, whatever the machine.

    Attributes:
        split: Numbers of the components that are affine maps.
        taps: Numbers of the components that compute with taps.
        panels: Whether parameters are copied into panels.
    """

    split: frozenset[int] = attrs.field(default=(), converter=frozenset)
    taps: frozenset[int] = attrs.field(default=(), converter=frozenset)
    panels: bool = False

    def can_split(self, component: int) -> bool:
        """Whether it is one of the affine maps."""
        return component in self.split

    def rows_at_once(self, component: int) -> int:
        """As on the processor, with fixed parameters."""
        return ROWS_AT_ONCE

    def gains_by_taps(self, component: int, rows: int, offsets: tuple[int, ...]) -> bool:
        """Whether the component computes with taps."""
        return component in self.taps

    def gains_by_panels(self, component: int, rows: int) -> bool:
        """As stated."""
        return self.panels
