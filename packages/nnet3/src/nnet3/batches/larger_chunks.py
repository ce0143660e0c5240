"""Chunks that the program of a larger chunk computes with the same outputs.

Last chunks and short utterances have many lengths. Compiling a program for each length takes longer
than computing a few unused rows. Also, a chunk computes its context again, which the chunks before
and after it compute, too. If chunks in a row are joined into one larger chunk, they share this
context.

Outputs are the same if the wanted rows depend on the same rows in both computations, from the
inputs on: a row is a function of the rows that it reads. A chunk may be larger than wanted if
outputs depend on a fixed number of frames, and with recurrences from left to right. Chunks may be
joined only in the first case: a recurrence begins anew in each chunk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import nnet3_computation
import numpy as np
from nnet3_descriptors import ComponentInputNode, InputNode, Nnet, Nnet3Error, OutputNode
from nnet3_descriptors.indexes import IndexArray, distinct

from nnet3.chunks import Chunk
from nnet3.known_results import KnownResults

if TYPE_CHECKING:
    from nnet3_graph import ComputationGraph

MOST_ROWS_IN_VAIN = 16
"""The most further rows of output: computing more would take longer than compiling."""

MOST_PRODUCTS_IN_VAIN = 1 << 22
"""The most products of two numbers for further rows up to a full chunk: a tenth of a millisecond.
What Python does for each chunk takes longer."""

_Moved = tuple[int, int]
"""A node, and the number of frames by which rows of it are later in the other computation."""

_T = 2
"""The column t of cindexes: node, n, t, x."""


def rounded_up(num_outputs: int, most: int, products: int) -> int:
    """The output rows of the larger chunk: one of two numbers for each power of two.

    Chunks of a small network are all full ones.

    Args:
        num_outputs: Output rows of the chunk.
        most: Output rows of a full chunk.
        products: Products of two numbers for a row of output.
    """
    if (most - num_outputs) * products <= MOST_PRODUCTS_IN_VAIN:
        return max(num_outputs, most)
    unit = max(1, min(MOST_ROWS_IN_VAIN, 1 << max(0, num_outputs.bit_length() - 2)))
    return max(num_outputs, min(most, -(-num_outputs // unit) * unit))


def larger(known: KnownResults, chunk: Chunk, step: int, num_outputs: int) -> Chunk:
    """A chunk with more output rows at its end, or the chunk itself if it has other outputs.

    Args:
        known: What is known of the network of the chunks.
        chunk: The wanted chunk.
        step: Frames between two rows of output.
        num_outputs: Rows of output of the larger chunk.
    """
    more = (num_outputs - chunk.num_outputs) * step
    if more <= 0:
        return chunk
    found = chunk._replace(
        num_inputs=chunk.num_inputs + more,
        num_outputs=num_outputs,
        last_output=chunk.last_output + more,
    )
    return found if _has_same_outputs(known, [chunk], found, step) else chunk


def joined(known: KnownResults, chunks: Sequence[Chunk], step: int) -> Chunk | None:
    """One chunk in place of several, or None if it has other outputs.

    Args:
        known: What is known of the network of the chunks.
        chunks: Chunks of an utterance in a row, all of the same shape.
        step: Frames between two rows of output.
    """
    first, last = chunks[0], chunks[-1]
    found = first._replace(
        num_inputs=last.first_input + last.num_inputs - first.first_input,
        num_outputs=len(chunks) * first.num_outputs,
        last_output=last.last_output,
    )
    return found if _has_same_outputs(known, chunks, found, step) else None


def _has_same_outputs(
    known: KnownResults, chunks: Sequence[Chunk], whole: Chunk, step: int
) -> bool:
    first = chunks[0]
    if _reads_fixed_frames(known, first, step, whole.num_outputs):
        return True
    kind = (*_context(first, step), step, first.num_outputs, len(chunks), whole.num_outputs)
    shifts = [chunk.first_output - first.first_output for chunk in chunks]
    is_same: bool = known.answer(
        f"same outputs {kind} {shifts}", lambda: _alike(known.nnet, first, whole, shifts, step)
    )
    return is_same


def _reads_fixed_frames(known: KnownResults, chunk: Chunk, step: int, most: int) -> bool:
    """Whether an output reads the same rows, however many further frames a chunk has on each side.

    Then all chunks of at most so many outputs have the same outputs, as one question tells: what
    can be computed grows with the inputs. An output that reads the same with the fewest inputs and
    with the most does so with all between. (This is asked of networks without i-vectors only: an
    i-vector has its own time, so it would be elsewhere beside each output.)

    Args:
        known: What is known of the network of the chunk.
        chunk: A chunk with the context of all of them.
        step: Frames between two rows of output.
        most: The outputs of the largest chunk.
    """
    begin, num_inputs = _context(chunk, step)
    if num_inputs < 1 or len(known.nnet.input_nodes) > 1:
        return False
    around = step << (most - 1).bit_length()  # for few different questions
    one = Chunk(begin, num_inputs, 0, 1, 0)
    wide = Chunk(begin - around, num_inputs + 2 * around, -around, 2 * around // step + 1, around)

    def is_fixed() -> bool:
        return _repeats(known.nnet, step) and _alike(known.nnet, one, wide, [around], step)

    question = f"fixed frames {begin, num_inputs, step, around}"
    is_same: bool = known.answer(question, is_fixed)
    return is_same


def _repeats(nnet: Nnet, step: int) -> bool:
    """Whether all nodes read alike at times that are `step` frames apart, as far as rows exist."""
    from nnet3_descriptors.components.index_rules import has_closed_form

    periods = [nnet.modulus]
    for component in nnet.components:
        component_type: Any = type(component)
        form = component.closed_form() if has_closed_form(component_type) else None
        if form is None:
            return False
        periods.append(len(form))
    return all(step % period == 0 for period in periods)


def _context(chunk: Chunk, step: int) -> tuple[int, int]:
    """The first input of a single output, relative to it, and the number of its inputs."""
    begin = chunk.first_input - chunk.first_output
    return begin, chunk.num_inputs - (chunk.num_outputs - 1) * step


def _alike(nnet: Nnet, part: Chunk, whole: Chunk, shifts: Sequence[int], step: int) -> bool:
    """Whether a chunk has the same outputs in the whole, so many frames after its first output."""
    from nnet3_graph import build_computation_graph

    try:
        small, large = (
            build_computation_graph(nnet, request_of(each, step, nnet)) for each in (part, whole)
        )
    except Nnet3Error:
        return False  # if the chunk itself cannot be computed, its run raises the error
    return all(reads_the_same(small, large, shift) for shift in shifts)


def in_groups(
    chunks: Sequence[Chunk], most: int, belong: Callable[[Chunk, Chunk], bool]
) -> list[list[Chunk]]:
    """Chunks of an utterance in groups of neighbours.

    Args:
        chunks: All of them, in order.
        most: The largest number of chunks of a group.
        belong: Whether two neighbours may be in the same group.
    """
    groups: list[list[Chunk]] = []
    for chunk in chunks:
        if groups and len(groups[-1]) < most and belong(groups[-1][-1], chunk):
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    return groups


def request_of(chunk: Chunk, step: int, nnet: Nnet) -> nnet3_computation.ComputationRequest:
    """The request of a chunk, moved in time so that its first output is at t = 0.

    Args:
        chunk: The chunk.
        step: Frames between two rows of output.
        nnet: The network, which may have an input 'ivector'.
    """
    start = chunk.first_input - chunk.first_output
    takes_ivector = any(node.name == "ivector" for node in nnet.input_nodes)
    return _request(start, chunk.num_inputs, chunk.num_outputs, step, takes_ivector)


@functools.lru_cache(64)
def _request(
    start: int, num_inputs: int, num_outputs: int, step: int, takes_ivector: bool
) -> nnet3_computation.ComputationRequest:
    # Kept: a model asks for few shapes again and again, and the same value is found sooner.
    inputs = [nnet3_computation.IoSpecification.from_range("input", start, start + num_inputs)]
    if takes_ivector:
        inputs.append(nnet3_computation.IoSpecification.from_range("ivector", 0, 1))
    end = (num_outputs - 1) * step + 1
    output = nnet3_computation.IoSpecification.from_range("output", 0, end, t_step=step)
    return nnet3_computation.ComputationRequest(inputs=tuple(inputs), outputs=(output,))


# ---- the rows that two computations read ----


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
) -> set[_Moved] | None:
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
) -> set[_Moved] | None:
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
    found: set[_Moved] = set()
    left = len(mine)
    for move in {0, shift} if only is None else {only}:
        moves = frames == move
        left -= int(np.count_nonzero(moves))
        found |= {(node, move) for node in distinct(mine[moves, 0]).tolist()}
    return None if left or differences.any() else found
