"""Cuts an utterance for a network that gives one vector.

`SegmentOptions` cuts as nnet3-xvector-compute does, and `EvenSegmentOptions` as
nnet3-xvector-compute-batched.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import nnet3_computation
import numpy as np
import numpy.typing as npt
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import FloatArray, as_matrix, check_output

from nnet3.batches.minibatches import Run, Work, compute_alone
from nnet3.chunk_work import ChunkNetwork
from nnet3.chunks import check_memory, integer


def _true_or_false(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, bool | np.bool_):
        raise RunError(f"'{field.name}' must be True or False (got {value!r})")


@attrs.frozen(kw_only=True)
class SegmentOptions:
    """The options for cutting utterances into segments. All counts are in input frames.

    Attributes:
        chunk_size: Length of a segment; -1 for the whole utterance.
        min_chunk_size: Shorter utterances, and shorter last segments, are padded to this.
        pad_input: Whether they are padded, by repeating the first and last frame; else short
            segments are left out, and short utterances are an error.

    Raises:
        RunError: a length is out of range, or pad_input is neither True nor False.
    """

    chunk_size: int = integer(-1, 1, -1)
    min_chunk_size: int = integer(100, 1)
    pad_input: bool = attrs.field(default=True, validator=_true_or_false)

    def cut(self, frames: FloatArray) -> list[FloatArray]:
        """The segments of an utterance that are used, before padding.

        Args:
            frames: (frames, dim), at least one.

        Raises:
            RunError: without padding, the utterance is too short, or all its segments are.
        """
        total = len(frames)
        size = total if self.chunk_size == -1 else min(self.chunk_size, total)
        parts = [frames[start : start + size] for start in range(0, total, size)]
        if self.pad_input:
            return parts
        least = self.min_chunk_size
        if total < least:
            raise RunError(f"the utterance has {total} frames, fewer than the least of {least}")
        if size < least:
            raise RunError(f"chunks of {size} frames are shorter than the least of {least}")
        return [part for part in parts if len(part) >= least]

    def padded_length(self, length: int) -> int:
        """Frames of a segment of that length when it is padded."""
        return max(self.min_chunk_size, length)

    def padded(self, segment: FloatArray) -> FloatArray:
        """A segment, its first and last frame repeated, half of the missing ones at each end."""
        missing = self.padded_length(len(segment)) - len(segment)
        left = missing // 2
        return np.pad(segment, ((left, missing - left), (0, 0)), mode="edge")


@attrs.frozen(kw_only=True)
class EvenSegmentOptions:
    """The options for cutting utterances into segments of one length that cover them evenly.

    The network uses all frames of a segment but its context. These frames of neighbouring segments
    overlap, or have gaps between them, all of the same size up to a frame: whichever gives the mean
    of independent values the smaller variance, if each counts as often as segments use it.

    Attributes:
        chunk_size: Length of a segment in input frames.
        context: Frames of a segment that only serve as context.
        pad_input: Whether the last frame of a shorter utterance is repeated; else such an utterance
            is an error.

    Raises:
        RunError: a length is out of range, or pad_input is neither True nor False.
    """

    chunk_size: int = integer(150, 1)
    context: int = integer(0, 0)
    pad_input: bool = attrs.field(default=True, validator=_true_or_false)

    def __attrs_post_init__(self) -> None:
        """Checks that segments are longer than their context."""
        if self.chunk_size <= self.context:
            raise RunError(
                f"'chunk_size' must be more than the context of {self.context} frames (got "
                f"{self.chunk_size})"
            )

    def cut(self, frames: FloatArray) -> list[FloatArray]:
        """The segments of an utterance, before padding.

        Args:
            frames: (frames, dim), at least one.

        Raises:
            RunError: without padding, the utterance is shorter than a segment.
        """
        total, size = len(frames), self.chunk_size
        if total < size and not self.pad_input:
            raise RunError(f"the utterance has {total} frames, fewer than a chunk of {size}")
        return [frames[start : start + size] for start in self._starts(total)]

    def _starts(self, total: int) -> npt.NDArray[np.int64]:
        """The first frames of segments."""
        if total <= self.chunk_size:
            return np.zeros(1, dtype=np.int64)
        used, length = total - self.context, self.chunk_size - self.context
        few, many = used // length, used // length + 1
        gap, twice = used - few * length, many * length - used
        once = used - twice
        # Single precision, in which both may be equal.
        with_gaps = np.float32(1.0 / (few * length))
        with_overlaps = np.float32((once + 4.0 * twice) / (once + 2.0 * twice) ** 2)
        if with_gaps <= with_overlaps:
            count, moved = few, np.cumsum(_pieces(gap, few + 1))[:-1]
        else:
            count, moved = many, -np.cumsum([0, *_pieces(twice, many - 1)])
        starts: npt.NDArray[np.int64] = np.arange(count) * length + moved
        return starts

    def padded_length(self, length: int) -> int:
        """Frames of a segment of that length when it is padded."""
        return max(self.chunk_size, length)

    def padded(self, segment: FloatArray) -> FloatArray:
        """A segment, its last frame repeated."""
        missing = self.padded_length(len(segment)) - len(segment)
        return np.pad(segment, ((0, missing), (0, 0)), mode="edge")


def _pieces(total: int, count: int) -> npt.NDArray[np.int64]:
    """(count,) numbers that sum to `total` and differ by at most 1, the smaller ones first."""
    return (total + np.arange(count)) // count


def segment_work(
    network: ChunkNetwork,
    features: npt.ArrayLike,
    options: SegmentOptions | EvenSegmentOptions,
) -> Work:
    """The work of an utterance, with a task for each segment.

    Args:
        network: Computes the segments.
        features: (frames, input_dim).
        options: The options for cutting the utterance.

    Raises:
        RunError: the features are not as `Model.xvector` describes them, or too short.
    """
    frames = as_matrix(features, "input", "features", network.input_dim)
    parts = options.cut(frames)
    vectors = np.empty((len(parts), network.output_dim), dtype=np.float32)
    check_memory(max(options.padded_length(len(part)) for part in parts), network.input_dim)
    is_alone = network.pool.run_side_by_side(len(parts))

    def put(number: int, rows: FloatArray) -> None:
        vectors[number] = rows[0]

    def run(number: int) -> Run:
        length = options.padded_length(len(parts[number]))
        request = nnet3_computation.ComputationRequest(
            inputs=(nnet3_computation.IoSpecification.from_range("input", 0, length),),
            outputs=(nnet3_computation.IoSpecification.from_range("output", 0, 1),),
        )
        return Run(
            request=request,
            inputs=lambda: {"input": options.padded(parts[number])},
            take=partial(put, number),
        )

    def mean() -> FloatArray:
        check_output(vectors, f"the output of node '{network.output}'")
        lengths = list(map(len, parts))
        return np.average(vectors, axis=0, weights=lengths).astype(np.float32)

    runs = list(map(run, range(len(parts))))
    return Work(
        tasks=[partial(compute_alone, network.pool, each, is_alone=is_alone) for each in runs],
        finish=mean,
        runs=runs,
    )
