"""Compares the rows that two computations read.

Rows that read the same rows in both have the same values in both: a row is a function of the rows
that it reads, from the inputs on.
"""

from __future__ import annotations

import numpy as np
from nnet3_descriptors import ComponentInputNode, InputNode, OutputNode
from nnet3_descriptors.indexes import IndexArray, distinct
from nnet3_graph import ComputationGraph

Moved = tuple[int, int]
"""A node, and the number of frames by which rows of it are later in the other computation."""

_T = 2
"""The column t of cindexes: node, n, t, x."""


def reads_the_same(part: ComputationGraph, whole: ComputationGraph, shift: int = 0) -> bool:
    """Whether the outputs of `part`, `shift` frames later, have the same values in `whole`.

    They have if each of them, and each row that these read, has a partner in `whole` that reads the
    partners of its own rows. The search begins at the outputs and ends at the inputs: the partner
    of a frame must be `shift` frames later, that of an i-vector must have its own time. What is
    between them may move or not: the reads of both computations tell.

    Args:
        part: The smaller computation.
        whole: A computation of the same network.
        shift: Frames, a multiple of the modulus of the network.
    """
    nodes = part.nnet.nodes
    pending = {(node, shift) for node, each in enumerate(nodes) if isinstance(each, OutputNode)}
    seen = set(pending)
    while pending:
        node, frames = pending.pop()
        definition = nodes[node]
        if isinstance(definition, InputNode):
            if frames != (shift if definition.name == "input" else 0):
                return False
            continue
        reads = _partners_of_reads(node, frames, shift, part, whole)
        if reads is None:
            return False
        pending |= reads - seen
        seen |= reads
    return True


def _partners_of_reads(
    node: int, frames: int, shift: int, part: ComputationGraph, whole: ComputationGraph
) -> set[Moved] | None:
    """How what the rows of a node read moves, if they have partners that read alike; else None.

    Args:
        node: Number of the node; all of its rows are looked at.
        frames: How much later its rows are in `whole`.
        shift: How much later the outputs are.
        part: The smaller computation.
        whole: The other one.
    """
    moved = part.index_set(node).indexes + np.array([0, frames, 0], np.int32)
    rows = whole.cindex_ids(node, moved) - whole.node_range(node).start
    if (rows < 0).any():
        return None
    if isinstance(part.nnet.nodes[node], ComponentInputNode | OutputNode):
        # A set of rows does not say which of them stands where in an Append.
        mine = np.concatenate(part.leaf_ids(node))
        theirs = np.concatenate(whole.leaf_ids(node))[:, rows]
        read = mine >= 0
        if not np.array_equal(read, theirs >= 0):
            return None
        return _moved(part.cindexes[mine[read]], whole.cindexes[theirs[read]], shift)
    splits, mine = part.dependencies_of(node)
    other_splits, theirs = whole.dependencies_of(node)
    counts = np.diff(splits)
    if not np.array_equal(counts, np.diff(other_splits)[rows]):
        return None
    within = np.arange(len(mine)) - np.repeat(splits[:-1], counts)
    theirs = theirs[np.repeat(other_splits[:-1][rows], counts) + within]
    # A component tells its inputs apart by their distance in time.
    return _moved(part.cindexes[mine], whole.cindexes[theirs], shift, only=frames)


def _moved(
    mine: IndexArray, theirs: IndexArray, shift: int, only: int | None = None
) -> set[Moved] | None:
    """The nodes of rows and how they move to their partners, by no frames or by `shift`.

    Args:
        mine: (N, 4) cindexes of the smaller computation.
        theirs: (N, 4) their partners.
        shift: Frames; Switch and Round read alike at times that differ by it.
        only: Frames by which all must move, if not None.

    Returns:
        None if others differ, or in more than the time.
    """
    differences = theirs - mine
    frames = differences[:, _T].copy()
    differences[:, _T] = 0
    found: set[Moved] = set()
    left = len(mine)
    for move in {0, shift} if only is None else {only}:
        moves = frames == move
        left -= int(np.count_nonzero(moves))
        found |= {(node, move) for node in distinct(mine[moves, 0]).tolist()}
    return None if left or differences.any() else found
