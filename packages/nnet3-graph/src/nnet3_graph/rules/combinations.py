"""Rules made of other rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import attrs

from nnet3_graph.rules.reads import Leaf, Rule, Want
from nnet3_graph.sets.bits import EVERYWHERE, NOWHERE, BitLayout, Bits, Hull, join_all, meet


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


@attrs.frozen
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


@attrs.frozen
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


@attrs.frozen
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


@attrs.frozen
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


@attrs.frozen
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
