"""Rows that are sums of other rows, times factors."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from nnet3_optimizer.equivalence.field import PRIME


@attrs.frozen(eq=False)
class Mixture:
    """For each row of a list the rows that are added up.

    Attributes:
        rows: One of them, times 1; -1 for none.
        more: The others: the place in the list, the row, and its factor.
    """

    rows: list[int]
    more: list[tuple[int, int, int]]

    @classmethod
    def of(cls, count: int, terms: Iterable[tuple[int, int, int]]) -> list[int] | Mixture:
        """Returns so many rows from places, rows and factors: a list if no place has two."""
        rows, more = [-1] * count, []
        for term in terms:
            place, row, factor = term
            if factor == 1 and rows[place] < 0:
                rows[place] = row
            else:
                more.append(term)
        return cls(rows, more) if more else rows

    def taken_from(self, column: list[int]) -> list[int]:
        """Returns the sums, given an element for each row."""
        found = [column[row] if row >= 0 else 0 for row in self.rows]
        for place, row, factor in self.more:
            found[place] = (found[place] + column[row] * factor) % PRIME
        return found
