"""The forms of descriptors: leaves, forwarding and sums.

A forwarding descriptor maps every requested index to one cindex, with a scale. It never changes n.
A sum descriptor is a tree of Sum, Failover and IfDefined whose leaves are forwarding descriptors
and constants; see `base`. The constructors take their fields by position, in the order of the
written form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_descriptors import errors, text
from nnet3_descriptors.descriptors.base import (
    BoolArray,
    Evaluated,
    ForwardingDescriptor,
    NodeDim,
    Scales,
    SumDescriptor,
    finite_single,
)
from nnet3_descriptors.indexes import AnyIndexes, T, X, check_int32, moved_indexes


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

    def with_sources(self, sources: tuple[ForwardingDescriptor, ...]) -> ForwardingDescriptor:
        return attrs.evolve(self, source=sources[0])  # type: ignore[misc]

    def map_unbounded(
        self, indexes: AnyIndexes, node_index: Mapping[str, int]
    ) -> npt.NDArray[np.int64]:
        return self.source.map_unbounded(self._change(indexes), node_index)

    def scale(self, indexes: AnyIndexes) -> Scales:
        return self.source.scale(self._change(indexes))


def _factor(value: float) -> float:
    return finite_single(value, "the scale of Scale()")


@attrs.frozen
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


@attrs.frozen
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


@attrs.frozen
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


@attrs.frozen
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


@attrs.frozen
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


@attrs.frozen
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


@attrs.frozen
class IfDefined(_Operation):
    """IfDefined(source): `source` where it is computable, else zero."""

    source: SumDescriptor

    @property
    def operands(self) -> tuple[SumDescriptor, ...]:
        return (self.source,)

    def _evaluated(self, available: Iterator[BoolArray], count: int) -> Evaluated:
        _, entering, constant = self.source._evaluated(available, count)
        return np.ones(count, dtype=np.bool_), entering, constant
