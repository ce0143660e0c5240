"""Cuts an utterance for a network that gives one vector, as nnet3-xvector-compute does."""

from __future__ import annotations

import attrs
import numpy as np

from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.errors import RunError
from nnet3_runtime_cuda.inference.chunks import check_frames, integer


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

    chunk_size: int = integer(-1)
    min_chunk_size: int = integer(100)
    pad_input: bool = True

    def __attrs_post_init__(self) -> None:
        """Checks the ranges."""
        check_frames("chunk_size", self.chunk_size, 1, -1)
        check_frames("min_chunk_size", self.min_chunk_size, 1)
        pad: object = self.pad_input
        if not isinstance(pad, bool | np.bool_):
            raise RunError(f"'pad_input' must be True or False (got {pad!r})")

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
