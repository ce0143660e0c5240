"""Files with the computations of a CachingCompiler."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler import CompilerOptions
from nnet3_computation import ComputationError, ComputationRequest, NnetComputation
from nnet3_descriptors import Nnet
from nnet3_descriptors.structure import Digests, NetworkFingerprint
from nnet3_descriptors.values import Serialized
from nnet3_optimizer import OptimizeOptions

from nnet3.errors import CacheError

_Bytes = npt.NDArray[np.uint8]


@attrs.frozen(kw_only=True, eq=False)
class CachedComputation:
    """One entry of a saved cache: both values in their serialized form, as (bytes,) uint8."""

    request: _Bytes
    computation: _Bytes


@attrs.frozen(kw_only=True, eq=False)
class SavedCache(Serialized):
    """The content of a file of `CachingCompiler.save`.

    Caches of version 1 are refused: their computations have no fingerprints.

    Attributes:
        network_nodes: The fingerprint of the network: the digest of each node.
        network_components: The digest of each component.
        compiler_options: The options that they were compiled with.
        optimize_options: The options that they were optimized with.
        entries: The computations; the last one is the one used most recently.
    """

    FORMAT: ClassVar[str] = "nnet3.computation-cache"
    VERSION: ClassVar[int] = 2

    network_nodes: Digests
    network_components: Digests
    compiler_options: CompilerOptions
    optimize_options: OptimizeOptions
    entries: tuple[CachedComputation, ...]


def save_computations(
    path: str | os.PathLike[str],
    nnet: Nnet,
    options: tuple[CompilerOptions, OptimizeOptions],
    ready: Iterable[tuple[ComputationRequest, NnetComputation]],
) -> None:
    """Writes computations of a network, made with these options; see `CachingCompiler.save`."""
    network = NetworkFingerprint.of(nnet)
    saved = SavedCache(
        network_nodes=network.nodes,
        network_components=network.components,
        compiler_options=options[0],
        optimize_options=options[1],
        entries=tuple(
            CachedComputation(
                request=np.frombuffer(request.to_bytes(), dtype=np.uint8),
                computation=np.frombuffer(computation.to_bytes(), dtype=np.uint8),
            )
            for request, computation in ready
        ),
    )
    saved.save(path)


def load_computations(
    path: str | os.PathLike[str],
    nnet: Nnet,
    options: tuple[CompilerOptions, OptimizeOptions],
) -> list[tuple[ComputationRequest, NnetComputation]]:
    """Reads computations of a network, made with these options; see `CachingCompiler.load`."""
    saved = SavedCache.load(path)
    network = NetworkFingerprint(nodes=saved.network_nodes, components=saved.network_components)
    difference = network.difference(nnet)
    if difference is not None:
        raise CacheError(f"{os.fspath(path)}: the cache is of another network: {difference}")
    for expected, found in zip(
        options, (saved.compiler_options, saved.optimize_options), strict=True
    ):
        if expected != found:
            raise CacheError(f"{os.fspath(path)}: expected {expected}, found {found}")
    loaded: list[tuple[ComputationRequest, NnetComputation]] = []
    for entry in saved.entries:
        computation = NnetComputation.from_bytes(entry.computation.tobytes())
        request = ComputationRequest.from_bytes(entry.request.tobytes())
        try:
            computation.check_network(nnet)
            computation.check_request(request)
        except ComputationError as error:
            raise CacheError(f"{os.fspath(path)}: {error}") from error
        loaded.append((request, computation))
    return loaded
