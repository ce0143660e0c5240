"""The frames of context that a network needs."""

from __future__ import annotations

import functools

import nnet3_descriptors
import numpy as np
from nnet3_computation import RequestError
from nnet3_descriptors import NetworkError, Nnet
from nnet3_descriptors.indexes import make_indexes

from nnet3_graph.arrays import BoolArray
from nnet3_graph.errors import ContextError
from nnet3_graph.nodes.rules import node_rules
from nnet3_graph.reach import find_reach

_WINDOWS_AT_ONCE = 32
"""The number of windows that share a search: the box around all of them grows with their
distance."""


def compute_context(nnet: Nnet) -> tuple[int, int]:
    """Returns the numbers of frames that an output frame needs to its left and to its right.

    The result is that of `nnet3_descriptors.compute_context`, in a fraction of the time. The nodes
    "input" and "output" get the same window of frames; the window of "ivector" reaches further
    back. The context is the number of outputs at each end that cannot be computed.

    Returns:
        (left context, right context), in frames; the largest over the positions of the window
        modulo the modulus of the network.

    Raises:
        ContextError: the network has other inputs, no "output", or computes nothing in any window;
            or the search would exceed `Limits.cindexes` or `Limits.modulus`.
    """
    try:
        return nnet3_descriptors.compute_context(nnet, functools.partial(_computable, nnet))
    except (NetworkError, RequestError) as error:
        raise ContextError(str(error)) from error


def _computable(nnet: Nnet, window: int) -> BoolArray:
    """Returns which outputs can be computed from a window of frames.

    Returns:
        (modulus, window): row s is for the window that begins with frame s.
    """
    firsts = range(0, nnet.modulus, _WINDOWS_AT_ONCE)
    parts = (range(first, min(first + _WINDOWS_AT_ONCE, nnet.modulus)) for first in firsts)
    return np.concatenate([_computable_from(nnet, window, starts) for starts in parts])


def _computable_from(nnet: Nnet, window: int, first_frames: range) -> BoolArray:
    """Returns the same for some windows, one sequence each: (first frames, window)."""
    modulus = nnet.modulus
    starts = np.array(first_frames, dtype=np.int32)
    sequences = np.arange(len(starts), dtype=np.int32)
    rows = make_indexes(
        np.repeat(sequences, window),
        (starts[:, None] + np.arange(window, dtype=np.int32)).reshape(-1),
    )
    given = {nnet.node_index("input"): rows}
    if "ivector" in nnet.node_indexes:
        times = (starts[:, None] - modulus + np.arange(window + modulus)).reshape(-1)
        given[nnet.node_index("ivector")] = make_indexes(
            np.repeat(sequences, window + modulus), times
        )
    output = nnet.node_index("output")
    reach = find_reach(node_rules(nnet), len(starts), given, {output: rows})
    return reach.layout.contains(reach.have[output], rows).reshape(len(starts), window)
