"""Sum descriptors: which values are added up to make one part of a node's input.

A sum descriptor is a tree of Sum, Failover and IfDefined whose leaves are forwarding descriptors
and constants. The forwarding leaves are numbered from left to right; which of them are available
for which rows is given, and answered, as boolean arrays of shape (L, N): leaf by row.

The constructors take their fields by position, in the order of the written form.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.indexes.integers import require_int32
from nnet3_descriptors.text import format_float

if TYPE_CHECKING:
    from nnet3_descriptors.descriptors.forwarding import ForwardingDescriptor

BoolArray = npt.NDArray[np.bool_]
NodeDim = Callable[[str], int]


def to_single(value: float) -> float:
    """Returns the float32 that is nearest to `value`; infinite beyond the range of float32."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))


class SumDescriptor(ABC):
    """A sum of values of one dimension, some of which may be optional."""

    __slots__ = ()

    @property
    @abstractmethod
    def operands(self) -> tuple[SumDescriptor, ...]:
        """The sum descriptors directly below this one; none for a leaf."""

    @property
    def leaves(self) -> tuple[ForwardingDescriptor, ...]:
        """The L forwarding descriptors of the tree, from left to right."""
        return tuple(leaf for operand in self.operands for leaf in operand.leaves)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes that this may take values from, each once, in order."""
        return tuple(dict.fromkeys(name for leaf in self.leaves for name in leaf.node_names))

    @property
    def modulus(self) -> int:
        """Smallest shift of t, in frames, that leaves the meaning of this unchanged."""
        return math.lcm(*(operand.modulus for operand in self.operands))

    @property
    @abstractmethod
    def constant(self) -> float:
        """What the constants add when every leaf is available."""

    @property
    @abstractmethod
    def has_optional_constant(self) -> bool:
        """Whether what the constants add depends on which leaves are available."""

    @abstractmethod
    def computable(self, leaf_available: BoolArray) -> BoolArray:
        """Tells for which rows the sum can be computed.

        Args:
            leaf_available: (L, N), whether leaf l can be computed for row n.

        Returns:
            (N,) boolean array.
        """

    @abstractmethod
    def used(self, leaf_available: BoolArray) -> BoolArray:
        """Tells which leaves enter the sum.

        Args:
            leaf_available: (L, N), whether leaf l can be computed for row n.

        Returns:
            (L, N) boolean array; False everywhere for rows that are not computable.
        """

    @abstractmethod
    def constant_term(self, leaf_available: BoolArray) -> npt.NDArray[np.float32]:
        """Returns the sum of the constants that enter.

        Args:
            leaf_available: (L, N), whether leaf l can be computed for row n.

        Returns:
            (N,) float32 array; 0 for rows that are not computable.
        """

    @abstractmethod
    def dim(self, node_dim: NodeDim) -> int:
        """Returns the number of columns of the value.

        Args:
            node_dim: Gives the dimension of the node of a name.

        Raises:
            NetworkError: The terms differ in dimension.
        """

    @abstractmethod
    def with_operands(self, operands: tuple[SumDescriptor, ...]) -> SumDescriptor:
        """Returns a copy with other operands."""

    def map_leaves(
        self,
        forwarding: Callable[[ForwardingDescriptor], SumDescriptor],
        constant: Callable[[Const], SumDescriptor] = lambda const: const,
    ) -> SumDescriptor:
        """Returns the same tree with each forwarding leaf and each constant replaced."""
        operands = tuple(operand.map_leaves(forwarding, constant) for operand in self.operands)
        return self.with_operands(operands)


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


@attrs.frozen
class Const(SumDescriptor):
    """Const(value, num_columns): `value` in every one of `num_columns` columns."""

    value: float = attrs.field(converter=to_single)
    num_columns: int = attrs.field()

    @value.validator
    def _check_value(self, _: object, value: float) -> None:
        if not math.isfinite(value):
            raise NetworkError(f"the value of Const() must be finite (got {value})")

    @num_columns.validator
    def _check_num_columns(self, _: object, num_columns: int) -> None:
        require_int32("the dimension of Const()", num_columns)
        if num_columns <= 0:
            raise NetworkError(f"the dimension of Const() must be positive (got {num_columns})")

    def __str__(self) -> str:
        return f"Const({format_float(self.value)}, {self.num_columns})"

    @property
    def operands(self) -> tuple[SumDescriptor, ...]:
        return ()

    @property
    def constant(self) -> float:
        return self.value

    @property
    def has_optional_constant(self) -> bool:
        return False

    def computable(self, leaf_available: BoolArray) -> BoolArray:
        return np.ones(leaf_available.shape[1], dtype=np.bool_)

    def used(self, leaf_available: BoolArray) -> BoolArray:
        return leaf_available

    def constant_term(self, leaf_available: BoolArray) -> npt.NDArray[np.float32]:
        return np.full(leaf_available.shape[1], self.value, dtype=np.float32)

    def dim(self, node_dim: NodeDim) -> int:
        return self.num_columns

    def with_operands(self, operands: tuple[SumDescriptor, ...]) -> Const:
        return self

    def map_leaves(
        self,
        forwarding: Callable[[ForwardingDescriptor], SumDescriptor],
        constant: Callable[[Const], SumDescriptor] = lambda const: const,
    ) -> SumDescriptor:
        return constant(self)
