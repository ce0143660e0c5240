"""The structure of a network, which decides its programs: arrays, a fingerprint, and groups."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration import kinds, properties
from nnet3_descriptors.descriptors import Descriptor, Node
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.frozen_arrays import ByFields, ReadOnlyArrays, frozen, read_only
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
    "reached",
    "strongly_connected_components",
    "updated_components",
]

K = TypeVar("K")

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


def reached(start: Iterable[K], edges: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Yields the nodes that edges lead to from some nodes, these included, each once."""
    pending = [*dict.fromkeys(start)]
    seen = {*pending}
    while pending:
        node = pending.pop()
        yield node
        following = [each for each in dict.fromkeys(edges(node)) if each not in seen]
        seen.update(following)
        pending += following


def strongly_connected_components(sources: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Groups nodes that depend on each other, and orders the groups.

    Kosaraju's algorithm (Aho, Hopcroft and Ullman, "Data structures and algorithms", 1983): among
    nodes without a group, the one that was finished last has a group with those that read it.

    Args:
        sources: For each node, the nodes that it reads.

    Returns:
        The nodes, each once, in groups. What a node reads stands before it, except for the edges
        inside a group that close a cycle.
    """
    readers: list[list[int]] = [[] for _ in sources]
    for node, read in enumerate(sources):
        for source in read:
            readers[source].append(node)
    finished = _finished(sources)
    places = {node: place for place, node in enumerate(finished)}
    groups: list[tuple[int, ...]] = []
    ungrouped = {*finished}
    for last in reversed(finished):
        if last in ungrouped:
            ungrouped.remove(last)
            group = [last]
            for node in group:
                found = ungrouped.intersection(readers[node])
                ungrouped -= found
                group += found
            groups.append(tuple(sorted(group, key=places.__getitem__)))
    return tuple(reversed(groups))


def _finished(sources: Sequence[Sequence[int]]) -> list[int]:
    """Returns the nodes in the order in which a search, depth first, is done with them."""
    finished: list[int] = []
    seen: set[int] = set()
    pending = [*reversed(range(len(sources)))]
    while pending:
        node = pending.pop()
        if node < 0:  # all that it reads is done
            finished.append(~node)
        elif node not in seen:
            seen.add(node)
            pending.append(~node)
            pending += reversed(sources[node])
    return finished


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


@attrs.frozen(kw_only=True, eq=False, repr=False, slots=False)
class NetworkFingerprint(ByFields, ReadOnlyArrays):
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

    nodes: Digests = attrs.field(eq=kinds.ArrayKey)
    components: Digests = attrs.field(eq=kinds.ArrayKey)

    __repr__ = object.__repr__

    def __attrs_post_init__(self) -> None:
        for what in ("nodes", "components"):
            vars(self)[what] = _as_digests(what, vars(self)[what])

    @classmethod
    def of(cls, nnet: Nnet) -> NetworkFingerprint:
        """Returns the fingerprint of a network; the same object each time."""
        return _fingerprint(nnet)

    def __getattr__(self, name: str) -> Any:
        """Computes the digests, the only fields that may be missing."""
        texts: Mapping[str, _Texts] = vars(self).get("_texts", {})
        if name not in texts:
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")
        text, count = texts[name]
        digests = vars(self)[name] = _digests_of(map(text, range(count)))
        return digests

    def difference(self, nnet: Nnet) -> str | None:
        """Returns how a network differs from that of this fingerprint; None if it does not."""
        found = NetworkFingerprint.of(nnet)
        if self is found:
            return None
        for what, names in (("component", nnet.component_names), ("node", nnet.node_names)):
            expected, here = getattr(self, f"{what}s"), getattr(found, f"{what}s")
            if len(expected) != len(here):
                return f"the number of {what}s was {len(expected)}, here it is {len(here)}"
            differs = (expected != here).any(axis=1)
            if differs.any():
                number = int(differs.argmax())
                text, _ = found._texts[f"{what}s"]
                return (
                    f"it was made for another {what} {number}; here that is '{names[number]}', "
                    f"{text(number)}"
                )
        return None


_Texts = tuple[Callable[[int], str], int]
"""What gives the text of each node, or of each component, for its digest; and their number."""


@remembered
def _fingerprint(nnet: Nnet) -> NetworkFingerprint:
    """Returns a fingerprint that knows the texts of a network, and no parameters of it."""
    # Unlike the network's mappings, dicts can be pickled.
    node_numbers, component_numbers = dict(nnet.node_indexes), dict(nnet.component_indexes)
    arrays = (*component_dims(nnet), component_properties(nnet), updated_components(nnet))
    numbers = zip(*(array.tolist() for array in arrays), strict=True)
    types, values = map(type, nnet.components), map(_values, nnet.components)
    components = tuple(zip(types, numbers, values, strict=True))
    node_text = functools.partial(_node_text, nnet.nodes, node_numbers, component_numbers)
    fingerprint = NetworkFingerprint.__new__(NetworkFingerprint)
    vars(fingerprint)["_texts"] = {
        "nodes": (node_text, len(nnet.nodes)),
        "components": (functools.partial(_component_text, components), len(components)),
    }
    return fingerprint


def _node_text(
    nodes: Sequence[NetworkNode],
    node_numbers: Mapping[str, int],
    component_numbers: Mapping[str, int],
    number: int,
) -> str:
    """Returns the text of a node for its digest; other nodes stand there by number."""

    def numbered(descriptor: Descriptor) -> str:
        return str(descriptor.map_nodes(lambda name: Node(f"node{node_numbers[name]}")))

    node = nodes[number]
    match node:
        case InputNode():
            return f"input-node dim={node.dim}"
        case ComponentInputNode():
            return f"component-input-node input={numbered(node.descriptor)}"
        case ComponentNode():
            return f"component-node component={component_numbers[node.component]}"
        case DimRangeNode():
            return (
                f"dim-range-node input-node=node{node_numbers[node.source]} "
                f"dim-offset={node.dim_offset} dim={node.dim}"
            )
    return f"output-node input={numbered(node.descriptor)}"


def _component_text(components: Sequence[tuple[Any, ...]], number: int) -> str:
    """Returns the text of a component for its digest.

    Args:
        components: For each its class; its dimensions, its flags and whether it is updated; and the
            values of its settings.
        number: The number of the component.
    """
    cls, numbers, values = components[number]
    settings = dict(zip(_settings(cls), values, strict=True))
    return json.dumps([cls.type, *numbers, settings], separators=(",", ":"))


@functools.cache
def _settings(cls: Any) -> tuple[str, ...]:
    """Returns the names of the fields of a component class that count, in their order."""
    return tuple(
        spec.name
        for spec in cls.FIELDS
        if isinstance(spec.kind, _STRUCTURAL_KINDS) and spec.name not in _OF_TRAINING
    )


def _values(component: Component) -> list[Any]:
    """Returns the values of these fields."""
    cls: Any = type(component)
    return [getattr(component, name) for name in _settings(cls)]


def _digests_of(texts: Iterable[str]) -> Digests:
    import hashlib  # takes a while to import

    data = b"".join(hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES] for text in texts)
    return np.frombuffer(data, np.uint8).reshape(-1, DIGEST_BYTES)


def _as_digests(what: str, values: object) -> Digests:
    array = np.asarray(values, order="C")
    if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != DIGEST_BYTES:
        raise NetworkError(
            f"the fingerprint of {what} must be ({what}, {DIGEST_BYTES}) uint8 (got "
            f"{array.shape} {array.dtype})"
        )
    return read_only(array)
