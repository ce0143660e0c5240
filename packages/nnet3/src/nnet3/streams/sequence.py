"""One sequence of frames on its way through the chunks of a program."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import FloatArray

from nnet3.streams.frame_buffer import FrameBuffer
from nnet3.streams.ivectors import IvectorTrack
from nnet3.streams.program import INPUT, IVECTOR, ChunkInputs, StreamProgram
from nnet3.streams.state import NodeRows, StreamState


class Sequence:
    """A sequence between two chunks.

    Attributes:
        num_chunks: Number of chunks computed.
        num_frames: Number of frames that have come.
        outputs: Outputs that were computed and not yet handed out.
    """

    def __init__(self, program: StreamProgram) -> None:
        """Begins at the first frame.

        Args:
            program: Computes the chunks.
        """
        self.num_chunks = self.num_frames = 0
        self.outputs: list[FloatArray] = []
        self._program = program
        self._frames = FrameBuffer(min(program.inputs_of(0).begin, 0), program.dim)
        self._ivectors = IvectorTrack(program.ivector_dim)
        self._state: dict[str, FloatArray] = {}
        self._num_rows: int | None = None  # of all outputs, once the last frame has come

    # ---- what comes ----

    @property
    def has_ivector(self) -> bool:
        """Whether an i-vector was given."""
        return bool(self._ivectors.given)

    @property
    def has_ended(self) -> bool:
        """Whether `end` was called."""
        return self._num_rows is not None

    def add(self, frames: FloatArray, ivector: FloatArray | None) -> None:
        """Adds frames (count, dim), and the i-vector that is valid from the first of them on."""
        if ivector is not None:
            self._ivectors.give(self.num_frames, ivector)
        if not len(frames):
            return
        if not self.num_frames and self._frames.begin < 0:  # the first frame is repeated
            before = np.broadcast_to(frames[0], (-self._frames.begin, frames.shape[1]))
            self._frames.append(before)
        self._frames.append(frames)
        self.num_frames += len(frames)

    def end(self) -> None:
        """Repeats the last frame until the outputs of all frames can be computed."""
        self._num_rows = -(-self.num_frames // self._program.options.frame_subsampling_factor)
        num_chunks = -(-self.num_frames // self._program.chunk_size)
        if num_chunks > self.num_chunks:
            self._frames.repeat_last(max(self._needed(num_chunks - 1) - self._frames.end, 0))

    # ---- chunks ----

    @property
    def handed_on(self) -> Mapping[str, FloatArray]:
        """The values of component nodes that the last chunk handed on to the next one."""
        return self._state

    @property
    def _next(self) -> ChunkInputs:
        return self._program.inputs_of(self.num_chunks)

    def _needed(self, number: int) -> int:
        """The number of frames that a chunk needs, for its input and for its output."""
        size = self._program.chunk_size
        return number * size + max(self._program.inputs_of(number).end, size)

    @property
    def num_missing(self) -> int:
        """The number of frames that the next chunk still needs."""
        return max(self._needed(self.num_chunks) - max(self._frames.end, 0), 0)

    @property
    def is_ready(self) -> bool:
        """Whether the next chunk can be computed, and its outputs are wanted."""
        if self._num_rows is None:
            return not self.num_missing
        return self.num_chunks * self._program.chunk_size < self.num_frames

    def inputs(self) -> dict[str, FloatArray]:
        """The inputs of the next chunk."""
        start, given = self.num_chunks * self._program.chunk_size, self._next
        values = {INPUT: self._frames.window(start + given.begin, start + given.end)}
        if given.ivector_times:
            times = [start + time for time in given.ivector_times]
            values[IVECTOR] = self._ivectors.rows(
                times, self._last_frames(times, start + given.end)
            )
        return values | self._state

    def _last_frames(self, times: list[int], end: int) -> list[int]:
        """For each i-vector of a chunk, the last frame so far that uses it."""
        if self._program.options.ivector_period is None:
            return [end - 1] * len(times)
        return [min(time + self._program.ivector_period, end) - 1 for time in times]

    def advance(self, output: FloatArray, state: dict[str, FloatArray]) -> None:
        """Moves on to the next chunk.

        Args:
            output: (rows, dim), of the chunk.
            state: The state that it hands on.
        """
        size = self._program.chunk_size
        if self._num_rows is not None:
            rows_before = self.num_chunks * len(output)
            output = output[: self._num_rows - rows_before]
        self.outputs.append(output)
        self._state = state
        self.num_chunks += 1
        start, given = self.num_chunks * size, self._next
        self._frames.drop_before(min(start + given.begin, self._frames.end - 1))
        if given.ivector_times:
            # I-vectors that no chunk has read serve frames that no chunk has read.
            self._ivectors.drop_before(start + given.ivector_times[0], start + given.begin)

    # ---- between two pushes ----

    def state(self) -> StreamState:
        """The sequence as a value, without outputs that wait to be handed out."""
        frames, ivectors = self._frames, self._ivectors
        return StreamState(
            digest=self._program.digest,
            num_chunks=self.num_chunks,
            num_frames=self.num_frames,
            frames=frames.window(frames.begin, frames.end),
            ivector_times=np.array([time for time, _ in ivectors.given], np.int64),
            ivectors=ivectors.matrix(row for _, row in ivectors.given),
            read_times=np.array([*ivectors.read], np.int64),
            read_ivectors=ivectors.matrix(ivectors.read.values()),
            states=tuple(NodeRows(node=node, rows=rows) for node, rows in self._state.items()),
        )

    @classmethod
    def resumed(cls, program: StreamProgram, state: StreamState) -> Sequence:
        """The sequence of a state.

        Raises:
            RunError: the state is of another network or other options, or is damaged.
        """
        if state.digest != program.digest:
            raise RunError(
                "the state is that of another network, or of a stream with other options"
            )
        sequence = cls(program)
        sequence.num_chunks, sequence.num_frames = state.num_chunks, state.num_frames
        begin = state.num_frames - len(state.frames)
        first = state.num_chunks * program.chunk_size + sequence._next.begin
        is_new = not state.num_frames and not len(state.frames) and not state.num_chunks
        if not is_new:
            sequence._frames.begin = sequence._frames.end = begin
            sequence._frames.append(state.frames)
        given = zip(state.ivector_times.tolist(), state.ivectors, strict=True)
        sequence._ivectors.given = list(given)
        read = zip(state.read_times.tolist(), state.read_ivectors, strict=True)
        sequence._ivectors.read = dict(read)
        sequence._state = {each.node: each.rows for each in state.states}
        values = (state.frames, state.ivectors, state.read_ivectors)
        if not (
            all(np.isfinite(array).all() for array in values)
            and (is_new or begin <= min(first, state.num_frames - 1))
            and (is_new or sequence.has_ivector or not program.ivector_dim)
            and state.frames.shape[1] == program.dim
            and state.ivectors.shape[1] == state.read_ivectors.shape[1] == program.ivector_dim
            and {node: rows.shape for node, rows in sequence._state.items()} == sequence._next.state
        ):
            raise RunError("the state is damaged: its arrays do not fit the network")
        return sequence
