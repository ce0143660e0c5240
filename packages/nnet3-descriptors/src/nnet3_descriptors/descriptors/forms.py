"""The forms of descriptors: leaves, forwarding and sums.

A forwarding descriptor maps every requested index to one cindex, with a scale. It never changes n.
A sum descriptor is a tree of Sum, Failover and IfDefined whose leaves are forwarding descriptors
and constants. The constructors take their fields by position, in the order of the
written form.

The leaves are forwarding descriptors, which are numbered from left to right, and constants. Boolean
arrays of shape (L, N), leaf by row, say which forwarding leaves are available for which rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_descriptors import errors, limits, text
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.frozen_arrays import ByFields
from nnet3_descriptors.indexes import (
    AnyIndexes,
    IndexArray,
    T,
    X,
    as_rows,
    check_int32,
    moved_indexes,
    require_int32,
)

Scales = float | npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
NodeDim = Callable[[str], int]
NodeNumbers = Mapping[str, int]
Cindexes = npt.NDArray[np.int64]
CindexSet = Callable[[Cindexes], BoolArray]
"""Tells for (K, 4) cindexes, columns node, n, t, x, which are in the set: (K,).

Callers can ask for a t or x beyond 32 bits; no set has such a row.
"""
OfLeaf = Callable[["ForwardingDescriptor"], "SumDescriptor"]
OfConst = Callable[["Const"], "SumDescriptor"]


def to_single(value: float) -> float:
    """Returns the float32 that is nearest to `value`; infinite beyond the range of float32."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))


def finite_single(value: float, what: str) -> float:
    """Returns the float32 that is nearest to a number.

    Raises:
        NetworkError: The float32 is not finite; `what` is the name of the number in the message.
    """
    single = to_single(value)
    if not math.isfinite(single):
        raise NetworkError(f"{what} must be finite in single precision (got {value:g})")
    return single


def _unchanged(const: Const) -> SumDescriptor:
    return const


def numbered(names: Iterable[str]) -> dict[str, int]:
    """Returns the place of each of some different names."""
    return {name: number for number, name in enumerate(names)}


def dependencies_of(
    leaves: Sequence[ForwardingDescriptor], indexes: AnyIndexes, node_index: NodeNumbers
) -> Cindexes:
    """Returns the source of each row for each leaf: (L, N, 4) int64, columns node, n, t, x."""
    what = f"the rows that {len(leaves)} terms of a descriptor read for {len(indexes)} rows"
    limits.check_limit("reads", len(leaves) * len(indexes), what)
    cindexes = np.empty((len(leaves), len(indexes), 4), dtype=np.int64)
    for number, leaf in enumerate(leaves):
        cindexes[number] = leaf.map_unbounded(indexes, node_index)
    return cindexes


def are_available(cindexes: Cindexes, available: CindexSet) -> BoolArray:
    """Returns which of (L, N, 4) cindexes are in a set: (L, N)."""
    return available(cindexes.reshape(-1, 4)).reshape(cindexes.shape[:2])


Evaluated = tuple[BoolArray, list[BoolArray], npt.NDArray[np.float32]]
"""For which rows a sum descriptor can be computed, (N,); for each of its leaves, in which of these
it enters, (N,); and the sum of the constants that enter, (N,)."""


class SumDescriptor(ByFields, ABC):
    """A sum of values of one dimension, some of which may be optional."""

    __slots__ = ()

    @property
    def operands(self) -> tuple[SumDescriptor, ...]:
        """The sum descriptors directly below this one; none for a leaf."""
        return ()

    @property
    def leaves(self) -> tuple[ForwardingDescriptor, ...]:
        """The L forwarding descriptors of the tree, from left to right."""
        found: list[ForwardingDescriptor] = []
        pending: list[SumDescriptor] = [self]
        while pending:
            part = pending.pop()
            if isinstance(part, ForwardingDescriptor):
                found.append(part)
            else:
                pending.extend(reversed(part.operands))
        return tuple(found)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes that this may take values from, each once, in order."""
        return tuple(dict.fromkeys(name for leaf in self.leaves for name in leaf.node_names))

    def dependencies(self, indexes: AnyIndexes, node_index: NodeNumbers | None = None) -> Cindexes:
        """Returns all cindexes that might enter the sum.

        Args:
            indexes: (N, 3) int32, the requested indexes, columns n, t, x.
            node_index: The number of each node, by name; by default its place in `node_names`.

        Returns:
            (L, N, 4) int64, columns node, n, t, x: the row that leaf l reads for row n. A t or x
            beyond 32 bits means that there is no such row.
        """
        return dependencies_of(self.leaves, indexes, node_index or numbered(self.node_names))

    def is_computable(
        self, indexes: AnyIndexes, available: CindexSet, node_index: NodeNumbers | None = None
    ) -> tuple[BoolArray, BoolArray]:
        """Tells which rows can be computed, and which leaves enter them.

        Args:
            indexes: (N, 3) int32, the requested indexes, columns n, t, x.
            available: The set of all cindexes that can be computed.
            node_index: As for `dependencies`.

        Returns:
            computable (N,), and used (L, N): which of the `dependencies` enter the sum; none does
            for rows that are not computable.
        """
        leaf_available = are_available(self.dependencies(indexes, node_index), available)
        return self.computable(leaf_available), self.used(leaf_available)

    @property
    def modulus(self) -> int:
        """Smallest shift of t, in frames, that leaves the meaning of this unchanged."""
        return math.lcm(*(operand.modulus for operand in self.operands))

    @property
    def has_constant(self) -> bool:
        """Whether a Const is among the leaves."""
        return any(operand.has_constant for operand in self.operands)

    def computable(self, leaf_available: BoolArray) -> BoolArray:
        """Tells for which rows the sum can be computed.

        Args:
            leaf_available: (L, N), whether leaf l can be computed for row n.

        Returns:
            (N,) boolean array.
        """
        computable, _, _ = self._evaluated_on(leaf_available)
        return computable

    def used(self, leaf_available: BoolArray) -> BoolArray:
        """Tells which leaves enter the sum.

        Args:
            leaf_available: (L, N), whether leaf l can be computed for row n.

        Returns:
            (L, N) boolean array; False everywhere for rows that are not computable.
        """
        _, entering, _ = self._evaluated_on(leaf_available)
        return np.array(entering, dtype=np.bool_).reshape(leaf_available.shape)

    def constant_term(self, leaf_available: BoolArray) -> npt.NDArray[np.float32]:
        """Returns the sum of the constants that enter.

        Args:
            leaf_available: (L, N), whether leaf l can be computed for row n.

        Returns:
            (N,) float32 array; 0 for rows that are not computable.
        """
        _, _, constant = self._evaluated_on(leaf_available)
        return constant

    def _evaluated_on(self, leaf_available: BoolArray) -> Evaluated:
        return self._evaluated(iter(leaf_available), leaf_available.shape[1])

    @abstractmethod
    def _evaluated(self, available: Iterator[BoolArray], count: int) -> Evaluated:
        """Evaluates this for N = `count` rows; takes the arrays of its leaves from `available`.

        A tree of many leaves can be 200 deep, so it is traversed only once.
        """

    @abstractmethod
    def dim(self, node_dim: NodeDim) -> int:
        """Returns the number of columns of the value.

        Args:
            node_dim: Gives the dimension of the node of a name.

        Raises:
            NetworkError: The terms differ in dimension.
        """

    def with_operands(self, operands: tuple[SumDescriptor, ...]) -> SumDescriptor:
        """Returns a copy with other operands; a leaf has none."""
        return self

    def map_leaves(self, forwarding: OfLeaf, constant: OfConst = _unchanged) -> SumDescriptor:
        """Returns the same tree with each forwarding leaf and each constant replaced."""
        operands = tuple(operand.map_leaves(forwarding, constant) for operand in self.operands)
        return self.with_operands(operands)


class ForwardingDescriptor(SumDescriptor):
    """The rows of other nodes; as a sum descriptor, a sum of one term."""

    __slots__ = ()

    @property
    @abstractmethod
    def sources(self) -> tuple[ForwardingDescriptor, ...]:
        """The forwarding descriptors directly below this one; none for a node."""

    @abstractmethod
    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> ForwardingDescriptor:
        """Returns a copy with other sources."""

    def map_to_input(self, indexes: IndexArray, node_index: NodeNumbers) -> IndexArray:
        """Maps requested indexes to the cindexes that the values come from.

        Args:
            indexes: (N, 3) int32, columns n, t, x.
            node_index: The number of each node, by name.

        Returns:
            (N, 4) int32, columns node, n, t, x; row by row.

        Raises:
            NetworkError: A value would come from a t or x beyond 32 bits.
        """
        return as_rows(self.map_unbounded(indexes, node_index), self)

    @abstractmethod
    def map_unbounded(self, indexes: AnyIndexes, node_index: NodeNumbers) -> Cindexes:
        """Returns the same as `map_to_input` in int64, also where there can be no row.

        For look-ups: a row that an IfDefined() asks for beyond 32 bits does not exist.
        """

    @abstractmethod
    def scale(self, indexes: AnyIndexes) -> Scales:
        """Returns the factor of the values.

        Args:
            indexes: (N, 3) int32, the requested indexes.

        Returns:
            One number if all rows have the same scale, else an (N,) float32 array.
        """

    def shift(self) -> tuple[str, int, int] | None:
        """Returns (node name, t offset, x offset) if this adds a fixed offset to one node's index.

        None if this is anything else. A scale does not count.
        """
        return None

    def map_nodes(self, replace: Callable[[str], ForwardingDescriptor]) -> ForwardingDescriptor:
        """Returns a copy in which every node name is replaced by a forwarding descriptor."""
        return self.with_sources(tuple(source.map_nodes(replace) for source in self.sources))

    @property
    def leaves(self) -> tuple[ForwardingDescriptor, ...]:
        return (self,)

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for source in self.sources for name in source.node_names))

    @property
    def modulus(self) -> int:
        return math.lcm(*(source.modulus for source in self.sources))

    def _evaluated(self, available: Iterator[BoolArray], count: int) -> Evaluated:
        computable = next(available)
        return computable, [computable], np.zeros(len(computable), np.float32)

    def dim(self, node_dim: NodeDim) -> int:
        dims = {source.dim(node_dim) for source in self.sources}
        if len(dims) != 1:
            raise NetworkError(
                f"the sources of {self} must have the same dimension "
                f"(got {', '.join(map(str, sorted(dims)))})"
            )
        return dims.pop()

    def map_leaves(self, forwarding: OfLeaf, constant: OfConst = _unchanged) -> SumDescriptor:
        return forwarding(self)


def _constant(value: float) -> float:
    return finite_single(value, "the value of Const()")


@attrs.frozen(eq=False, repr=False)
class Const(SumDescriptor):
    """Const(value, num_columns): `value` in every one of `num_columns` columns."""

    value: float = attrs.field(converter=_constant)
    num_columns: int = attrs.field()

    @num_columns.validator
    def _check_num_columns(self, _: object, num_columns: int) -> None:
        require_int32("the dimension of Const()", num_columns)
        if num_columns <= 0:
            raise NetworkError(f"the dimension of Const() must be positive (got {num_columns})")

    def __str__(self) -> str:
        return f"Const({text.format_float(self.value)}, {self.num_columns})"

    @property
    def has_constant(self) -> bool:
        return True

    def _evaluated(self, available: Iterator[BoolArray], count: int) -> Evaluated:
        return np.ones(count, dtype=np.bool_), [], np.full(count, self.value, np.float32)

    def dim(self, node_dim: NodeDim) -> int:
        return self.num_columns

    def map_leaves(self, forwarding: OfLeaf, constant: OfConst = _unchanged) -> SumDescriptor:
        return constant(self)


@attrs.frozen(eq=False, repr=False)
class Node(ForwardingDescriptor):
    """The value of a node at the requested index; written as the node's name."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def sources(self) -> tuple[ForwardingDescriptor, ...]:
        return ()

    @property
    def node_names(self) -> tuple[str, ...]:
        return (self.name,)

    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> Node:
        return self

    def map_nodes(self, replace: Callable[[str], ForwardingDescriptor]) -> ForwardingDescriptor:
        return replace(self.name)

    def map_unbounded(self, indexes: AnyIndexes, node_index: NodeNumbers) -> Cindexes:
        cindexes = np.empty((len(indexes), 4), dtype=np.int64)
        cindexes[:, 0] = node_index[self.name]
        cindexes[:, 1:] = indexes
        return cindexes

    def scale(self, indexes: AnyIndexes) -> Scales:
        return 1.0

    def shift(self) -> tuple[str, int, int] | None:
        return (self.name, 0, 0)

    def dim(self, node_dim: NodeDim) -> int:
        return node_dim(self.name)


class _OneSource(ForwardingDescriptor):
    """A forwarding descriptor that changes the index, or the scale, of one other."""

    __slots__ = ()

    source: ForwardingDescriptor

    @property
    def sources(self) -> tuple[ForwardingDescriptor, ...]:
        return (self.source,)

    def _change(self, indexes: AnyIndexes) -> AnyIndexes:
        """Returns the (N, 3) indexes at which the source is asked."""
        return indexes

    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> ForwardingDescriptor:
        return attrs.evolve(self, source=sources[0])  # type: ignore[misc]

    def map_unbounded(self, indexes: AnyIndexes, node_index: NodeNumbers) -> Cindexes:
        return self.source.map_unbounded(self._change(indexes), node_index)

    def scale(self, indexes: AnyIndexes) -> Scales:
        return self.source.scale(self._change(indexes))


def _factor(value: float) -> float:
    return finite_single(value, "the scale of Scale()")


@attrs.frozen(eq=False, repr=False)
class Scale(_OneSource):
    """Scale(factor, node): the value of a node times a number."""

    factor: float = attrs.field(converter=_factor)
    source: Node

    def __str__(self) -> str:
        return f"Scale({text.format_float(self.factor)}, {self.source})"

    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> Scale:
        (source,) = sources
        if not isinstance(source, Node):
            raise errors.NetworkError(f"the source of Scale() must be a node (got {source})")
        return Scale(self.factor, source)

    def scale(self, indexes: AnyIndexes) -> Scales:
        return self.factor

    def shift(self) -> tuple[str, int, int] | None:
        return self.source.shift()


@attrs.frozen(eq=False, repr=False)
class Offset(_OneSource):
    """Offset(source, t_offset [, x_offset]): the source at t + t_offset, x + x_offset."""

    source: ForwardingDescriptor
    t_offset: int = attrs.field(validator=check_int32)
    x_offset: int = attrs.field(default=0, validator=check_int32)

    def __str__(self) -> str:
        x_part = f", {self.x_offset}" if self.x_offset else ""
        return f"Offset({self.source}, {self.t_offset}{x_part})"

    def _change(self, indexes: AnyIndexes) -> AnyIndexes:
        return moved_indexes(indexes, self.t_offset, self.x_offset)

    def shift(self) -> tuple[str, int, int] | None:
        below = self.source.shift()
        if below is None:
            return None
        name, t_offset, x_offset = below
        return (name, t_offset + self.t_offset, x_offset + self.x_offset)


@attrs.frozen(eq=False, repr=False)
class Switch(ForwardingDescriptor):
    """Switch(source0, source1, ...): the source with number t modulo the number of sources."""

    sources: tuple[ForwardingDescriptor, ...] = attrs.field()

    @sources.validator
    def _check_sources(self, _: object, sources: tuple[ForwardingDescriptor, ...]) -> None:
        if not sources:
            raise errors.NetworkError("Switch() must have at least one source")

    def __str__(self) -> str:
        return f"Switch({', '.join(map(str, self.sources))})"

    @property
    def modulus(self) -> int:
        return math.lcm(len(self.sources), *(source.modulus for source in self.sources))

    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> Switch:
        return Switch(sources)

    def _chosen(
        self, indexes: AnyIndexes
    ) -> Iterator[tuple[ForwardingDescriptor, npt.NDArray[np.intp]]]:
        """Returns the sources that some of the indexes choose, and the positions of these."""
        chosen = indexes[:, T] % len(self.sources)
        order = np.argsort(chosen, kind="stable")
        numbers, starts = np.unique(chosen[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
            yield self.sources[number], rows

    def map_unbounded(self, indexes: AnyIndexes, node_index: NodeNumbers) -> Cindexes:
        cindexes = np.empty((len(indexes), 4), dtype=np.int64)
        for source, rows in self._chosen(indexes):
            cindexes[rows] = source.map_unbounded(indexes[rows], node_index)
        return cindexes

    def scale(self, indexes: AnyIndexes) -> Scales:
        scales = np.empty(len(indexes), dtype=np.float32)
        for source, rows in self._chosen(indexes):
            scales[rows] = source.scale(indexes[rows])
        uniform = len(scales) > 0 and bool((scales == scales[0]).all())
        return float(scales[0]) if uniform else scales


@attrs.frozen(eq=False, repr=False)
class Round(_OneSource):
    """Round(source, t_modulus): the source at the largest multiple of t_modulus up to t."""

    source: ForwardingDescriptor
    t_modulus: int = attrs.field(validator=check_int32)

    @t_modulus.validator
    def _check_t_modulus(self, _: object, t_modulus: int) -> None:
        if t_modulus < 1:
            raise errors.NetworkError(f"the modulus of Round() must be positive (got {t_modulus})")

    def __str__(self) -> str:
        return f"Round({self.source}, {self.t_modulus})"

    @property
    def modulus(self) -> int:
        return math.lcm(self.t_modulus, self.source.modulus)

    def _change(self, indexes: AnyIndexes) -> AnyIndexes:
        rounded = indexes.astype(np.int64)
        rounded[:, T] -= rounded[:, T] % self.t_modulus
        return rounded


@attrs.frozen(eq=False, repr=False)
class ReplaceIndex(_OneSource):
    """ReplaceIndex(source, variable, value): the source with t or x fixed."""

    source: ForwardingDescriptor
    variable: Literal["t", "x"] = attrs.field()
    value: int = attrs.field(validator=check_int32)

    @variable.validator
    def _check_variable(self, _: object, variable: str) -> None:
        if variable not in ("t", "x"):
            raise errors.NetworkError(f"ReplaceIndex() can replace t or x (got {variable!r})")

    def __str__(self) -> str:
        return f"ReplaceIndex({self.source}, {self.variable}, {self.value})"

    @property
    def modulus(self) -> int:
        return 1 if self.variable == "t" else self.source.modulus

    def _change(self, indexes: AnyIndexes) -> AnyIndexes:
        replaced = indexes.copy()
        replaced[:, T if self.variable == "t" else X] = self.value
        return replaced


class _Operation(SumDescriptor):
    """The common part of Sum, Failover and IfDefined: operands of one dimension."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self.operands))})"

    def dim(self, node_dim: NodeDim) -> int:
        dims = [operand.dim(node_dim) for operand in self.operands]
        if len(set(dims)) > 1:
            raise errors.NetworkError(
                f"the terms of {self} must have the same dimension "
                f"(got {' and '.join(map(str, dims))})"
            )
        return dims[0]

    def with_operands(self, operands: tuple[SumDescriptor, ...]) -> SumDescriptor:
        form: Any = type(self)
        made: SumDescriptor = form(*operands)
        return made


@attrs.frozen(eq=False, repr=False)
class Sum(_Operation):
    """Sum(first, second): the two added; computable if both are."""

    first: SumDescriptor
    second: SumDescriptor

    @property
    def operands(self) -> tuple[SumDescriptor, ...]:
        return (self.first, self.second)

    def _evaluated(self, available: Iterator[BoolArray], count: int) -> Evaluated:
        first, entering_first, constant = self.first._evaluated(available, count)
        second, entering_second, added = self.second._evaluated(available, count)
        computable = first & second
        entering = [rows & computable for rows in (*entering_first, *entering_second)]
        return computable, entering, np.where(computable, constant + added, np.float32(0.0))


@attrs.frozen(eq=False, repr=False)
class Failover(_Operation):
    """Failover(first, second): `first` where it is computable, else `second`."""

    first: SumDescriptor
    second: SumDescriptor

    @property
    def operands(self) -> tuple[SumDescriptor, ...]:
        return (self.first, self.second)

    def _evaluated(self, available: Iterator[BoolArray], count: int) -> Evaluated:
        first, entering_first, constant = self.first._evaluated(available, count)
        second, entering_second, other = self.second._evaluated(available, count)
        instead = [rows & ~first for rows in entering_second]
        return first | second, entering_first + instead, np.where(first, constant, other)


@attrs.frozen(eq=False, repr=False)
class IfDefined(_Operation):
    """IfDefined(source): `source` where it is computable, else zero."""

    source: SumDescriptor

    @property
    def operands(self) -> tuple[SumDescriptor, ...]:
        return (self.source,)

    def _evaluated(self, available: Iterator[BoolArray], count: int) -> Evaluated:
        _, entering, constant = self.source._evaluated(available, count)
        return np.ones(count, dtype=np.bool_), entering, constant
