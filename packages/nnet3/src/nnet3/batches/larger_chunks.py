"""Chunks that the program of a larger chunk computes with the same outputs.

Last chunks and short utterances have many lengths. Compiling a program for each length takes longer
than computing a few unused rows. Also, a chunk computes its context again, which the chunks before
and after it compute, too. If chunks in a row are joined into one larger chunk, they share this
context.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import nnet3_computation
from nnet3_descriptors import Nnet, Nnet3Error
from nnet3_descriptors.forking import GATE

from nnet3.chunks import Chunk
from nnet3.known_results import KnownResults

MOST_ROWS_IN_VAIN = 16
"""The most further rows of output: computing more would take longer than compiling."""


def rounded_up(num_outputs: int, most: int) -> int:
    """The output rows of the larger chunk: one of two numbers for each power of two.

    Args:
        num_outputs: Output rows of the chunk.
        most: Output rows of a full chunk.
    """
    unit = max(1, min(MOST_ROWS_IN_VAIN, 1 << max(0, num_outputs.bit_length() - 2)))
    return max(num_outputs, min(most, -(-num_outputs // unit) * unit))


class LargerChunks:
    """Finds larger chunks for a network, and remembers which of them have the same outputs.

    Outputs are the same if the wanted rows depend on the same rows in both computations, from the
    inputs on. A chunk may be larger than wanted if outputs depend on a fixed number of frames, and
    with recurrences from left to right. Chunks may be joined only in the first case: a recurrence
    begins anew in each chunk.
    """

    def __init__(self, known: KnownResults) -> None:
        """Begins with what is known about the network of the chunks."""
        self._nnet, self._known = known.nnet, known
        self._lock = threading.Lock()
        self._is_same: dict[tuple[tuple[int, int, int, int], int, int], bool] = {}

    def larger(self, chunk: Chunk, step: int, num_outputs: int) -> Chunk:
        """A chunk with more output rows at its end, or the chunk itself if it has other outputs.

        Args:
            chunk: The wanted chunk.
            step: Frames between two rows of output.
            num_outputs: Rows of output of the larger chunk.
        """
        more = (num_outputs - chunk.num_outputs) * step
        if more <= 0:
            return chunk
        larger = chunk._replace(
            num_inputs=chunk.num_inputs + more,
            num_outputs=num_outputs,
            last_output=chunk.last_output + more,
        )
        return larger if self._has_same_outputs([chunk], larger, step) else chunk

    def joined(self, chunks: Sequence[Chunk], step: int) -> Chunk | None:
        """One chunk in place of several, or None if it has other outputs.

        Args:
            chunks: Chunks of an utterance in a row, all of the same shape.
            step: Frames between two rows of output.
        """
        first, last = chunks[0], chunks[-1]
        joined = first._replace(
            num_inputs=last.first_input + last.num_inputs - first.first_input,
            num_outputs=len(chunks) * first.num_outputs,
            last_output=last.last_output,
        )
        return joined if self._has_same_outputs(chunks, joined, step) else None

    def _has_same_outputs(self, chunks: Sequence[Chunk], larger: Chunk, step: int) -> bool:
        first = chunks[0]
        start = first.first_input - first.first_output
        shape = (start, first.num_inputs, first.num_outputs, step)
        kind = (shape, len(chunks), larger.num_outputs)
        with GATE.importing(), self._lock:
            if kind not in self._is_same:
                shifts = [chunk.first_output - first.first_output for chunk in chunks]
                self._is_same[kind] = self._known.answer(
                    f"same outputs {kind} {shifts}",
                    lambda: self._reads_the_same(first, larger, step, shifts),
                )
            return self._is_same[kind]

    def _reads_the_same(
        self, chunk: Chunk, larger: Chunk, step: int, shifts: Sequence[int]
    ) -> bool:
        """Whether chunks with these shifts, in frames, read the same in the larger one."""
        from nnet3_graph import build_computation_graph

        from nnet3.batches.same_reads import reads_the_same

        try:
            part, whole = (
                build_computation_graph(self._nnet, request_of(each, step, self._nnet))
                for each in (chunk, larger)
            )
        except Nnet3Error:
            return False  # if the chunk itself cannot be computed, its run raises the error
        return all(reads_the_same(part, whole, shift) for shift in shifts)


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
    inputs = [
        nnet3_computation.IoSpecification.from_range("input", start, start + chunk.num_inputs)
    ]
    if any(node.name == "ivector" for node in nnet.input_nodes):
        inputs.append(nnet3_computation.IoSpecification.from_range("ivector", 0, 1))
    end = (chunk.num_outputs - 1) * step + 1
    output = nnet3_computation.IoSpecification.from_range("output", 0, end, t_step=step)
    return nnet3_computation.ComputationRequest(inputs=tuple(inputs), outputs=(output,))
