"""Descriptor: the whole input of a component node or output node."""

import math
from collections.abc import Callable, Mapping

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_descriptors.descriptors import base
from nnet3_descriptors.indexes import AnyIndexes


@attrs.frozen
class Descriptor:
    """One or more sum descriptors side by side, in normal form.

    `str()` gives the canonical text; `parse_descriptor` is its inverse.

    Attributes:
        parts: The sum descriptors, whose values are appended column-wise.
    """

    parts: tuple[base.SumDescriptor, ...] = attrs.field(validator=attrs.validators.min_len(1))

    def __str__(self) -> str:
        text = ", ".join(map(str, self.parts))
        return text if len(self.parts) == 1 else f"Append({text})"

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes that this may take values from, each once, in order."""
        if len(self.parts) == 1:
            return self.parts[0].node_names
        return tuple(dict.fromkeys(name for part in self.parts for name in part.node_names))

    @property
    def leaves(self) -> tuple[base.ForwardingDescriptor, ...]:
        """The forwarding descriptors of all parts, from left to right."""
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    def dependencies(
        self, indexes: AnyIndexes, node_index: Mapping[str, int] | None = None
    ) -> npt.NDArray[np.int64]:
        """Returns all cindexes that might be read.

        Args:
            indexes: (N, 3) int32, the requested indexes, columns n, t, x.
            node_index: The number of each node, by name; by default its place in `node_names`.

        Returns:
            (L, N, 4) int64, columns node, n, t, x: the row that leaf l of `leaves` reads for row n.
            A t or x beyond 32 bits means that there is no such row.
        """
        return base.dependencies_of(
            self.leaves, indexes, node_index or base.numbered(self.node_names)
        )

    def is_computable(
        self,
        indexes: AnyIndexes,
        available: base.CindexSet,
        node_index: Mapping[str, int] | None = None,
    ) -> tuple[base.BoolArray, base.BoolArray]:
        """Tells which rows can be computed (all their parts can), and which cindexes they read.

        Args:
            indexes: (N, 3) int32, the requested indexes, columns n, t, x.
            available: The set of all cindexes that can be computed.
            node_index: As for `dependencies`.

        Returns:
            computable (N,), and used (L, N): which of the `dependencies` are read; none for rows
            that are not computable.
        """
        leaf_available = base.are_available(self.dependencies(indexes, node_index), available)
        computable = np.ones(len(indexes), dtype=np.bool_)
        used = np.zeros_like(leaf_available)
        first = 0
        for part in self.parts:
            own = slice(first, first + len(part.leaves))
            computable &= part.computable(leaf_available[own])
            used[own] = part.used(leaf_available[own])
            first = own.stop
        return computable, used & computable

    @property
    def modulus(self) -> int:
        """Smallest shift of t, in frames, that leaves the meaning of this unchanged."""
        return math.lcm(*(part.modulus for part in self.parts))

    def dim(self, node_dim: base.NodeDim) -> int:
        """Returns the number of columns, the sum of those of the parts.

        Args:
            node_dim: Gives the dimension of the node of a name.

        Raises:
            NetworkError: Values that are added differ in dimension.
        """
        return sum(part.dim(node_dim) for part in self.parts)

    def map_nodes(self, replace: Callable[[str], base.ForwardingDescriptor]) -> "Descriptor":
        """Returns a copy in which every node name is replaced by a forwarding descriptor."""
        return Descriptor(
            tuple(part.map_leaves(lambda leaf: leaf.map_nodes(replace)) for part in self.parts)
        )
