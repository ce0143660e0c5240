"""Forwarding descriptors: which row of which node a value is taken from.

A forwarding descriptor maps every requested index to one cindex, with a scale. It never changes n.
The constructors take their fields by position, in the order of the written form.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_descriptors.descriptors.sums import BoolArray, NodeDim, SumDescriptor, to_single
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.indexes.arrays import AnyIndexes, IndexArray, T, X, as_rows, moved_indexes
from nnet3_descriptors.indexes.integers import check_int32
from nnet3_descriptors.text import format_float

if TYPE_CHECKING:
    from nnet3_descriptors.descriptors.sums import Const

Scales = float | npt.NDArray[np.float32]


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

    def map_to_input(self, indexes: IndexArray, node_index: Mapping[str, int]) -> IndexArray:
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
    def map_unbounded(
        self, indexes: AnyIndexes, node_index: Mapping[str, int]
    ) -> npt.NDArray[np.int64]:
        """Returns the same as `map_to_input` in int64, also where there can be no row.

        For look-ups: what an IfDefined() asks for beyond 32 bits is not there.
        """

    @abstractmethod
    def scale(self, indexes: AnyIndexes) -> Scales:
        """Returns what the values are multiplied by.

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
    def operands(self) -> tuple[SumDescriptor, ...]:
        return ()

    @property
    def leaves(self) -> tuple[ForwardingDescriptor, ...]:
        return (self,)

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for source in self.sources for name in source.node_names))

    @property
    def modulus(self) -> int:
        return math.lcm(*(source.modulus for source in self.sources))

    @property
    def constant(self) -> float:
        return 0.0

    @property
    def has_optional_constant(self) -> bool:
        return False

    def computable(self, leaf_available: BoolArray) -> BoolArray:
        return leaf_available.reshape(-1)

    def used(self, leaf_available: BoolArray) -> BoolArray:
        return leaf_available

    def constant_term(self, leaf_available: BoolArray) -> npt.NDArray[np.float32]:
        return np.zeros(leaf_available.shape[1], dtype=np.float32)

    def dim(self, node_dim: NodeDim) -> int:
        dims = {source.dim(node_dim) for source in self.sources}
        if len(dims) != 1:
            raise NetworkError(
                f"the sources of {self} must have the same dimension "
                f"(got {', '.join(map(str, sorted(dims)))})"
            )
        return dims.pop()

    def with_operands(self, operands: tuple[SumDescriptor, ...]) -> SumDescriptor:
        return self

    def map_leaves(
        self,
        forwarding: Callable[[ForwardingDescriptor], SumDescriptor],
        constant: Callable[[Const], SumDescriptor] = lambda const: const,
    ) -> SumDescriptor:
        return forwarding(self)


@attrs.frozen
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

    def map_unbounded(
        self, indexes: AnyIndexes, node_index: Mapping[str, int]
    ) -> npt.NDArray[np.int64]:
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

    def map_unbounded(
        self, indexes: AnyIndexes, node_index: Mapping[str, int]
    ) -> npt.NDArray[np.int64]:
        return self.source.map_unbounded(self._change(indexes), node_index)

    def scale(self, indexes: AnyIndexes) -> Scales:
        return self.source.scale(self._change(indexes))


@attrs.frozen
class Scale(_OneSource):
    """Scale(factor, node): the value of a node times a number."""

    factor: float = attrs.field(converter=to_single)
    source: Node

    @factor.validator
    def _check_factor(self, _: object, factor: float) -> None:
        if not math.isfinite(factor):
            raise NetworkError(f"the scale of Scale() must be finite (got {factor})")

    def __str__(self) -> str:
        return f"Scale({format_float(self.factor)}, {self.source})"

    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> Scale:
        (source,) = sources
        if not isinstance(source, Node):
            raise NetworkError(f"the source of Scale() must be a node (got {source})")
        return Scale(self.factor, source)

    def scale(self, indexes: AnyIndexes) -> Scales:
        return self.factor

    def shift(self) -> tuple[str, int, int] | None:
        return self.source.shift()


@attrs.frozen
class Offset(_OneSource):
    """Offset(source, t_offset [, x_offset]): the source at t + t_offset, x + x_offset."""

    source: ForwardingDescriptor
    t_offset: int = attrs.field(validator=check_int32)
    x_offset: int = attrs.field(default=0, validator=check_int32)

    def __str__(self) -> str:
        x_part = f", {self.x_offset}" if self.x_offset else ""
        return f"Offset({self.source}, {self.t_offset}{x_part})"

    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> Offset:
        return attrs.evolve(self, source=sources[0])

    def _change(self, indexes: AnyIndexes) -> AnyIndexes:
        return moved_indexes(indexes, self.t_offset, self.x_offset)

    def shift(self) -> tuple[str, int, int] | None:
        below = self.source.shift()
        if below is None:
            return None
        name, t_offset, x_offset = below
        return (name, t_offset + self.t_offset, x_offset + self.x_offset)


@attrs.frozen
class Switch(ForwardingDescriptor):
    """Switch(source0, source1, ...): the source whose number is t modulo how many there are."""

    sources: tuple[ForwardingDescriptor, ...] = attrs.field()

    @sources.validator
    def _check_sources(self, _: object, sources: tuple[ForwardingDescriptor, ...]) -> None:
        if not sources:
            raise NetworkError("Switch() must have at least one source")

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

    def map_unbounded(
        self, indexes: AnyIndexes, node_index: Mapping[str, int]
    ) -> npt.NDArray[np.int64]:
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


@attrs.frozen
class Round(_OneSource):
    """Round(source, t_modulus): the source at the largest multiple of t_modulus up to t."""

    source: ForwardingDescriptor
    t_modulus: int = attrs.field(validator=check_int32)

    @t_modulus.validator
    def _check_t_modulus(self, _: object, t_modulus: int) -> None:
        if t_modulus < 1:
            raise NetworkError(f"the modulus of Round() must be positive (got {t_modulus})")

    def __str__(self) -> str:
        return f"Round({self.source}, {self.t_modulus})"

    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> Round:
        return attrs.evolve(self, source=sources[0])

    @property
    def modulus(self) -> int:
        return math.lcm(self.t_modulus, self.source.modulus)

    def _change(self, indexes: AnyIndexes) -> AnyIndexes:
        rounded = indexes.astype(np.int64)
        rounded[:, T] -= rounded[:, T] % self.t_modulus
        return rounded


@attrs.frozen
class ReplaceIndex(_OneSource):
    """ReplaceIndex(source, variable, value): the source with t or x fixed."""

    source: ForwardingDescriptor
    variable: Literal["t", "x"] = attrs.field()
    value: int = attrs.field(validator=check_int32)

    @variable.validator
    def _check_variable(self, _: object, variable: str) -> None:
        if variable not in ("t", "x"):
            raise NetworkError(f"ReplaceIndex() can replace t or x (got {variable!r})")

    def __str__(self) -> str:
        return f"ReplaceIndex({self.source}, {self.variable}, {self.value})"

    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> ReplaceIndex:
        return attrs.evolve(self, source=sources[0])

    @property
    def modulus(self) -> int:
        return 1 if self.variable == "t" else self.source.modulus

    def _change(self, indexes: AnyIndexes) -> AnyIndexes:
        replaced = indexes.copy()
        replaced[:, T if self.variable == "t" else X] = self.value
        return replaced
