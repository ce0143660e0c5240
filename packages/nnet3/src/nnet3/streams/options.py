"""The options for cutting a stream into chunks."""

from __future__ import annotations

import attrs

from nnet3.chunks import check_frames, integer

MOST_SEQUENCES = 1 << 16
"""The most sequences at a time: programs for more would fill the memory."""


@attrs.frozen(kw_only=True)
class StreamOptions:
    """The options for cutting a stream. All counts except `sequences` are in input frames.

    Attributes:
        frames_per_chunk: Frames of output for each run of the network, before subsampling.
        frame_subsampling_factor: One row of output for this many frames.
        ivector_period: Number of frames that share an i-vector; None for one i-vector in each
            chunk.
        extra_left_context_initial: Frames before the first one beyond what the network needs.
        sequences: Number of sequences that are computed at a time.

    Raises:
        RunError: a value is out of range.
    """

    frames_per_chunk: int = integer(20)
    frame_subsampling_factor: int = integer(1)
    ivector_period: int | None = integer(None)
    extra_left_context_initial: int = integer(0)
    sequences: int = integer(1)

    def __attrs_post_init__(self) -> None:
        """Checks the ranges."""
        check_frames("frames_per_chunk", self.frames_per_chunk, 1)
        check_frames("frame_subsampling_factor", self.frame_subsampling_factor, 1)
        check_frames("extra_left_context_initial", self.extra_left_context_initial, 0)
        check_frames("sequences", self.sequences, 1, most=MOST_SEQUENCES)
        if self.ivector_period is not None:
            check_frames("ivector_period", self.ivector_period, 1)
