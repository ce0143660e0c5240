"""One sequence stands for all: the shortcut through minibatches of equal sequences.

Nothing in a network mixes sequences. So if a request asks the same (t, x) of every n, all stages up
to the commands can work on the rows of one sequence, the *pattern*. They only have to know in which
order a step holds the rows of all sequences. The order is always regular: a block of `block`
pattern rows of sequence 0, the same rows of sequence 1, and so on, then the next block:

    row(k, s) = (k // block) * block * S + s * block + k % block

for pattern row k, sequence s of S. Frames are slowest with block = 1, the order of Index that most
steps have; sequences are slowest with block = number of pattern rows, as users often give inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_computation.arrays import IntArray, frozen_array
from nnet3_descriptors.indexes import N, distinct


class Minibatch(NamedTuple):
    """The sequences that share a pattern.

    Attributes:
        sequences: (S,) int32, the n of each, ascending. If there is only one, the rows are those of
            the pattern, whatever its n.
    """

    sequences: IntArray

    @property
    def size(self) -> int:
        """Number of sequences, S."""
        return len(self.sequences)

    def indexes(self, pattern: IntArray, block: int) -> IntArray:
        """Returns the indexes of all rows, in order.

        Args:
            pattern: (K, 3) int32, the rows of one sequence; K is a multiple of `block`.
            block: As in the module's description.

        Returns:
            (K * S, 3) int32.
        """
        if self.size == 1:
            return pattern
        blocks = pattern.reshape(-1, 1, block, pattern.shape[1])
        rows = np.repeat(blocks, self.size, axis=1)
        rows[..., N] = self.sequences[:, None]
        indexes: IntArray = rows.reshape(-1, pattern.shape[1])
        return indexes

    def rows(self, source: IntArray, source_block: IntArray | int, block: int) -> IntArray:
        """Extends a mapping of pattern rows to all rows.

        Args:
            source: (K,) int32, for each pattern row its row in the pattern of a source, or -1.
            source_block: The block of the source, or (K,) of the source of each row.
            block: The block of the step whose rows are mapped.

        Returns:
            (K * S,) int32, for each row its row in the source, or -1.
        """
        size = self.size
        if size == 1:
            return source
        first = source + (source // source_block) * (source_block * (size - 1))
        number = np.arange(size, dtype=np.int32)[:, None]
        if not isinstance(source_block, int):
            source_block = source_block.reshape(-1, 1, block)
        full: IntArray = first.reshape(-1, 1, block) + number * source_block
        if len(source) and int(source.min()) < 0:
            full = np.where(source.reshape(-1, 1, block) >= 0, full, np.int32(-1))
        return full.reshape(-1)

    def first_of(self, indexes: IntArray) -> tuple[IntArray, int] | None:
        """Returns the inverse of `indexes`: a pattern and its block, if there is one.

        Args:
            indexes: (rows, 3) int32, rows of all sequences.

        Returns:
            The rows of the first sequence, (K, 3) int32, and the block; None if the order is not
            regular.
        """
        n = indexes[:, N]
        is_first = n == self.sequences[0]
        pattern = indexes[is_first]
        if len(pattern) * self.size != len(indexes):
            return None
        block = int(np.argmin(is_first)) if self.size > 1 else len(indexes)
        if block == 0 or len(pattern) % block:
            return None
        regular = np.array_equal(self.indexes(pattern, block), indexes)
        return (pattern, block) if regular else None


ONE_SEQUENCE = Minibatch(frozen_array([0]))
"""No shortcut: the pattern holds all rows."""


class Reduced(NamedTuple):
    """Requests of segments, reduced to one sequence, and the minibatch that it stands for.

    Attributes:
        requests: The request of each segment for the first sequence.
        minibatch: All sequences.
        blocks: For each segment the order of rows of each input and output, by name; 1 for others.
    """

    requests: Sequence[ComputationRequest]
    minibatch: Minibatch
    blocks: Sequence[Mapping[str, int]]


def not_reduced(requests: Sequence[ComputationRequest]) -> Reduced:
    """Returns requests as they are, all sequences one by one."""
    return Reduced(requests, ONE_SEQUENCE, [{}] * len(requests))


def reduce_requests(requests: Sequence[ComputationRequest]) -> Reduced | None:
    """Returns the requests of one sequence, if all sequences ask the same in a regular order.

    None if there is one sequence only, or the sequences differ, in a segment or between segments.
    """
    sequences = distinct(requests[0].inputs[0].indexes[:, N])
    if len(sequences) < 2:
        return None
    minibatch = Minibatch(frozen_array(sequences))
    reduced: list[ComputationRequest] = []
    blocks: list[dict[str, int]] = []
    for request in requests:
        blocks.append({})
        ios: dict[str, IoSpecification] = {}
        for io in (*request.inputs, *request.outputs):
            found = minibatch.first_of(io.indexes)
            if found is None:
                return None
            pattern, blocks[-1][io.name] = found
            ios[io.name] = attrs.evolve(io, indexes=pattern)
        inputs, outputs = (
            [ios[io.name] for io in some] for some in (request.inputs, request.outputs)
        )
        reduced.append(attrs.evolve(request, inputs=inputs, outputs=outputs))
    return Reduced(reduced, minibatch, blocks)
