"""Sum descriptors: the values whose sum is one part of a node's input.

A sum descriptor is a tree of Sum, Failover and IfDefined whose leaves are forwarding descriptors
and constants; see `base`.

The constructors take their fields by position, in the order of the written form.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_descriptors.descriptors.base import BoolArray, NodeDim, SumDescriptor, Trial
from nnet3_descriptors.errors import NetworkError


class _Choice(SumDescriptor):
    """The common part of Sum and Failover: two operands of one dimension."""

    __slots__ = ()

    first: SumDescriptor
    second: SumDescriptor

    @property
    def operands(self) -> tuple[SumDescriptor, ...]:
        return (self.first, self.second)

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

    def _tried(self, leaves: Iterator[BoolArray], rows: int) -> Trial:
        first, second = self.first._tried(leaves, rows), self.second._tried(leaves, rows)
        return Trial(first.computable & second.computable, (first, second))

    def _enter(self, wanted: BoolArray, trial: Trial, entering: list[BoolArray]) -> None:
        first, second = trial.operands
        wanted = wanted & trial.computable
        self.first._enter(wanted, first, entering)
        self.second._enter(wanted, second, entering)

    def _constants_of(self, trial: Trial) -> npt.NDArray[np.float32]:
        first, second = trial.operands
        total = self.first._constants_of(first) + self.second._constants_of(second)
        return np.where(trial.computable, total, np.float32(0.0))

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

    def _tried(self, leaves: Iterator[BoolArray], rows: int) -> Trial:
        first, second = self.first._tried(leaves, rows), self.second._tried(leaves, rows)
        return Trial(first.computable | second.computable, (first, second))

    def _enter(self, wanted: BoolArray, trial: Trial, entering: list[BoolArray]) -> None:
        first, second = trial.operands
        self.first._enter(wanted & first.computable, first, entering)
        self.second._enter(wanted & ~first.computable, second, entering)

    def _constants_of(self, trial: Trial) -> npt.NDArray[np.float32]:
        first, second = trial.operands
        return np.where(
            first.computable, self.first._constants_of(first), self.second._constants_of(second)
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

    def _tried(self, leaves: Iterator[BoolArray], rows: int) -> Trial:
        return Trial(np.ones(rows, dtype=np.bool_), (self.source._tried(leaves, rows),))

    def _enter(self, wanted: BoolArray, trial: Trial, entering: list[BoolArray]) -> None:
        self.source._enter(wanted, trial.operands[0], entering)

    def _constants_of(self, trial: Trial) -> npt.NDArray[np.float32]:
        return self.source._constants_of(trial.operands[0])

    def dim(self, node_dim: NodeDim) -> int:
        return self.source.dim(node_dim)

    def with_operands(self, operands: tuple[SumDescriptor, ...]) -> IfDefined:
        return IfDefined(*operands)
