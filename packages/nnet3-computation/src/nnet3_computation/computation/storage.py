"""The serialized form of a computation: lists of arrays are stored end to end, with their bounds.

Only the layout is here; the container is that of all serialized values (nnet3_descriptors).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

import attrs
import numpy as np
from nnet3_descriptors.components import PrecomputedIndexes
from nnet3_descriptors.structure import Digests, NetworkFingerprint
from nnet3_descriptors.values import Serialized

from nnet3_computation.arrays import IntArray, concatenated, split_at
from nnet3_computation.computation.parts import MatrixDebugInfo, MemoryPlan
from nnet3_computation.errors import ComputationError
from nnet3_computation.request import RequestFingerprint

Content = dict[str, Any]


def _from_1(content: Content) -> Content:
    """Version 2 adds the fingerprints and the memory plan; version 1 has none of them."""
    return {
        **content,
        "network_nodes": None,
        "network_components": None,
        "requests": [],
        "memory_plan": None,
    }


UPGRADES: Final[Mapping[int, Callable[[Content], Content]]] = MappingProxyType({1: _from_1})


@attrs.frozen(kw_only=True, eq=False)
class StoredComputation(Serialized):
    """The fields of `NnetComputation`, with each list of arrays as one array and its bounds.

    List i of `indexes` is indexes[indexes_splits[i]:indexes_splits[i + 1]]; likewise the others.
    debug_info: (matrices, 2), is_deriv and block; empty if there is none.
    """

    FORMAT: ClassVar[str] = "nnet3.computation"
    VERSION: ClassVar[int] = 2
    UPGRADES = UPGRADES

    matrices: IntArray
    submatrices: IntArray
    command_table: IntArray
    indexes: IntArray
    indexes_splits: IntArray
    indexes_multi: IntArray
    indexes_multi_splits: IntArray
    indexes_ranges: IntArray
    indexes_ranges_splits: IntArray
    precomputed_indexes: tuple[PrecomputedIndexes | None, ...]
    need_model_derivative: bool
    debug_info: IntArray
    debug_cindexes: IntArray
    debug_cindexes_splits: IntArray
    debug_sequences: IntArray
    debug_sequences_splits: IntArray
    steps: IntArray
    network_nodes: Digests | None
    network_components: Digests | None
    requests: tuple[RequestFingerprint, ...]
    memory_plan: MemoryPlan | None


_AS_THEY_ARE = (
    "matrices",
    "submatrices",
    "command_table",
    "precomputed_indexes",
    "need_model_derivative",
    "steps",
    "requests",
    "memory_plan",
)
"""Fields of a computation that are stored as they are."""


def store(fields: Mapping[str, Any]) -> bytes:
    """Returns the fields of a computation as bytes."""
    infos, network = fields["matrix_debug_info"], fields["network"]
    stored = {name: fields[name] for name in _AS_THEY_ARE}
    for name, arrays, columns in (
        ("indexes", fields["indexes"], None),
        ("indexes_multi", fields["indexes_multi"], 2),
        ("indexes_ranges", fields["indexes_ranges"], 2),
        ("debug_cindexes", [info.pattern for info in infos], 4),
        ("debug_sequences", [info.sequences for info in infos], None),
    ):
        stored[name], stored[f"{name}_splits"] = concatenated(arrays, columns)
    flags = [(info.is_deriv, info.block) for info in infos]
    return StoredComputation(
        **stored,
        debug_info=np.array(flags, np.int32).reshape(-1, 2),
        network_nodes=None if network is None else network.nodes,
        network_components=None if network is None else network.components,
    ).to_bytes()


def restore(data: bytes) -> dict[str, Any]:
    """Returns the fields of the computation that `store` wrote.

    Raises:
        Nnet3Error: The bytes hold no computation.
    """
    stored = StoredComputation.from_bytes(data)
    patterns, sequences = _split(stored, "debug_cindexes"), _split(stored, "debug_sequences")
    if stored.debug_info.ndim != 2 or stored.debug_info.shape[1] != 2:
        raise ComputationError(
            f"debug_info must have the shape (matrices, 2) (got {stored.debug_info.shape})"
        )
    flags = stored.debug_info.tolist()
    if not len(flags) == len(patterns) == len(sequences):
        raise ComputationError("debug_info, debug_cindexes and debug_sequences differ in length")
    nodes, components = stored.network_nodes, stored.network_components
    if (nodes is None) != (components is None):
        raise ComputationError("network_nodes and network_components go together")
    lists = ("indexes", "indexes_multi", "indexes_ranges")
    return {
        **{name: getattr(stored, name) for name in _AS_THEY_ARE},
        **{name: _split(stored, name) for name in lists},
        "matrix_debug_info": tuple(
            MatrixDebugInfo(is_deriv=bool(is_deriv), pattern=pattern, sequences=n, block=block)
            for (is_deriv, block), pattern, n in zip(flags, patterns, sequences, strict=True)
        ),
        "network": None
        if nodes is None or components is None
        else NetworkFingerprint(nodes=nodes, components=components),
    }


def _split(stored: StoredComputation, name: str) -> tuple[IntArray, ...]:
    """Returns the lists of a field."""
    values, splits = getattr(stored, name), getattr(stored, f"{name}_splits")
    if values.ndim == 0:
        raise ComputationError(f"{name} must have rows (got a single number)")
    rises = splits.ndim == 1 and len(splits) > 0 and not (np.diff(splits) < 0).any()
    if not rises or splits[0] != 0 or splits[-1] != len(values):
        raise ComputationError(f"{name}_splits must rise from 0 to {len(values)}")
    return split_at(values, splits)
