"""Sum descriptors: which values are added up to make one part of a node's input.

A sum descriptor is a tree of Sum, Failover and IfDefined whose leaves are forwarding descriptors
and constants; see `base`.

The constructors take their fields by position, in the order of the written form.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_descriptors.descriptors.base import BoolArray, NodeDim, SumDescriptor
from nnet3_descriptors.errors import NetworkError


class _Choice(SumDescriptor):
    """What Sum and Failover share: two operands of one dimension."""

    __slots__ = ()

    first: SumDescriptor
    second: SumDescriptor

    @property
    def operands(self) -> tuple[SumDescriptor, ...]:
        return (self.first, self.second)

    def _split(self, leaf_available: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Returns the rows of `leaf_available` that belong to each operand."""
        boundary = len(self.first.leaves)
        return leaf_available[:boundary], leaf_available[boundary:]

    def dim(self, node_dim: NodeDim) -> int:
        first, second = self.first.dim(node_dim), self.second.dim(node_dim)
        if first != second:
            raise NetworkError(
                f"the terms of {self} must have the same dimension (got {first} and {second})"
            )
        return first


@attrs.frozen
class Sum(_Choice):
    """Sum(first, second): the two added; computable if both are."""

    first: SumDescriptor
    second: SumDescriptor

    def __str__(self) -> str:
        return f"Sum({self.first}, {self.second})"

    @property
    def constant(self) -> float:
        return self.first.constant + self.second.constant

    @property
    def has_optional_constant(self) -> bool:
        return self.first.has_optional_constant or self.second.has_optional_constant

    def computable(self, leaf_available: BoolArray) -> BoolArray:
        first, second = self._split(leaf_available)
        return self.first.computable(first) & self.second.computable(second)

    def used(self, leaf_available: BoolArray) -> BoolArray:
        first, second = self._split(leaf_available)
        used = np.concatenate([self.first.used(first), self.second.used(second)])
        return used & self.computable(leaf_available)

    def constant_term(self, leaf_available: BoolArray) -> npt.NDArray[np.float32]:
        first, second = self._split(leaf_available)
        total = self.first.constant_term(first) + self.second.constant_term(second)
        return np.where(self.computable(leaf_available), total, np.float32(0.0))

    def with_operands(self, operands: tuple[SumDescriptor, ...]) -> Sum:
        return Sum(*operands)


@attrs.frozen
class Failover(_Choice):
    """Failover(first, second): `first` where it is computable, else `second`."""

    first: SumDescriptor
    second: SumDescriptor

    def __str__(self) -> str:
        return f"Failover({self.first}, {self.second})"

    @property
    def constant(self) -> float:
        return self.first.constant

    @property
    def has_optional_constant(self) -> bool:
        return (
            self.first.has_optional_constant
            or self.second.has_optional_constant
            or self.first.constant != self.second.constant
        )

    def computable(self, leaf_available: BoolArray) -> BoolArray:
        first, second = self._split(leaf_available)
        return self.first.computable(first) | self.second.computable(second)

    def used(self, leaf_available: BoolArray) -> BoolArray:
        first, second = self._split(leaf_available)
        fails = ~self.first.computable(first)
        return np.concatenate([self.first.used(first), self.second.used(second) & fails])

    def constant_term(self, leaf_available: BoolArray) -> npt.NDArray[np.float32]:
        first, second = self._split(leaf_available)
        return np.where(
            self.first.computable(first),
            self.first.constant_term(first),
            self.second.constant_term(second),
        )

    def with_operands(self, operands: tuple[SumDescriptor, ...]) -> Failover:
        return Failover(*operands)


@attrs.frozen
class IfDefined(SumDescriptor):
    """IfDefined(source): `source` where it is computable, else zero."""

    source: SumDescriptor

    def __str__(self) -> str:
        return f"IfDefined({self.source})"

    @property
    def operands(self) -> tuple[SumDescriptor, ...]:
        return (self.source,)

    @property
    def constant(self) -> float:
        return self.source.constant

    @property
    def has_optional_constant(self) -> bool:
        return self.source.has_optional_constant or (
            self.source.constant != 0.0 and bool(self.source.leaves)
        )

    def computable(self, leaf_available: BoolArray) -> BoolArray:
        return np.ones(leaf_available.shape[1], dtype=np.bool_)

    def used(self, leaf_available: BoolArray) -> BoolArray:
        return self.source.used(leaf_available)

    def constant_term(self, leaf_available: BoolArray) -> npt.NDArray[np.float32]:
        return self.source.constant_term(leaf_available)

    def dim(self, node_dim: NodeDim) -> int:
        return self.source.dim(node_dim)

    def with_operands(self, operands: tuple[SumDescriptor, ...]) -> IfDefined:
        return IfDefined(*operands)
