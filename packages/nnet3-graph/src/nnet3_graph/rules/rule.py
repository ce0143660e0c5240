"""The questions that a rule has to answer.

A rule is a small tree whose leaves read rows of one node each. The graph is built by asking the
rules of all nodes six questions, first about hulls, then about sets of rows:

possible    which rows might be computable, if those of the sources are in these hulls?
want        which rows of the sources might the rows in this hull read?
demand      which rows of the sources might these rows read?
available   which rows are computable, if exactly these rows of the sources are?
use         which of the available rows of the sources do these (computable) rows read?
blame       through which leaves of the rule do missing rows keep these rows from being computable?

Sets of rows are integers in a `BitLayout`; `need` and `have` hold one for each node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from nnet3_graph.sets.bit_layout import BitLayout, Bits
from nnet3_graph.sets.hull import Hull

Want = Callable[[int, Hull], None]
"""Takes a node and a hull of its rows that might be read."""

Leaf = tuple["Rule", Bits]
"""A rule that reads one source, and some rows."""


class Rule(ABC):
    """The condition for computing a row, and the rows that it reads."""

    __slots__ = ()

    @property
    @abstractmethod
    def sources(self) -> tuple[int, ...]:
        """The nodes that might be read, each once."""

    @property
    @abstractmethod
    def moves(self) -> tuple[tuple[int, int], ...]:
        """The constant offsets (t, x) at which the sources might be read."""

    @property
    def has_alternatives(self) -> bool:
        """Whether a computable row may leave an available source unread."""
        return False

    @property
    def has_fixed_t(self) -> bool:
        """Whether rows of all t might read one t, as with ReplaceIndex."""
        return False

    @abstractmethod
    def possible(self, hulls: Sequence[Hull]) -> Hull:
        """Returns a hull of the rows that might be computable, given those of all nodes."""

    @abstractmethod
    def want(self, hull: Hull, want: Want) -> None:
        """Calls `want` for each source with a hull of the rows that `hull` might read."""

    @abstractmethod
    def demand(self, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
        """Adds to `need` all rows that the rows might read.

        Bits outside of the box of the layout may be added too; they mean nothing.
        """

    @abstractmethod
    def available(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Bits:
        """Returns which of the rows are computable if exactly those in `have` are.

        The answer may have other bits too, which mean nothing.
        """

    @abstractmethod
    def use(self, rows: Bits, layout: BitLayout, have: Sequence[Bits], need: list[Bits]) -> None:
        """Adds to `need` the rows that these rows, all of them computable, read."""

    def leaves(self, rows: Bits, layout: BitLayout) -> Iterator[Leaf]:
        """Yields each leaf of the rule, with those of the rows that it is for."""
        yield self, rows

    def blame(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Iterator[Leaf]:
        """Yields the leaves that keep rows from being computable, with the rows that each keeps.

        The rows that such a leaf reads and that are not in `have` are to blame.
        """
        return self.leaves(rows, layout)
