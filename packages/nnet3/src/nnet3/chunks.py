"""Cuts an utterance into chunks for a network, as Kaldi's nnet3-compute and -compute-batch do."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.indexes import INT32_MAX, INT32_MIN
from nnet3_descriptors.similar_names import hint
from nnet3_runtime_cuda import RunError

from nnet3.output_scores import ScoreKeywords

_First = TypeVar("_First", bound=attrs.AttrsInstance)
_Second = TypeVar("_Second", bound=attrs.AttrsInstance)

_INDEX_BYTES = 3 * np.dtype(np.int32).itemsize
"""Of the index (n, t, x) of a frame."""

MAX_ONLINE_MARGIN = 50
"""The frames beyond the last online i-vector for which it still serves a chunk."""


def as_int(value: object) -> object:
    """An integer of NumPy as one of Python, which has all methods, and so equal digests."""
    return int(value) if isinstance(value, Integral) else value


def integer(default: int | None, least: int, *others: int, most: float = INT32_MAX) -> Any:
    """A field for an integer, such as a number of frames; a RunError refuses other values.

    Args:
        default: Its default; None if it may be None.
        least: The smallest number.
        others: Smaller allowed values, with special meanings.
        most: The largest number; by default the largest that Kaldi's options can hold.
    """

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if value is None and default is None:
            return
        wanted = f"an integer >= {least}" + "".join(f", or {other}" for other in others)
        if isinstance(value, Integral):
            if least <= int(value) <= most or int(value) in others:
                return
            if int(value) > most:
                wanted = f"an integer <= {most}"
        raise RunError(f"'{field.name}' must be {wanted} (got {value!r})")

    return attrs.field(default=default, converter=as_int, validator=check)


def options_of(
    first: type[_First], second: type[_Second], keywords: Mapping[str, Any]
) -> tuple[_First, _Second]:
    """Two values of options, whose fields are keywords.

    Raises:
        TypeError: a keyword is a field of neither.
        RunError: a value is out of range.
    """
    names = {name: kind for kind in (first, second) for name in attrs.fields_dict(kind)}
    chosen: dict[type, dict[str, Any]] = {first: {}, second: {}}
    for name, value in keywords.items():
        if name not in names:
            raise TypeError(f"there is no option '{name}'{hint(name, names)}")
        chosen[names[name]][name] = value
    return first(**chosen[first]), second(**chosen[second])


def memory_of_machine() -> float:
    """The size of the machine's memory in bytes; infinite if unknown."""
    if hasattr(os, "sysconf"):  # not on Windows
        with contextlib.suppress(OSError, ValueError):  # the system may not have such names
            size: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if size > 0:
                return size
    return math.inf


def check_memory(num_frames: int, dim: int) -> None:
    """Checks that the memory of the machine can hold the input of a run of the network.

    This counts only the frames, their indexes, and the matrix of the input: a run takes at least
    these. Without the check, a system that overcommits memory would kill the process.

    Args:
        num_frames: Frames of the input, including repeats of the first and the last.
        dim: Columns of the input.

    Raises:
        RunError: it cannot.
    """
    needed = num_frames * (2 * dim * np.dtype(np.float32).itemsize + _INDEX_BYTES)
    there = memory_of_machine()
    if needed > there:
        raise RunError(
            f"{num_frames} frames at a time, with the context that is asked for, need "
            f"{needed / 1e9:.1f} GB at least, of {there / 1e9:.1f} GB of memory"
        )


class ComputeKeywords(ScoreKeywords, total=False):
    """The fields of `ChunkOptions` and `ScoreOptions` as keywords, for type checkers."""

    frames_per_chunk: int
    frame_subsampling_factor: int | None
    extra_left_context: int
    extra_right_context: int
    extra_left_context_initial: int
    extra_right_context_final: int
    online_ivector_period: int


@attrs.frozen(kw_only=True)
class ChunkOptions:
    """The options for cutting utterances. All counts are in input frames.

    Attributes:
        frames_per_chunk: Frames of output for each run of the network, before subsampling.
        frame_subsampling_factor: One output row is computed for this many input frames.
        extra_left_context: Frames of context beyond what the network needs.
        extra_right_context: The same to the right.
        extra_left_context_initial: Replaces extra_left_context at the start, unless negative.
        extra_right_context_final: Replaces extra_right_context at the end, unless negative.
        online_ivector_period: Frames between two rows of online i-vectors.

    Raises:
        RunError: a value is out of range.
    """

    # There is no upper limit: a chunk longer than an utterance is the whole utterance.
    frames_per_chunk: int = integer(50, 1, most=math.inf)
    frame_subsampling_factor: int = integer(1, 1)
    extra_left_context: int = integer(0, 0)
    extra_right_context: int = integer(0, 0)
    extra_left_context_initial: int = integer(-1, INT32_MIN)
    extra_right_context_final: int = integer(-1, INT32_MIN)
    online_ivector_period: int = integer(0, INT32_MIN)

    def extra_context(self, *, is_first: bool, is_last: bool) -> tuple[int, int]:
        """The frames before and after a chunk, beyond those that the network needs."""
        left, right = self.extra_left_context, self.extra_right_context
        if is_first and self.extra_left_context_initial >= 0:
            left = self.extra_left_context_initial
        if is_last and self.extra_right_context_final >= 0:
            right = self.extra_right_context_final
        return left, right

    def has_own_context(self, *, is_first: bool, is_last: bool) -> bool:
        """Whether a chunk has its own context, because it is the first or last one."""
        initial, final = self.extra_left_context_initial, self.extra_right_context_final
        return (is_first and initial >= 0 and initial != self.extra_left_context) or (
            is_last and final >= 0 and final != self.extra_right_context
        )

    def rounded(self, modulus: int) -> ChunkOptions:
        """These options with frames_per_chunk rounded up so that chunks share a computation.

        Args:
            modulus: Of the network: chunks whose starts differ by a multiple of it need the same
                computation.
        """
        unit = math.lcm(self.frame_subsampling_factor, modulus)
        return attrs.evolve(self, frames_per_chunk=-(-self.frames_per_chunk // unit) * unit)


class Chunk(NamedTuple):
    """One run of the network.

    Attributes:
        first_input: The first frame of input; may lie before the utterance.
        num_inputs: Number of frames of input; may reach beyond the utterance.
        first_output: The input frame that the first output row belongs to.
        num_outputs: Number of output rows; each belongs to an input frame, frame_subsampling_factor
            apart.
        last_output: The input frame that the last output row belongs to.
        num_unused: Output rows at its beginning that the chunk before computes.
        ivector_frame: The frame whose online i-vector it takes; None for the middle of its outputs.
    """

    first_input: int
    num_inputs: int
    first_output: int
    num_outputs: int
    last_output: int
    num_unused: int = 0
    ivector_frame: int | None = None

    def input_rows(self, num_frames: int) -> slice | npt.NDArray[np.int64]:
        """The rows of the utterance that are the input; edge rows repeat beyond its ends."""
        last = self.first_input + self.num_inputs
        if self.first_input >= 0 and last <= num_frames:
            return slice(self.first_input, last)
        return np.clip(np.arange(self.first_input, last), 0, num_frames - 1)


def chunks(
    num_frames: int, options: ChunkOptions, left_context: int, right_context: int
) -> Iterator[Chunk]:
    """The chunks of an utterance, in order.

    Args:
        num_frames: Frames of the utterance, at least 1.
        options: Already rounded for the modulus of the network.
        left_context: Frames that the network needs before an output frame.
        right_context: Frames that the network needs after an output frame.
    """
    step = options.frame_subsampling_factor
    num_rows = -(-num_frames // step)
    rows_per_chunk = options.frames_per_chunk // step
    for first_row in range(0, num_rows, rows_per_chunk):
        count = min(rows_per_chunk, num_rows - first_row)
        first, last = first_row * step, (first_row + count - 1) * step
        left, right = options.extra_context(
            is_first=first_row == 0, is_last=first_row + count == num_rows
        )
        first_input = first - left_context - left
        yield Chunk(
            first_input=first_input,
            num_inputs=last + right_context + right + 1 - first_input,
            first_output=first,
            num_outputs=count,
            last_output=last,
        )


def full_chunks(
    num_frames: int, options: ChunkOptions, left_context: int, right_context: int
) -> Iterator[Chunk]:
    """The chunks of an utterance as Kaldi's nnet3-compute-batch has them: all of one length.

    The last one begins so much earlier, and computes outputs of the one before again. The only
    chunk of a short utterance reaches beyond its end. See `chunks` for the arguments.
    """
    step = options.frame_subsampling_factor
    num_rows = -(-num_frames // step)
    count = options.frames_per_chunk // step
    for wanted_row in range(0, num_rows, count):
        first_row = max(0, min(wanted_row, num_rows - count))
        first = first_row * step
        left, right = options.extra_context(
            is_first=first_row == 0, is_last=first_row + count >= num_rows
        )
        first_input = first - left_context - left
        yield Chunk(
            first_input=first_input,
            num_inputs=first + count * step + right_context + right - first_input,
            first_output=first,
            num_outputs=count,
            last_output=first + (count - 1) * step,
            num_unused=wanted_row - first_row,
            ivector_frame=first + count // 2 * step,
        )


def online_ivector_row(chunk: Chunk, period: int, num_frames: int, num_rows: int) -> int:
    """The row of the online i-vectors for a chunk.

    Args:
        chunk: The chunk.
        period: Frames between two rows.
        num_frames: Frames of the utterance.
        num_rows: The number of rows.

    Raises:
        RunError: the i-vectors end long before the chunk.
    """
    frame = chunk.ivector_frame
    if frame is None:
        frame = chunk.first_output + (chunk.last_output - chunk.first_output) // 2
    row = frame // period
    if row < num_rows:
        return row
    frame = min(frame, num_frames - 1)
    if (frame // period - (num_rows - 1)) * period > MAX_ONLINE_MARGIN:
        raise RunError(
            f"there is no online i-vector for frame {frame}: {num_rows} of them, {period} frames "
            f"apart, reach to frame {num_rows * period} (is the online i-vector period right?)"
        )
    return num_rows - 1
