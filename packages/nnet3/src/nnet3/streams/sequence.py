"""One sequence of frames on its way through the chunks of a program, and its state as a value."""

from __future__ import annotations

from collections import abc, deque
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import ClassVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import Serialized, read_only
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import FloatArray

from nnet3.streams.program import INPUT, IVECTOR, ChunkInputs, StreamProgram

IntArray = npt.NDArray[np.int64]


def _frozen(values: object) -> object:
    """An array as one that nobody can change; what is no array is left to `StreamState`."""
    return read_only(values) if isinstance(values, np.ndarray) else values


def _is_array(values: object, axes: int, dtype: type) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == axes and values.dtype == dtype


@attrs.frozen(kw_only=True, eq=False)
class NodeRows:
    """Values of a component node that the next chunk takes.

    Attributes:
        node: Its name.
        rows: (rows, dim) float32.
    """

    node: str
    rows: FloatArray = attrs.field(converter=_frozen)


@attrs.frozen(kw_only=True, eq=False)
class StreamState(Serialized):
    """A sequence between two pushes. Times count frames from the first one.

    Its arrays are read-only: those that are not are copied.

    Attributes:
        digest: Digest of the network and of the inputs of its chunks; see `StreamProgram`.
        num_chunks: Chunks that have been computed.
        num_frames: Frames that have come.
        frames: (rows, dim) float32, the last frames, which are still needed.
        ivector_times: (V,) int64, for each given i-vector that is still needed, the time from which
            it is valid; ascending.
        ivectors: (V, ivector_dim) float32.
        read_times: (R,) int64, for each i-vector that chunks have read and the next chunk needs
            again, the time of the first frame that it serves.
        read_ivectors: (R, ivector_dim) float32.
        states: Values of component nodes.

    Raises:
        RunError: an array has another form, or a number is not a count.
    """

    FORMAT: ClassVar[str] = "nnet3.stream-state"
    VERSION: ClassVar[int] = 1

    digest: str
    num_chunks: int
    num_frames: int
    frames: FloatArray = attrs.field(converter=_frozen)
    ivector_times: IntArray = attrs.field(converter=_frozen)
    ivectors: FloatArray = attrs.field(converter=_frozen)
    read_times: IntArray = attrs.field(converter=_frozen)
    read_ivectors: FloatArray = attrs.field(converter=_frozen)
    states: tuple[NodeRows, ...]

    def __attrs_post_init__(self) -> None:
        """Checks conditions that hold for any network."""
        matrices = [self.frames, self.ivectors, self.read_ivectors]
        times = [self.ivector_times, self.read_times]
        if not (
            isinstance(self.states, tuple)
            and all(isinstance(each, NodeRows) for each in self.states)
            and all(_is_array(each.rows, 2, np.float32) for each in self.states)
            and all(_is_array(array, 2, np.float32) for array in matrices)
            and all(_is_array(array, 1, np.int64) for array in times)
            and all(isinstance(count, Integral) for count in (self.num_chunks, self.num_frames))
            and len(self.ivector_times) == len(self.ivectors)
            and len(self.read_times) == len(self.read_ivectors)
            and min(self.num_chunks, self.num_frames) >= 0
        ):
            raise RunError(
                "the state of a stream holds an array of another form, or no count >= 0 of chunks "
                "and frames"
            )


class FrameBuffer:
    """The last frames of an endless sequence, numbered from any time on.

    Appended arrays are joined only when a window is taken, so a push takes time in proportion to
    its frames.

    Attributes:
        begin: The time of the first frame that is held.
        end: The time of the frame that comes next.
    """

    def __init__(self, begin: int, dim: int) -> None:
        """Begins empty.

        Args:
            begin: The time of the first frame that will come.
            dim: Columns.
        """
        self.begin = self.end = begin
        self._dim = dim
        self._parts: deque[FloatArray] = deque()

    def append(self, frames: FloatArray) -> None:
        """Adds frames (count, dim), which are not copied."""
        if len(frames):
            self._parts.append(frames)
            self.end += len(frames)

    def repeat_last(self, count: int) -> None:
        """Repeats the last frame `count` times; there must be one."""
        self.append(np.broadcast_to(self._parts[-1][-1], (count, self._dim)))

    def window(self, begin: int, end: int) -> FloatArray:
        """The frames from `begin` to before `end`, (end - begin, dim); all must be held."""
        assert self.begin <= begin <= end <= self.end, "a window lies in the buffer"
        found, time = [], self.begin
        for part in self._parts:
            if time >= end:
                break
            if time + len(part) > begin:
                found.append(part[max(begin - time, 0) : end - time])
            time += len(part)
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.empty((0, self._dim), np.float32)

    def drop_before(self, time: int) -> None:
        """Forgets the frames before a time."""
        while self._parts and self.begin < time:
            part = self._parts.popleft()
            count = min(len(part), time - self.begin)
            self.begin += count
            if count < len(part):
                rest = part[count:]
                # A copy, so that a few frames do not keep a long array alive.
                whole = rest.base
                is_small = whole is not None and 2 * rest.nbytes < whole.nbytes
                self._parts.appendleft(rest.copy() if is_small else rest)


class IvectorTrack:
    """The i-vectors of a sequence that were given, and those that chunks have read.

    Attributes:
        given: (time, i-vector): an i-vector is valid from its time on; ascending.
        read: The i-vectors that chunks have read, by the time of the first frame that they serve.
    """

    def __init__(self, dim: int) -> None:
        """Begins without any.

        Args:
            dim: Dimension of the i-vectors; 0 if there are none.
        """
        self._dim = dim
        self.given: list[tuple[int, FloatArray]] = []
        self.read: dict[int, FloatArray] = {}

    def give(self, time: int, ivector: FloatArray) -> None:
        """Adds an i-vector that is valid from a time on; times must not fall."""
        if self.given and self.given[-1][0] == time:
            self.given.pop()
        self.given.append((time, ivector))

    def rows(self, times: abc.Sequence[int], last_frames: abc.Sequence[int]) -> FloatArray:
        """The i-vectors for a chunk, (times, ivector_dim).

        Args:
            times: For each of them, the time of the first frame that it serves.
            last_frames: The time at which the i-vector is taken if no chunk has read it before.
        """
        for time, last_frame in zip(times, last_frames, strict=True):
            if time not in self.read:
                self.read[time] = self._at(last_frame)
        return self.matrix(self.read[time] for time in times)

    def matrix(self, ivectors: Iterable[FloatArray]) -> FloatArray:
        """I-vectors as rows, (count, ivector_dim)."""
        rows = [*ivectors]
        return np.array(rows, np.float32).reshape(len(rows), self._dim)

    def _at(self, time: int) -> FloatArray:
        """The i-vector that holds at a time; before the first time, the first i-vector."""
        found = self.given[0][1]
        for begin, ivector in self.given:
            if begin > time:
                break
            found = ivector
        return found

    def drop_before(self, first_read: int, first_frame: int) -> None:
        """Forgets i-vectors that are no longer needed.

        Args:
            first_read: Drops the read i-vectors that serve frames from before this time on.
            first_frame: Drops the given i-vectors that another one has replaced by this time.
        """
        self.read = {time: row for time, row in self.read.items() if time >= first_read}
        while len(self.given) > 1 and self.given[1][0] <= first_frame:
            del self.given[0]


class Sequence:
    """A sequence between two chunks.

    Attributes:
        num_chunks: Number of chunks computed.
        num_frames: Number of frames that have come.
        outputs: Outputs that were computed and not yet handed out.
        is_broken: Whether Ctrl-C came within a change, which is then made in part.
    """

    def __init__(self, program: StreamProgram) -> None:
        """Begins at the first frame.

        Args:
            program: Computes the chunks.
        """
        self.num_chunks = self.num_frames = 0
        self.outputs: list[FloatArray] = []
        self.is_broken = False
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
