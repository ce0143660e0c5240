"""Zeroing put off until it is needed, which is often never.

A matrix that is zeroed and then added to need not be zeroed: the first sum may as well replace the
values. So zeroed areas are only noted. A command that adds to an area takes it, if the area is
still pending as a whole, and sets instead; what any other command touches is zeroed before it.
"""

from __future__ import annotations

import attrs


@attrs.frozen(order=True)
class Area:
    """Rows row <= r < row_end and columns column <= c < column_end of a matrix; not empty."""

    row: int
    row_end: int
    column: int
    column_end: int

    def contains(self, other: Area) -> bool:
        """Whether all of the other lies within this one."""
        return (
            self.row <= other.row
            and other.row_end <= self.row_end
            and self.column <= other.column
            and other.column_end <= self.column_end
        )

    def overlaps(self, other: Area) -> bool:
        """Whether the two have elements in common."""
        return (
            self.row < other.row_end
            and other.row < self.row_end
            and self.column < other.column_end
            and other.column < self.column_end
        )

    def without(self, other: Area) -> list[Area]:
        """What is left when the other, which lies within this one, is cut out."""
        rest = []
        if self.row < other.row:
            rest.append(Area(self.row, other.row, self.column, self.column_end))
        if other.row_end < self.row_end:
            rest.append(Area(other.row_end, self.row_end, self.column, self.column_end))
        if self.column < other.column:
            rest.append(Area(other.row, other.row_end, self.column, other.column))
        if other.column_end < self.column_end:
            rest.append(Area(other.row, other.row_end, other.column_end, self.column_end))
        return rest


class PendingZeros:
    """The areas of each matrix that are to be zero but have not been written yet."""

    def __init__(self) -> None:
        self._areas: dict[int, list[Area]] = {}

    def note(self, matrix: int, area: Area) -> None:
        """Notes that an area is to be zero; whatever was pending within it is covered by it."""
        kept = [old for old in self._areas.get(matrix, []) if not area.contains(old)]
        self._areas[matrix] = [*kept, area]

    def forget(self, matrix: int) -> None:
        """Notes that the contents of a matrix no longer matter."""
        self._areas.pop(matrix, None)

    def take(self, matrix: int, area: Area) -> bool:
        """Whether all of an area is pending; if so it no longer is, and must now be set."""
        areas = self._areas.get(matrix, [])
        for number, old in enumerate(areas):
            if old.contains(area) and not any(
                other.overlaps(area) for other in areas if other is not old
            ):
                areas[number : number + 1] = old.without(area)
                return True
        return False

    def touching(self, matrix: int, area: Area) -> list[Area]:
        """Removes and returns the pending areas that overlap an area: they must be zeroed now."""
        areas = self._areas.get(matrix)
        if not areas:
            return []
        touched = [old for old in areas if old.overlaps(area)]
        if touched:
            self._areas[matrix] = [old for old in areas if not old.overlaps(area)]
        return touched

    def all(self) -> list[tuple[int, Area]]:
        """Removes and returns everything that is pending."""
        everything = [(matrix, area) for matrix, areas in self._areas.items() for area in areas]
        self._areas.clear()
        return everything
