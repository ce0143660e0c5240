"""Capabilities that a test states instead of asking a machine."""

from __future__ import annotations

import attrs
from nnet3_runtime_cuda.lowering.recurrences import MOST_STEP_ROWS, ROWS_AT_ONCE


@attrs.frozen(kw_only=True)
class Stated:
    """Capabilities of an imagined machine.

    Attributes:
        split: Numbers of the components that can be split as affine maps.
        taps: Numbers of the components that gain by taps.
        panels: Whether panels of parameters are faster.
        most_step_rows: The processor's number.
        late_rows_at_once: The processor's number.
    """

    split: frozenset[int] = attrs.field(default=(), converter=frozenset)
    taps: frozenset[int] = attrs.field(default=(), converter=frozenset)
    panels: bool = False
    most_step_rows: int = MOST_STEP_ROWS
    late_rows_at_once: int = ROWS_AT_ONCE

    def can_split(self, component: int) -> bool:
        """Whether the component is in `split`."""
        return component in self.split

    def rows_at_once(self, component: int) -> int:
        """The processor's number, for fixed parameters."""
        return ROWS_AT_ONCE

    def gains_by_taps(self, component: int, rows: int, offsets: tuple[int, ...]) -> bool:
        """Whether the component is in `taps`."""
        return component in self.taps

    def gains_by_panels(self, component: int, rows: int) -> bool:
        """`panels`."""
        return self.panels
