"""The structure of a network, which decides its programs: as arrays, and as a fingerprint."""

from nnet3_descriptors.network_structure import NetworkStructure
from nnet3_descriptors.structure.component_arrays import (
    component_dims,
    component_properties,
    node_dims,
    updated_components,
)
from nnet3_descriptors.structure.fingerprint import DIGEST_BYTES, Digests, NetworkFingerprint

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
