"""The frames of context that a network needs.

Kaldi finds this by trial: it gives all frames of a window, and counts the output frames that can be
computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
from nnet3_computation import RequestError
from nnet3_computation.arrays import Bools
from nnet3_descriptors import ComponentNode, NetworkError, Nnet
from nnet3_descriptors.indexes import make_indexes

from nnet3_graph.errors import ContextError, listed
from nnet3_graph.nodes import node_rules
from nnet3_graph.rows import Reach, find_reach

_INPUT: Final = "input"
_IVECTOR: Final = "ivector"
_OUTPUT: Final = "output"

_WINDOWS: Final = (40, 80, 160, 320, 640)
"""Numbers of frames to try; the first one from which each position gives an output is taken."""

_MAX_MODULUS: Final = 2000
"""The number of positions of the window to try with each."""

_WINDOWS_AT_ONCE: Final = 32
"""The number of windows that share a search: the box around all of them grows with their
distance."""

_SHOWN: Final = 6
"""The most nodes of a recurrence in a message."""


def compute_context(nnet: Nnet) -> tuple[int, int]:
    """Returns the numbers of frames that an output frame needs to its left and to its right.

    As Kaldi defines it: the nodes "input" and "output" get the same window of frames; the window of
    "ivector" begins `nnet.modulus` frames earlier. Of the outputs, the first unbroken run that can
    be computed counts. The context is the number of outputs before this run and after it.

    Args:
        nnet: a network with an output "output" and the inputs "input" and perhaps "ivector".

    Returns:
        (left context, right context), in frames; the largest over the positions of the window
        modulo the modulus of the network.

    Raises:
        ContextError: the network has other inputs, no "output", a modulus above 2000, or computes
            nothing in a window of 640 frames; or the search would exceed `Limits.cindexes` or
            `Limits.modulus`.
    """
    _check_nodes(nnet)
    try:
        for window in _WINDOWS:
            rows = itertools.takewhile(lambda row: bool(row.any()), _computable(nnet, window))
            found = [*map(_edges, rows)]
            if len(found) == nnet.modulus:
                return max(left for left, _ in found), max(right for _, right in found)
        raise ContextError(
            f"no output can be computed from a window of {_WINDOWS[-1]} frames"
            + _recurrence_without_beginning(nnet)
        )
    except (NetworkError, RequestError) as error:
        raise ContextError(str(error)) from error


def _check_nodes(nnet: Nnet) -> None:
    """Raises a ContextError unless the context of a network is defined."""
    inputs = [node.name for node in nnet.input_nodes]
    outputs = [node.name for node in nnet.output_nodes]
    is_simple = _OUTPUT in outputs and _INPUT in inputs
    if not is_simple or (len(inputs) > 1 and _IVECTOR not in inputs):
        raise ContextError(
            'the context is defined for networks with "input" and "output" only, and maybe '
            f'"ivector"; this one has inputs {inputs}, outputs {outputs}'
        )
    if nnet.modulus > _MAX_MODULUS:
        raise ContextError(
            f"the network is the same only every {nnet.modulus} frames, and the context is found "
            f"for at most {_MAX_MODULUS} positions"
        )


def _edges(computable: Bools) -> tuple[int, int]:
    """Returns how many outputs are missing before and after the first run of computable ones."""
    first = int(computable.argmax())
    rest = computable[first:]
    run = len(rest) if rest.all() else int(rest.argmin())
    return first, len(computable) - first - run


def _computable(nnet: Nnet, window: int) -> Iterator[Bools]:
    """Yields which outputs can be computed from a window of frames.

    Yields:
        (window,), for each of the windows that begin with frame 0, 1, ... modulus - 1.
    """
    firsts = range(0, nnet.modulus, _WINDOWS_AT_ONCE)
    parts = (range(first, min(first + _WINDOWS_AT_ONCE, nnet.modulus)) for first in firsts)
    output = nnet.node_index(_OUTPUT)
    for starts in parts:
        reach = _reach(nnet, window, starts)
        rows = _frames(starts, window)
        yield from reach.layout.contains(reach.have[output], rows).reshape(-1, window)


def _reach(nnet: Nnet, window: int, starts: range) -> Reach:
    """Returns what can be computed from some windows, each a sequence of its own."""
    modulus = nnet.modulus
    rows = _frames(starts, window)
    given = {nnet.node_index(_INPUT): rows}
    if _IVECTOR in nnet.node_indexes:
        earlier = range(starts.start - modulus, starts.stop - modulus)
        given[nnet.node_index(_IVECTOR)] = _frames(earlier, window + modulus)
    return find_reach(node_rules(nnet), len(starts), given, {nnet.node_index(_OUTPUT): rows})


def _frames(starts: range, count: int) -> np.ndarray:
    """Returns (len(starts) * count, 3) indexes: frames from each start on, one sequence each."""
    sequences = np.repeat(np.arange(len(starts), dtype=np.int32), count)
    times = np.array(starts, dtype=np.int32)[:, None] + np.arange(count, dtype=np.int32)
    return make_indexes(sequences, times.reshape(-1))


def _recurrence_without_beginning(nnet: Nnet) -> str:
    """Returns the end of a message: a recurrence of which no row can be computed; "" without."""
    reach = _reach(nnet, _WINDOWS[-1], range(1))
    for group, is_recurrent in zip(reach.nodes.groups, reach.nodes.recurrent, strict=True):
        if is_recurrent and not any(reach.have[node] for node in group):
            nodes = [nnet.nodes[node] for node in sorted(group)]
            names = [repr(node.name) for node in nodes if isinstance(node, ComponentNode)]
            return (
                f": none of the recurrence through {listed(names, _SHOWN)} can be computed; "
                "IfDefined() lets a recurrence begin"
            )
    return ""
