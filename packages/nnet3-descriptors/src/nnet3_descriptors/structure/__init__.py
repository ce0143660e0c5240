"""The structure of a network, which decides its programs: as arrays, and as a fingerprint."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration import kinds, properties
from nnet3_descriptors.descriptors import Descriptor, Node
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.frozen_arrays import ReadOnlyArrays, frozen, is_frozen
from nnet3_descriptors.network_structure import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    NetworkStructure,
)
from nnet3_descriptors.values import remembered

if TYPE_CHECKING:
    from nnet3_descriptors.components.declaration.base import Component
    from nnet3_descriptors.network_structure import Node as NetworkNode
    from nnet3_descriptors.nnet import Nnet

__all__ = [
    "DIGEST_BYTES",
    "Digests",
    "NetworkFingerprint",
    "NetworkStructure",
    "component_dims",
    "component_properties",
    "node_dims",
    "updated_components",
]

_UPDATABLE = int(properties.ComponentProperties.UPDATABLE)


@remembered
def component_properties(nnet: Nnet) -> NDArray[np.int32]:
    """Returns the properties of the components of a network as (components,) int32 bits."""
    return frozen(np.array([int(each.properties) for each in nnet.components], np.int32))


@remembered
def node_dims(nnet: Nnet) -> NDArray[np.int32]:
    """Returns the number of columns of each node, (nodes,) int32."""
    return frozen(np.array([nnet.node_dim(name) for name in nnet.node_names], np.int32))


@remembered
def updated_components(nnet: Nnet) -> NDArray[np.bool_]:
    """Returns which components training changes: (components,) bool."""
    has_parameters = component_properties(nnet) & _UPDATABLE != 0
    updated = has_parameters.copy()
    for number in has_parameters.nonzero()[0].tolist():
        updated[number] = nnet.components[number].is_updated
    return frozen(updated)


@remembered
def component_dims(nnet: Nnet) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns the input and the output dimension of each component, (components,) int32 each."""
    components = nnet.components
    return (
        frozen(np.array([component.input_dim for component in components], np.int32)),
        frozen(np.array([component.output_dim for component in components], np.int32)),
    )


DIGEST_BYTES: Final = 8
"""Number of bytes kept of a SHA-256 digest: enough against accidental equality."""

Digests = NDArray[np.uint8]
"""Digests of 8 bytes: (count, 8) uint8."""

_STRUCTURAL_KINDS: Final = (kinds.Boolean, kinds.Integer, kinds.IntegerPairs, kinds.Integers)
_OF_TRAINING: Final = frozenset(
    {
        "is_gradient",
        "rank",
        "rank_in",
        "rank_out",
        "update_period",
        "use_natural_gradient",
        # Test mode changes programs by the flags of the component alone, which count.
        "test_mode",
        "specaugment_max_regions",
        "time_mask_max_frames",
        # statistics
        "count",
        "num_clipped",
        "num_backpropped",
        "num_self_repaired",
    }
)
"""Whole numbers and flags of components that do not decide programs."""


class _Outline(NamedTuple):
    """The data of the digests. It holds no parameters, and no object that does.

    Attributes:
        nodes: The nodes.
        node_numbers: The number of each node, by name.
        component_numbers: The number of each component, by name.
        components: For each its class, dimensions, flags, whether it is updated, and the values of
            its settings.
    """

    nodes: tuple[NetworkNode, ...]
    node_numbers: Mapping[str, int]
    component_numbers: Mapping[str, int]
    components: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, nnet: Nnet) -> Self:
        """Returns the outline of a network."""
        arrays = (*component_dims(nnet), component_properties(nnet), updated_components(nnet))
        types = [type(component) for component in nnet.components]
        values = map(_values, nnet.components)
        numbers = (array.tolist() for array in arrays)
        return cls(
            nnet.nodes,
            dict(nnet.node_indexes),  # unlike the network's mappings, dicts can be pickled
            dict(nnet.component_indexes),
            tuple(zip(types, *numbers, values, strict=True)),
        )

    def node_text(self, number: int) -> str:
        """Returns the text of a node for its digest; other nodes stand there by number."""
        node = self.nodes[number]
        match node:
            case InputNode():
                return f"input-node dim={node.dim}"
            case ComponentInputNode():
                return f"component-input-node input={self._descriptor(node.descriptor)}"
            case ComponentNode():
                return f"component-node component={self.component_numbers[node.component]}"
            case DimRangeNode():
                source = self.node_numbers[node.source]
                return (
                    f"dim-range-node input-node=node{source} dim-offset={node.dim_offset} "
                    f"dim={node.dim}"
                )
        return f"output-node input={self._descriptor(node.descriptor)}"

    def _descriptor(self, descriptor: Descriptor) -> str:
        return str(descriptor.map_nodes(lambda name: Node(f"node{self.node_numbers[name]}")))

    def component_text(self, number: int) -> str:
        """Returns the text of a component for its digest."""
        cls, *numbers, values = self.components[number]
        settings = dict(zip(_settings(cls), values, strict=True))
        return json.dumps([cls.type, *numbers, settings], separators=(",", ":"))


@attrs.frozen(kw_only=True, eq=False, repr=False, slots=False)
class NetworkFingerprint(ReadOnlyArrays):
    """Digests of the structure that decides a network's programs: eight bytes for each part.

    The digest of a node covers its kind, its descriptor and its dimension. The digest of a
    component covers its type, its dimensions, its `ComponentProperties`, whether training changes
    it, and the settings that are whole numbers or flags, without those of training. Parameters,
    statistics and names are not part of a digest: networks that differ only in these have equal
    fingerprints.

    The text of each part, whose SHA-256 is cut to eight bytes, is in docs/interchange.md. `of`
    returns a fingerprint that computes its digests on first use.

    Attributes:
        nodes: The digest of each node, (nodes, 8) uint8, read-only.
        components: The digest of each component, (components, 8) uint8, read-only.

    Raises:
        NetworkError: The arrays do not have this form.
    """

    nodes: Digests
    components: Digests

    def __attrs_post_init__(self) -> None:
        for what in ("nodes", "components"):
            vars(self)[what] = _as_digests(what, vars(self)[what])

    @classmethod
    def of(cls, nnet: Nnet) -> NetworkFingerprint:
        """Returns the fingerprint of a network; the same object each time."""
        return _fingerprint(nnet)

    def __getattr__(self, name: str) -> Any:
        """Computes the digests, the only fields that may be missing."""
        outline: _Outline | None = vars(self).get("_outline")
        if outline is None or name not in ("nodes", "components"):
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")
        text = outline.node_text if name == "nodes" else outline.component_text
        digests = vars(self)[name] = _digests_of(map(text, range(len(getattr(outline, name)))))
        return digests

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NetworkFingerprint):
            return NotImplemented
        return self is other or (
            np.array_equal(self.nodes, other.nodes)
            and np.array_equal(self.components, other.components)
        )

    def __hash__(self) -> int:
        return hash((self.nodes.tobytes(), self.components.tobytes()))

    def difference(self, nnet: Nnet) -> str | None:
        """Returns how a network differs from that of this fingerprint; None if it does not."""
        found = NetworkFingerprint.of(nnet)
        if self is found:
            return None
        outline = found._outline
        for what, names, text, expected, here in (
            (
                "component",
                nnet.component_names,
                outline.component_text,
                self.components,
                found.components,
            ),
            ("node", nnet.node_names, outline.node_text, self.nodes, found.nodes),
        ):
            if len(expected) != len(here):
                return f"the number of {what}s was {len(expected)}, here it is {len(here)}"
            differs = (expected != here).any(axis=1)
            if differs.any():
                number = int(differs.argmax())
                return (
                    f"it was made for another {what} {number}; here that is '{names[number]}', "
                    f"{text(number)}"
                )
        return None


@remembered
def _fingerprint(nnet: Nnet) -> NetworkFingerprint:
    fingerprint = NetworkFingerprint.__new__(NetworkFingerprint)
    vars(fingerprint)["_outline"] = _Outline.of(nnet)
    return fingerprint


@functools.cache
def _settings(cls: Any) -> tuple[str, ...]:
    """Returns the names of the fields of a component class that count, in their order."""
    return tuple(
        spec.name
        for spec in cls.FIELDS
        if isinstance(spec.kind, _STRUCTURAL_KINDS) and spec.name not in _OF_TRAINING
    )


def _values(component: Component) -> tuple[Any, ...]:
    """Returns the values of these fields."""
    cls: Any = type(component)
    return tuple(getattr(component, name) for name in _settings(cls))


def _digests_of(texts: Iterable[str]) -> Digests:
    import hashlib  # takes a while to import

    data = b"".join(hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES] for text in texts)
    return np.frombuffer(data, np.uint8).reshape(-1, DIGEST_BYTES)


def _as_digests(what: str, values: object) -> Digests:
    array = np.asarray(values)
    if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != DIGEST_BYTES:
        raise NetworkError(
            f"the fingerprint of {what} must be ({what}, {DIGEST_BYTES}) uint8 (got "
            f"{array.shape} {array.dtype})"
        )
    if not is_frozen(array):
        array = array.copy()
        array.flags.writeable = False
    return array
