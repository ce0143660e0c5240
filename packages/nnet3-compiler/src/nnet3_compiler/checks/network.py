"""A computation belongs to the network; and the facts about nodes that checks need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet

from nnet3_compiler.checks.subject import Subject
from nnet3_compiler.steps import Network

Dims = npt.NDArray[np.int32]


def node_dims(nnet: Nnet) -> Dims:
    """Returns the number of columns of each node, (nodes,) int32."""
    return Network.of(nnet).dim


def check_network(subject: Subject) -> None:
    """Checks that the computation was made for this network, if it has a fingerprint.

    The comparison leaves out parameters and names; see `NetworkFingerprint`.
    """
    fingerprint = subject.computation.network
    difference = None if fingerprint is None else fingerprint.difference(subject.nnet)
    if difference is not None:
        subject.fail(f"the computation is of another network: {difference}")
