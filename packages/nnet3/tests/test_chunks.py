"""Tests of cutting utterances into chunks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3.chunks import Chunk, ChunkOptions, chunks, full_chunks, online_ivector_row


@given(
    num_frames=st.integers(1, 200),
    frames_per_chunk=st.integers(1, 60),
    step=st.integers(1, 4),
    modulus=st.integers(1, 3),
    left=st.integers(0, 10),
    right=st.integers(0, 10),
)
def test_chunks_cover_the_utterance(
    num_frames: int, frames_per_chunk: int, step: int, modulus: int, left: int, right: int
) -> None:
    """Each output row is computed once, from inputs that hold its context."""
    options = ChunkOptions(
        frames_per_chunk=frames_per_chunk, frame_subsampling_factor=step
    ).rounded(modulus)

    cut = list(chunks(num_frames, options, left, right))

    outputs = [
        frame for chunk in cut for frame in range(chunk.first_output, chunk.last_output + 1, step)
    ]
    assert outputs == list(range(0, num_frames, step))
    for chunk in cut:
        assert chunk.first_input == chunk.first_output - left
        assert chunk.first_input + chunk.num_inputs == chunk.last_output + right + 1
        assert chunk.first_output % modulus == 0
        assert chunk.num_outputs <= options.frames_per_chunk // step


def test_extra_context_at_the_ends() -> None:
    """Extra context can differ at the start and at the end of the utterance."""
    options = ChunkOptions(
        frames_per_chunk=10,
        extra_left_context=7,
        extra_right_context=5,
        extra_left_context_initial=0,
        extra_right_context_final=1,
    )

    first, middle, last = chunks(25, options, 2, 3)

    assert (first.first_input, first.num_inputs) == (-2, 2 + 10 + 3 + 5)
    assert (middle.first_input, middle.num_inputs) == (10 - 2 - 7, 7 + 2 + 10 + 3 + 5)
    assert (last.first_input, last.num_inputs) == (20 - 2 - 7, 7 + 2 + 5 + 3 + 1)


@given(
    num_frames=st.integers(1, 200),
    frames_per_chunk=st.integers(1, 60),
    step=st.integers(1, 4),
    left=st.integers(0, 10),
    right=st.integers(0, 10),
)
def test_full_chunks_cover_the_utterance(
    num_frames: int, frames_per_chunk: int, step: int, left: int, right: int
) -> None:
    """Full chunks are equally long; each output row of the utterance is used once."""
    options = ChunkOptions(
        frames_per_chunk=frames_per_chunk, frame_subsampling_factor=step
    ).rounded(1)
    count = options.frames_per_chunk // step

    cut = list(full_chunks(num_frames, options, left, right))

    rows = [
        chunk.first_output // step + row for chunk in cut for row in range(chunk.num_unused, count)
    ]
    num_rows = -(-num_frames // step)
    assert rows[:num_rows] == list(range(num_rows))
    assert len(rows) == max(num_rows, count)
    for chunk in cut:
        assert chunk.num_outputs == count
        assert chunk.last_output == chunk.first_output + (count - 1) * step
        assert chunk.first_input == chunk.first_output - left
        assert chunk.num_inputs == left + count * step + right


def test_edge_frames_repeat() -> None:
    """Rows beyond the ends of the utterance repeat its first or last row."""
    chunk = Chunk(first_input=-2, num_inputs=7, first_output=0, num_outputs=3, last_output=2)

    rows = chunk.input_rows(3)

    np.testing.assert_array_equal(rows, [0, 0, 0, 1, 2, 2, 2])


def test_frames_per_chunk_is_rounded_up() -> None:
    """Frames per chunk become a multiple of the subsampling factor and of the modulus."""
    options = ChunkOptions(frames_per_chunk=50, frame_subsampling_factor=3)

    assert options.rounded(1).frames_per_chunk == 51
    assert options.rounded(2).frames_per_chunk == 54


def test_online_ivector_of_the_middle() -> None:
    """A chunk has the i-vector at the middle of its output; shortly after the last, the last."""
    chunk = Chunk(first_input=0, num_inputs=90, first_output=20, num_outputs=50, last_output=69)

    assert online_ivector_row(chunk, 10, 90, 9) == 4
    assert online_ivector_row(chunk, 10, 90, 3) == 2


@pytest.mark.parametrize(
    ("num_frames", "per_chunk", "step", "rows"),
    [
        (8, 6, 1, [1, 2]),  # chunks from 0 and 2 on, whose middle frames are 3 and 5
        (3, 6, 1, [1]),  # 3, which lies beyond the end
        (9, 6, 3, [1, 3]),  # output rows from 0 and 1 on; 1 and 2 are in the middle
        (2, 60, 1, [1]),  # 30, beyond the last i-vector
    ],
)
def test_online_ivectors_of_full_chunks(
    num_frames: int, per_chunk: int, step: int, rows: list[int]
) -> None:
    """A full chunk has the i-vector of its output row number count // 2, at a period of 2 frames.

    This is how `AddOnlineIvectorsToTasks` of Kaldi's nnet-batch-compute.cc chooses.
    """
    options = ChunkOptions(frames_per_chunk=per_chunk, frame_subsampling_factor=step)
    num_rows = num_frames // 2 + 1

    found = [
        online_ivector_row(chunk, 2, num_frames, num_rows)
        for chunk in full_chunks(num_frames, options, 0, 0)
    ]

    assert found == rows
