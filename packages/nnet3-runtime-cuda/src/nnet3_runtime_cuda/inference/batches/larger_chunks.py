"""Chunks that the program of a larger chunk can compute with the same outputs.

Last chunks and short utterances have many lengths. Compiling a program for each takes longer than
computing a few unused rows.
"""

from __future__ import annotations

import threading

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import InputNode, Nnet
from nnet3_graph import (
    ComputationGraph,
    ComputationRequest,
    IoSpecification,
    NotComputableError,
    build_computation_graph,
)

from nnet3_runtime_cuda.inference.chunks import Chunk

MOST_ROWS_IN_VAIN = 16
"""A chunk is not made larger by more rows of output: they would take longer than compiling."""


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
    inputs on. That holds for networks that see a fixed number of frames, and for recurrences from
    left to right. It does not hold if a recurrence or statistics reach to the right.
    """

    def __init__(self, nnet: Nnet) -> None:
        self._nnet = nnet
        self._lock = threading.Lock()
        self._is_same: dict[tuple[int, int, int, int], bool] = {}

    def larger(self, chunk: Chunk, step: int, num_outputs: int, *, exact: bool = True) -> Chunk:
        """A chunk with more output rows at its end, or the chunk itself.

        Args:
            chunk: What is wanted.
            step: Frames between two rows of output.
            num_outputs: Rows of output of the larger chunk.
            exact: Whether the wanted rows must be the same.
        """
        more = (num_outputs - chunk.num_outputs) * step
        if more <= 0:
            return chunk
        larger = attrs.evolve(
            chunk,
            num_inputs=chunk.num_inputs + more,
            num_outputs=num_outputs,
            last_output=chunk.last_output + more,
        )
        return larger if not exact or self._has_same_outputs(chunk, larger, step) else chunk

    def _has_same_outputs(self, chunk: Chunk, larger: Chunk, step: int) -> bool:
        start = chunk.first_input - chunk.first_output
        kind = (start, chunk.num_inputs, chunk.num_outputs, larger.num_outputs)
        with self._lock:
            if kind not in self._is_same:
                self._is_same[kind] = self._reads_the_same(
                    request_of(chunk, step, self._nnet), request_of(larger, step, self._nnet)
                )
            return self._is_same[kind]

    def _reads_the_same(self, wanted: ComputationRequest, larger: ComputationRequest) -> bool:
        try:
            alone = build_computation_graph(self._nnet, wanted)
            among = build_computation_graph(
                self._nnet, attrs.evolve(larger, outputs=wanted.outputs)
            )
        except NotComputableError:
            return False  # computing the original chunk raises the error
        return all(map(np.array_equal, _reads(alone), _reads(among)))


def request_of(chunk: Chunk, step: int, nnet: Nnet) -> ComputationRequest:
    """The request of a chunk, moved in time so that its first output is at t = 0.

    Args:
        chunk: What is computed.
        step: Frames between two rows of output.
        nnet: The network, which may have an input 'ivector'.
    """
    start = chunk.first_input - chunk.first_output
    inputs = [IoSpecification.from_range("input", start, start + chunk.num_inputs)]
    if any(node.name == "ivector" for node in nnet.input_nodes):
        inputs.append(IoSpecification.from_range("ivector", 0, 1))
    end = (chunk.num_outputs - 1) * step + 1
    output = IoSpecification.from_range("output", 0, end, t_step=step)
    return ComputationRequest(inputs=tuple(inputs), outputs=(output,))


def _reads(graph: ComputationGraph) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """All pairs of a row that is computed and a row that it reads, and the rows that read nothing.

    Rows are given by node and index; inputs that nobody reads don't count.
    """
    cindexes = graph.cindexes
    counts = np.diff(graph.dependency_splits)
    readers = np.repeat(cindexes, counts, axis=0)
    pairs = np.hstack([readers, cindexes[graph.dependencies - graph.first_cindex_id]])
    is_input = np.array([isinstance(node, InputNode) for node in graph.nnet.nodes])
    without = cindexes[(counts == 0) & ~is_input[cindexes[:, 0]]]
    return pairs, without
