"""Rules: conditions for computing a row of a node, and the rows of other nodes that it reads.

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

import attrs
import numpy as np
from nnet3_descriptors.components import Component
from nnet3_descriptors.values import ByFields

from nnet3_graph.sets.bits import (
    EVERYWHERE,
    NOWHERE,
    BitLayout,
    Bits,
    Hull,
    check_rows_exist,
    hull_of,
    join_all,
    meet,
    moved_over,
)

Want = Callable[[int, Hull], None]
"""Takes a node and a hull of its rows that might be read."""

Leaf = tuple["Rule", Bits]
"""A rule that reads one source, and some rows."""


class Rule(ByFields, ABC):
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


_ASKED_AT_ONCE = 1 << 16
"""The most rows of a layout to ask a component about at once, to bound the memory."""


class _Read(Rule):
    """A rule that reads rows of one source."""

    __slots__ = ()

    source: int

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.source,)

    def use(self, rows: Bits, layout: BitLayout, have: Sequence[Bits], need: list[Bits]) -> None:
        self.demand(rows, layout, need)


@attrs.frozen(eq=False, repr=False)
class Shift(_Read):
    """The row of a source at (t + t offset, x + x offset)."""

    source: int
    t: int
    x: int

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        return ((self.t, self.x),)

    def possible(self, hulls: Sequence[Hull]) -> Hull:
        return hulls[self.source].shifted(-self.t, -self.x)

    def want(self, hull: Hull, want: Want) -> None:
        want(self.source, hull.shifted(self.t, self.x))

    def demand(self, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
        t, x = self.t, self.x
        if t == x == 0:
            need[self.source] |= rows
        elif abs(t) < layout.num_t and abs(x) < layout.num_x:
            move = t + x * layout.row
            need[self.source] |= rows << move if move >= 0 else rows >> -move

    def available(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Bits:
        t, x = self.t, self.x
        if t == x == 0:
            return have[self.source]
        if abs(t) >= layout.num_t or abs(x) >= layout.num_x:
            return 0
        move = t + x * layout.row
        return have[self.source] >> move if move >= 0 else have[self.source] << -move


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Fixed(_Read):
    """The row of a source at a fixed t, or a fixed x, or both.

    Attributes:
        source: the node.
        t: the offset that is added to t, unless t is fixed.
        x: the offset that is added to x, unless x is fixed.
        fixed_t: the t that is read for every row, or None.
        fixed_x: the x that is read for every row, or None.
    """

    source: int
    t: int = 0
    x: int = 0
    fixed_t: int | None = None
    fixed_x: int | None = None

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        return ((self.t, self.x),)

    @property
    def has_fixed_t(self) -> bool:
        return self.fixed_t is not None

    def possible(self, hulls: Sequence[Hull]) -> Hull:
        source = meet(hulls[self.source], self._target(EVERYWHERE))
        if not source:
            return NOWHERE
        first_t, last_t, first_x, last_x = source.shifted(-self.t, -self.x)
        if self.fixed_t is not None:
            first_t, last_t = EVERYWHERE.t_first, EVERYWHERE.t_last
        if self.fixed_x is not None:
            first_x, last_x = EVERYWHERE.x_first, EVERYWHERE.x_last
        return Hull(first_t, last_t, first_x, last_x)

    def want(self, hull: Hull, want: Want) -> None:
        want(self.source, self._target(hull))

    def _target(self, hull: Hull) -> Hull:
        """Returns where the source is read for the rows in a hull."""
        first_t, last_t, first_x, last_x = hull.shifted(self.t, self.x)
        if self.fixed_t is not None:
            first_t = last_t = self.fixed_t
        if self.fixed_x is not None:
            first_x = last_x = self.fixed_x
        return Hull(first_t, last_t, first_x, last_x)

    def demand(self, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
        if self.fixed_t is not None:
            rows = layout.to_t(rows, self.fixed_t)
        if self.fixed_x is not None:
            rows = layout.to_x(rows, self.fixed_x)
        Shift(self.source, self.t, self.x).demand(rows, layout, need)

    def available(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Bits:
        found = Shift(self.source, self.t, self.x).available(rows, layout, have)
        if self.fixed_x is not None:
            found = layout.at_x(found, self.fixed_x)
        if self.fixed_t is not None:
            found = layout.at_t(found, self.fixed_t)
        return found


@attrs.frozen(eq=False, repr=False)
class AnyOf(_Read):
    """All existing rows of a source at (t + offset, x); one is enough.

    Attributes:
        source: the node.
        offsets: ascending offsets in t, at least one.
    """

    source: int
    offsets: range = attrs.field(validator=attrs.validators.min_len(1))

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        return ((self.offsets[0], 0), (self.offsets[-1], 0))

    def possible(self, hulls: Sequence[Hull]) -> Hull:
        first_t, last_t, first_x, last_x = hulls[self.source]
        return Hull(first_t - self.offsets[-1], last_t - self.offsets[0], first_x, last_x)

    def want(self, hull: Hull, want: Want) -> None:
        first_t, last_t, first_x, last_x = hull
        moved = Hull(first_t + self.offsets[0], last_t + self.offsets[-1], first_x, last_x)
        want(self.source, moved)

    def demand(self, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
        need[self.source] |= moved_over(rows, layout.clamped(self.offsets))

    def available(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Bits:
        offsets = layout.clamped(self.offsets)
        if not offsets:
            return 0
        return moved_over(have[self.source], range(-offsets[-1], 1 - offsets[0], offsets.step))

    def use(self, rows: Bits, layout: BitLayout, have: Sequence[Bits], need: list[Bits]) -> None:
        need[self.source] |= moved_over(rows, layout.clamped(self.offsets)) & have[self.source]


@attrs.frozen(eq=False, repr=False)
class Asked(_Read):
    """The rows that the index rules of a component return for arrays of indexes.

    This is for types without a closed form. The rule assumes something that types do not promise: a
    larger t (or x) at the output never needs a smaller t (or x) at the input.

    Attributes:
        source: the component-input node.
        component: the component.
    """

    source: int
    component: Component = attrs.field(eq=id)

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        return ()

    @property
    def has_alternatives(self) -> bool:
        return True

    def same_rows(self, layout: BitLayout) -> Bits:
        """Returns the rows of a layout that need the same row of the source, and no other.

        The component is asked about all rows of the layout, once.
        """
        if type(self.component).is_computable is not Component.is_computable:
            return 0
        same = np.zeros(layout.num_x * layout.num_t, dtype=np.bool_)
        for first in range(0, len(same), _ASKED_AT_ONCE):
            numbers = np.arange(first, min(first + _ASKED_AT_ONCE, len(same)))
            x, t = np.divmod(numbers, layout.num_t)
            columns = (0 * t, t + layout.t_first, x + layout.x_first)
            rows = np.stack(columns, axis=1).astype(np.int32)
            splits, inputs = self.component.input_dependencies(rows)
            one = np.flatnonzero(np.diff(splits) == 1)
            same[numbers[one]] = (inputs[splits[one]] == rows[one]).all(axis=1)
        shape = (layout.num_patterns, layout.num_x, layout.num_t)
        return layout.bits(np.broadcast_to(same.reshape(shape[1:]), shape))

    def possible(self, hulls: Sequence[Hull]) -> Hull:
        return EVERYWHERE

    def want(self, hull: Hull, want: Want) -> None:
        if not hull.is_finite:
            want(self.source, EVERYWHERE)
            return
        check_rows_exist(hull)
        corners = [
            (0, int(t), int(x))
            for t in (hull.t_first, hull.t_last)
            for x in (hull.x_first, hull.x_last)
        ]
        _, inputs = self.component.input_dependencies(np.array(corners, dtype=np.int32))
        want(self.source, hull_of(inputs))

    def demand(self, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
        _, inputs = self.component.input_dependencies(layout.indexes(rows))
        need[self.source] |= layout.set_of(inputs)

    def available(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Bits:
        outputs = layout.indexes(rows)
        splits, inputs = self.component.input_dependencies(outputs)
        found = layout.contains(have[self.source], inputs)
        computable, _ = self.component.is_computable(outputs, splits, inputs, found)
        return layout.set_of(outputs[computable])

    def use(self, rows: Bits, layout: BitLayout, have: Sequence[Bits], need: list[Bits]) -> None:
        outputs = layout.indexes(rows)
        splits, inputs = self.component.input_dependencies(outputs)
        found = layout.contains(have[self.source], inputs)
        _, used = self.component.is_computable(outputs, splits, inputs, found)
        need[self.source] |= layout.set_of(inputs[used])


class _Combination(Rule):
    """A rule that reads what its parts read."""

    __slots__ = ()

    parts: tuple[Rule, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(source for part in self.parts for source in part.sources))

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        return tuple(move for part in self.parts for move in part.moves)

    @property
    def has_alternatives(self) -> bool:
        return any(part.has_alternatives for part in self.parts)

    @property
    def has_fixed_t(self) -> bool:
        return any(part.has_fixed_t for part in self.parts)

    def want(self, hull: Hull, want: Want) -> None:
        for part in self.parts:
            part.want(hull, want)

    def demand(self, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
        for part in self.parts:
            part.demand(rows, layout, need)

    def leaves(self, rows: Bits, layout: BitLayout) -> Iterator[Leaf]:
        for part in self.parts:
            yield from part.leaves(rows, layout)


@attrs.frozen(eq=False, repr=False)
class All(_Combination):
    """All of the parts; without parts, a row that can always be computed."""

    parts: tuple[Rule, ...]

    def possible(self, hulls: Sequence[Hull]) -> Hull:
        possible = EVERYWHERE
        for part in self.parts:
            possible = meet(possible, part.possible(hulls))
        return possible

    def available(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Bits:
        available = rows
        for part in self.parts:
            available &= part.available(rows, layout, have)
        return available

    def use(self, rows: Bits, layout: BitLayout, have: Sequence[Bits], need: list[Bits]) -> None:
        for part in self.parts:
            part.use(rows, layout, have, need)

    def blame(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Iterator[Leaf]:
        for part in self.parts:
            lacking = rows & ~part.available(rows, layout, have)
            yield from part.blame(lacking, layout, have)


@attrs.frozen(eq=False, repr=False)
class First(_Combination):
    """The first of the parts that can be computed; without parts, a row that never can be."""

    parts: tuple[Rule, ...]

    @property
    def has_alternatives(self) -> bool:
        return len(self.parts) > 1 or any(part.has_alternatives for part in self.parts)

    def possible(self, hulls: Sequence[Hull]) -> Hull:
        return join_all(part.possible(hulls) for part in self.parts)

    def available(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Bits:
        available = 0
        for part in self.parts:
            available |= part.available(rows, layout, have)
        return available

    def use(self, rows: Bits, layout: BitLayout, have: Sequence[Bits], need: list[Bits]) -> None:
        for part in self.parts:
            available = part.available(rows, layout, have)
            part.use(rows & available, layout, have, need)
            rows &= ~available


ALWAYS = All(())
"""A row that reads nothing, such as a constant."""

NEVER = First(())
"""A row that cannot be computed, such as one of an input node."""


@attrs.frozen(eq=False, repr=False)
class Optional(_Combination):
    """A part that is read if it can be computed, and otherwise left out."""

    part: Rule

    @property
    def parts(self) -> tuple[Rule, ...]:  # type: ignore[override]
        return (self.part,)

    @property
    def has_alternatives(self) -> bool:
        # An available source is left out too if another one of the same part is missing.
        return self.part.has_alternatives or isinstance(self.part, All)

    def possible(self, hulls: Sequence[Hull]) -> Hull:
        return EVERYWHERE

    def available(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Bits:
        return rows

    def use(self, rows: Bits, layout: BitLayout, have: Sequence[Bits], need: list[Bits]) -> None:
        rows &= self.part.available(rows, layout, have)
        if rows:
            self.part.use(rows, layout, have, need)

    def blame(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Iterator[Leaf]:
        return iter(())


class _Split(_Combination):
    """A rule that follows another part in each of some disjoint sets of rows."""

    __slots__ = ()

    @abstractmethod
    def _split(self, rows: Bits, layout: BitLayout) -> Iterator[tuple[Rule, Bits]]:
        """Yields the parts and the rows that follow each, if there are any."""

    def demand(self, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
        for part, some in self._split(rows, layout):
            part.demand(some, layout, need)

    def available(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Bits:
        available = 0
        for part, some in self._split(rows, layout):
            available |= some & part.available(some, layout, have)
        return available

    def use(self, rows: Bits, layout: BitLayout, have: Sequence[Bits], need: list[Bits]) -> None:
        for part, some in self._split(rows, layout):
            part.use(some, layout, have, need)

    def leaves(self, rows: Bits, layout: BitLayout) -> Iterator[Leaf]:
        for part, some in self._split(rows, layout):
            yield from part.leaves(some, layout)

    def blame(self, rows: Bits, layout: BitLayout, have: Sequence[Bits]) -> Iterator[Leaf]:
        for part, some in self._split(rows, layout):
            yield from part.blame(some, layout, have)


@attrs.frozen(eq=False, repr=False)
class ByTime(_Split):
    """Another part for each value of t modulo the number of parts."""

    parts: tuple[Rule, ...]

    def possible(self, hulls: Sequence[Hull]) -> Hull:
        return join_all(
            self._with_residue(part.possible(hulls), residue)
            for residue, part in enumerate(self.parts)
        )

    def _with_residue(self, hull: Hull, residue: int) -> Hull:
        """Returns the hull of the rows with t = residue modulo the number of parts."""
        if not hull.is_finite:
            return hull
        modulus = len(self.parts)
        narrowed = hull._replace(
            t_first=hull.t_first + (residue - hull.t_first) % modulus,
            t_last=hull.t_last - (hull.t_last - residue) % modulus,
        )
        return narrowed if narrowed else NOWHERE

    def want(self, hull: Hull, want: Want) -> None:
        for residue, part in enumerate(self.parts):
            rows = self._with_residue(hull, residue)
            if rows:
                part.want(rows, want)

    def _split(self, rows: Bits, layout: BitLayout) -> Iterator[tuple[Rule, Bits]]:
        modulus = len(self.parts)
        for residue in layout.residues(modulus, rows):
            if some := rows & layout.residue(modulus, residue):
                yield self.parts[residue], some


@attrs.frozen(eq=False, repr=False)
class InRows(_Split):
    """One part for some rows of a layout, another for all others.

    Attributes:
        parts: the two parts.
        rows: the rows that follow the first.
    """

    parts: tuple[Rule, Rule]
    rows: Bits

    def possible(self, hulls: Sequence[Hull]) -> Hull:
        return join_all(part.possible(hulls) for part in self.parts)

    def _split(self, rows: Bits, layout: BitLayout) -> Iterator[tuple[Rule, Bits]]:
        for part, some in zip(self.parts, (rows & self.rows, rows & ~self.rows), strict=True):
            if some:
                yield part, some
