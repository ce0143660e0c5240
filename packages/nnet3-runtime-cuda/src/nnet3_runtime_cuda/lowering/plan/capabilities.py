"""The facts about the machine and the arithmetic of components that a plan needs."""

from __future__ import annotations

from typing import Protocol


class Capabilities(Protocol):
    """The capabilities of a machine; components are given by their numbers."""

    def can_split(self, component: int) -> bool:
        """Whether it is an affine map that can compute some of its input columns at a time."""

    def rows_at_once(self, component: int) -> int:
        """The approximate number of rows that a product for several steps should have."""

    def gains_by_deferring(self, component: int) -> bool:
        """Whether the time of steps of few rows is the time to read the parameters."""

    def gains_by_taps(self, component: int, rows: int, offsets: tuple[int, ...]) -> bool:
        """Whether a component computes an input of taps faster than blocks of columns.

        Args:
            component: Number of the component.
            rows: Rows of the input.
            offsets: The first row of each tap.
        """

    def gains_by_panels(self, component: int, rows: int) -> bool:
        """Whether steps of `rows` rows are faster with the parameters copied into panels."""
