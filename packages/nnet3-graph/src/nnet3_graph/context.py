"""How many frames of context a network needs."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.indexes import make_indexes
from nnet3_descriptors.nnet import Nnet

from nnet3_graph.errors import ContextError
from nnet3_graph.indexes import BoolArray
from nnet3_graph.node_rules import node_rules
from nnet3_graph.reach import find_reach

_FIRST_WINDOW = 40
_LARGEST_WINDOW = 640


def compute_context(nnet: Nnet) -> tuple[int, int]:
    """Returns the number of frames to the left and right of an output frame that it needs.

    As Kaldi defines it: the nodes "input" and "output" get the same window of frames ("ivector" one
    that reaches further back), and the context is what cannot be computed at the two ends. It is
    the largest over the positions of the window modulo the modulus of the network. Windows of 40
    frames are tried first, then twice as many, up to 640.

    Returns:
        (left context, right context), in frames.

    Raises:
        ContextError: the network has other inputs, no "output", or computes nothing in any window.
    """
    names = {node.name for node in nnet.input_nodes}
    outputs = {node.name for node in nnet.output_nodes}
    if "input" not in names or not names <= {"input", "ivector"} or "output" not in outputs:
        raise ContextError(
            "the context is defined for networks with an output 'output' and the inputs 'input' "
            f"and maybe 'ivector'; this one has inputs {sorted(names)}, outputs {sorted(outputs)}"
        )
    window = _FIRST_WINDOW
    while window <= _LARGEST_WINDOW:
        edges = [_edges(row) for row in _computable(nnet, window)]
        if all(edge is not None for edge in edges):
            left, right = zip(*(edge for edge in edges if edge is not None), strict=True)
            return max(left), max(right)
        window *= 2
    raise ContextError(f"no output can be computed from a window of {window // 2} frames")


def _computable(nnet: Nnet, window: int) -> BoolArray:
    """Returns which outputs can be computed from a window of frames.

    Returns:
        (modulus + 1, window): row s is for the window that begins with frame s.
    """
    modulus = nnet.modulus
    starts = np.arange(modulus + 1, dtype=np.int32)
    rows = make_indexes(
        np.repeat(starts, window), (starts[:, None] + np.arange(window, dtype=np.int32)).reshape(-1)
    )
    given = {nnet.node_index("input"): rows}
    if "ivector" in nnet.node_indexes:
        times = (starts[:, None] - modulus + np.arange(window + modulus)).reshape(-1)
        given[nnet.node_index("ivector")] = make_indexes(np.repeat(starts, window + modulus), times)
    output = nnet.node_index("output")
    reach = find_reach(node_rules(nnet), len(starts), given, {output: rows})
    return reach.layout.contains(reach.have[output], rows).reshape(len(starts), window)


def _edges(computable: BoolArray) -> tuple[int, int] | None:
    """Returns how many outputs are missing before and after the first run of computable ones."""
    if not computable.any():
        return None
    first = int(computable.argmax())
    rest = computable[first:]
    run = len(rest) if rest.all() else int(rest.argmin())
    return first, len(computable) - first - run
