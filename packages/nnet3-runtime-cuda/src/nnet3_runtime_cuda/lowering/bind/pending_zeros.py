"""Postpones zeroing until it is needed; often it is never needed.

If commands only add to a zeroed matrix, it need not be zeroed: the first sum can replace the
values. So zeroed areas are only noted. If an area is still pending as a whole, a command that adds
to it sets it instead. Before any other command, the pending areas that it accesses are zeroed.
"""

from __future__ import annotations

from nnet3_runtime_cuda.lowering.areas import Area


class PendingZeros:
    """The areas of each matrix whose zeroing is postponed."""

    def __init__(self) -> None:
        self._areas: dict[int, list[Area]] = {}

    def note(self, matrix: int, area: Area) -> None:
        """Notes that an area must be zero; this covers pending areas within it."""
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
