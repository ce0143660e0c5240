"""Descriptor: the whole input of a component node or output node."""

import math
from collections.abc import Callable

import attrs

from nnet3_descriptors.descriptors.base import ForwardingDescriptor, NodeDim, SumDescriptor


@attrs.frozen
class Descriptor:
    """One or more sum descriptors side by side, in normal form.

    `str()` gives the canonical text; `parse_descriptor` is its inverse.

    Attributes:
        parts: The sum descriptors, whose values are appended column-wise.
    """

    parts: tuple[SumDescriptor, ...] = attrs.field(validator=attrs.validators.min_len(1))

    def __str__(self) -> str:
        text = ", ".join(map(str, self.parts))
        return text if len(self.parts) == 1 else f"Append({text})"

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes that this may take values from, each once, in order."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.node_names))

    @property
    def modulus(self) -> int:
        """Smallest shift of t, in frames, that leaves the meaning of this unchanged."""
        return math.lcm(*(part.modulus for part in self.parts))

    def dim(self, node_dim: NodeDim) -> int:
        """Returns the number of columns, the sum of those of the parts.

        Args:
            node_dim: Gives the dimension of the node of a name.

        Raises:
            NetworkError: Values that are added differ in dimension.
        """
        return sum(part.dim(node_dim) for part in self.parts)

    def map_nodes(self, replace: Callable[[str], ForwardingDescriptor]) -> "Descriptor":
        """Returns a copy in which every node name is replaced by a forwarding descriptor."""
        return Descriptor(
            tuple(part.map_leaves(lambda leaf: leaf.map_nodes(replace)) for part in self.parts)
        )
