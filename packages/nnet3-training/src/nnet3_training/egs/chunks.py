"""Utterances split into chunks, each of which becomes an example, as Kaldi's nnet3-get-egs does.

The options list the lengths of chunks. An utterance is split into any number of chunks of the first
length and at most two of other lengths, so that their sum is close to the length of the utterance.
A gap (frames in no chunk) counts twice as much as an overlap. The choice among splits that are
nearly as good as the best is random, and so is the place of gaps.

The random numbers are those of the GNU C library, which Kaldi draws on Linux. With them the package
chooses the same examples as Kaldi's tools, and cuts utterances at the same places.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Self, TypeAlias, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.indexes import is_int32

from nnet3_training.errors import ExampleError

T = TypeVar("T")

_DEGREE, _LAG = 31, 3
_WARM_UP = 310
_MODULUS = 2**31 - 1
_RANGE = 1 << 31


class CRandom:
    """`rand` of the GNU C library, as Kaldi uses it."""

    def __init__(self, seed: int = 1) -> None:
        """Begins as after `srand(seed)`; the C library's default is seed 1.

        Args:
            seed: Its lowest 32 bits count, as a number with a sign; 0 is taken for 1.
        """
        state = [(seed + (1 << 31)) % (1 << 32) - (1 << 31) or 1]
        self._seed = state[0]
        for _ in range(_DEGREE - 1):
            state.append(16807 * state[-1] % _MODULUS)
        self._state = deque(state, maxlen=_DEGREE)
        self._state.rotate(-_LAG)
        for _ in range(_WARM_UP):
            self._next()

    def _next(self) -> int:
        value = (self._state[-_LAG] + self._state[0]) % (1 << 32)
        self._state.append(value)
        return value

    def rand(self) -> int:
        """The next number, from 0 to 2^31 - 1."""
        return self._next() >> 1

    def integers(self, low: int, high: int) -> int:
        """An integer from `low` on, below `high`; if there is only one, nothing is drawn."""
        return low + self.rand() % (high - low) if high - low > 1 else low

    def uniform(self) -> float:
        """A number above 0 and at most 1, in single precision."""
        return float(np.float32((self.rand() + 1.0) / (_RANGE + 1.0)))

    def with_probability(self, probability: float) -> bool:
        """True with this probability."""
        if probability in (0.0, 1.0):
            return probability == 1.0
        if probability * (_RANGE - 1) < 128.0:
            return self.rand() < (_RANGE - 1) // 128 and self.with_probability(probability * 128.0)
        return self.rand() < _RANGE * float(np.float32(probability))

    @cached_property
    def _shuffling(self) -> np.random.Generator:
        """Another generator: Kaldi's takes no numbers from this one, either."""
        return np.random.default_rng(abs(self._seed))

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        """The numbers below `count` in random order."""
        return self._shuffling.permutation(count)


Random: TypeAlias = "CRandom | np.random.Generator"
"""A source of random numbers."""


def shuffled(items: Iterable[T], rng: Random, buffer_size: int = 0) -> Iterator[T]:
    """The items in random order.

    With `CRandom` and a buffer, the order is that of Kaldi's tools. Without a buffer these take
    their seed from the system, so that no two orders are the same.

    Args:
        items: Any number of items.
        rng: The random generator.
        buffer_size: Number of places in the buffer. Each item goes to a random place, and the item
            that was there is next; at the end come the remaining items, place by place. 0 for a
            place for each item.
    """
    if not buffer_size:
        held = list(items)
        for number in rng.permutation(len(held)):
            yield held[number]
        return
    places: dict[int, T] = {}
    for item in items:
        place = int(rng.integers(0, buffer_size))
        if place in places:
            yield places[place]
        places[place] = item
    for place in sorted(places):
        yield places[place]


_NEARLY_AS_GOOD = 1.9999
"""The factor by which a split can be worse than the best; just below 2, to decide ties alike."""


def _lengths(values: Iterable[int]) -> tuple[int, ...]:
    """The lengths as a tuple.

    Raises:
        ExampleError: they are not several.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ExampleError(f"num_frames must be a sequence of integers (got {values!r})")
    return tuple(values)


@attrs.frozen(kw_only=True)
class SplitOptions:
    """The options for splitting utterances; names and defaults are those of Kaldi.

    Attributes:
        num_frames: The lengths of chunks; a split can repeat the first one. Empty for one chunk for
            each utterance.
        left_context: Frames of the input before a chunk; negative to leave its first ones out.
        right_context: Frames after it; negative to leave its last ones out.
        left_context_initial: Frames of the input before the first chunk of an utterance; negative
            for `left_context`.
        right_context_final: Frames after the last chunk; negative for `right_context`.
        num_frames_overlap: Number of frames that two neighbouring chunks of the first length share.
        frame_subsampling_factor: Number of input frames for each output frame.

    Raises:
        ExampleError: a number is out of range, or no integer.
    """

    num_frames: tuple[int, ...] = attrs.field(default=(1,), converter=_lengths)
    left_context: int = 0
    right_context: int = 0
    left_context_initial: int = -1
    right_context_final: int = -1
    num_frames_overlap: int = 0
    frame_subsampling_factor: int = 1

    def __attrs_post_init__(self) -> None:
        numbers = attrs.asdict(self, filter=lambda field, _: field.name != "num_frames")
        numbers.update(("a length in num_frames", length) for length in self.num_frames)
        for name, value in numbers.items():
            if not isinstance(value, int | np.integer) or not is_int32(int(value)):
                raise ExampleError(f"{name} must be an integer of 32 bits (got {value!r})")
        if self.frame_subsampling_factor < 1:
            raise ExampleError(
                f"the subsampling factor must be at least 1 (got {self.frame_subsampling_factor})"
            )
        if any(length < 1 for length in self.num_frames):
            raise ExampleError(f"lengths of chunks must be positive (got {self.num_frames})")
        if self.num_frames and not 0 <= self.num_frames_overlap < self.num_frames[0]:
            raise ExampleError(
                f"the overlap must be less than the length of chunks, {self.num_frames[0]} "
                f"(got {self.num_frames_overlap})"
            )
        shortest = min(self.num_frames, default=1)
        first_left, last_right = self.context(is_first=True, is_last=True)
        left, right = min(self.left_context, first_left), min(self.right_context, last_right)
        if left + shortest + right < 1:
            raise ExampleError(
                f"a chunk of {shortest} frames would have no frames of the input, with a context "
                f"of {left} frames before it and {right} after it"
            )

    def context(self, *, is_first: bool, is_last: bool) -> tuple[int, int]:
        """The frames of the input before and after a chunk.

        Args:
            is_first: Whether it is the first chunk of an utterance.
            is_last: Whether it is the last one.
        """
        left, right = self.left_context, self.right_context
        if is_first and self.left_context_initial >= 0:
            left = self.left_context_initial
        if is_last and self.right_context_final >= 0:
            right = self.right_context_final
        return left, right

    def rounded(self) -> Self:
        """The options with lengths rounded up to multiples of the subsampling factor."""
        step = self.frame_subsampling_factor
        return attrs.evolve(self, num_frames=tuple(-(-n // step) * step for n in self.num_frames))


@attrs.frozen(kw_only=True, eq=False)
class UtteranceChunk:
    """A part of an utterance.

    Attributes:
        first_frame: Its first frame.
        num_frames: Its number of frames.
        left_context: Frames of the input before it.
        right_context: Frames after it.
        weights: (output frames,), 1 divided by the number of chunks that contain the frame. Input
            frames at the end that are too few for an output frame do not count.
    """

    first_frame: int
    num_frames: int
    left_context: int
    right_context: int
    weights: npt.NDArray[np.float32]


class UtteranceSplitter:
    """Splits utterances, and counts.

    Attributes:
        options: The options.
        num_utterances: Number of utterances split so far.
        num_frames: Number of their frames.
        num_overlapping: Number of frames that a chunk shares with the one before, summed over
            chunks.
        lengths: Number of chunks of each length.
    """

    def __init__(self, options: SplitOptions, rng: Random) -> None:
        """Begins.

        Raises:
            ExampleError: the options are no `SplitOptions`.
        """
        if not isinstance(options, SplitOptions):
            raise ExampleError(f"expected SplitOptions, found {type(options).__name__}")
        self.options = options.rounded()
        self.num_utterances = self.num_frames = self.num_overlapping = 0
        self.lengths: Counter[int] = Counter()
        self._rng = rng
        if self.options.num_frames:
            self._splits = _splits_by_length(
                self.options.num_frames, self.options.num_frames_overlap
            )

    def chunks(self, length: int) -> list[UtteranceChunk]:
        """The chunks of an utterance of `length` frames; none if it is shorter than all lengths."""
        options, step = self.options, self.options.frame_subsampling_factor
        sizes = self._sizes(length) if options.num_frames else [length]
        starts, end = [], 0
        for gap, size in zip(self._gaps(length, sizes), sizes, strict=True):
            starts.append(end + gap)
            end += gap + size
        counts = np.zeros(-(-length // step), dtype=np.int64)
        places = [
            slice(start // step, (start + size) // step)
            for start, size in zip(starts, sizes, strict=True)
        ]
        for place in places:
            counts[place] += 1
        result = []
        for number, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            is_last = number == len(sizes) - 1
            left, right = options.context(is_first=number == 0, is_last=is_last)
            weights = np.ones(size // step, dtype=np.float32)
            inside = counts[places[number]]
            weights[: len(inside)] /= inside
            result.append(
                UtteranceChunk(
                    first_frame=start,
                    num_frames=size,
                    left_context=left,
                    right_context=right,
                    weights=weights,
                )
            )
        self._count(length, result)
        return result

    def _sizes(self, length: int) -> list[int]:
        """The lengths of the chunks, rising or falling."""
        first = self.options.num_frames[0]
        rest, repeats = length, 0
        while rest > len(self._splits) - 1:
            rest -= first - self.options.num_frames_overlap
            repeats += 1
        choice = self._splits[rest]
        if not choice:
            return []
        split = choice[int(self._rng.integers(0, len(choice)))]
        sizes = sorted([*split, *[first] * repeats])
        return sizes[::-1] if self._rng.integers(0, 2) == 0 else sizes

    def _gaps(self, length: int, sizes: Sequence[int]) -> list[int]:
        """Frames between the end of each chunk and the one before; negative if they overlap."""
        if not sizes:
            return []
        step = self.options.frame_subsampling_factor
        if not self.options.num_frames:
            return [0]
        reduced = [size // step for size in sizes]
        total = -(-length // step) - sum(reduced)
        if total >= 0:
            common, more = divmod(total, len(sizes) + 1)
            gaps = [common + (number < more) for number in range(len(sizes) + 1)]
            gaps = [gaps[int(number)] for number in self._rng.permutation(len(gaps))][:-1]
        else:
            pairs = [min(pair) for pair in itertools.pairwise(reduced)]
            gaps = [0, *(-part for part in _shared_out(-total, pairs))]
        return [gap * step for gap in gaps]

    def _count(self, length: int, chunks: Sequence[UtteranceChunk]) -> None:
        self.num_utterances += 1
        self.num_frames += length
        for before, after in itertools.pairwise(chunks):
            end = before.first_frame + before.num_frames
            self.num_overlapping += max(0, end - after.first_frame)
        self.lengths.update(chunk.num_frames for chunk in chunks)

    @property
    def num_chunks(self) -> int:
        """The number of chunks so far."""
        return self.lengths.total()

    def lines(self) -> list[str]:
        """The lines that Kaldi's tools log at the end."""
        total = sum(size * count for size, count in self.lengths.items())
        overlap, output = (_percent(n, self.num_frames) for n in (self.num_overlapping, total))
        average = total / self.num_chunks if self.num_chunks else float("nan")
        lines = [
            f"Split {self.num_utterances} utts, with total length {self.num_frames} frames "
            f"({self.num_frames / 360000:.6g} hours assuming 100 frames per second) into "
            f"{self.num_chunks} chunks.",
            f"Average chunk length was {average:.6g} frames; overlap between adjacent chunks was "
            f"{overlap:.6g}% of input length; length of output was {output:.6g}% of input length "
            f"(minus overlap = {output - overlap:.6g}%).",
        ]
        if len(self.lengths) > 1:
            shares = ", ".join(
                f"{size} = {_percent(size * count, total):.4g}%"
                for size, count in sorted(self.lengths.items())
            )
            lines.append(f"Output frames are distributed among chunk-sizes as follows: {shares}")
        return lines


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else float("nan")


def _shared_out(total: int, magnitudes: Sequence[int]) -> list[int]:
    """A total divided in proportion to magnitudes, in integers; the first shares get the rest."""
    shares = [total * size // sum(magnitudes) for size in magnitudes]
    for number in range(total - sum(shares)):
        shares[number] += 1
    return shares


@functools.lru_cache(maxsize=16)
def _splits_by_length(lengths: tuple[int, ...], overlap: int) -> list[list[tuple[int, ...]]]:
    """For each length of an utterance its best splits; longer ones repeat the first length."""
    longest = 2 * max(lengths) + lengths[0]
    splits = _possible_splits(lengths, overlap, longest + lengths[0])
    durations = np.array([_duration(split, lengths[0], overlap) for split in splits])
    largest = np.array([max(split) for split in splits])
    result = []
    for length in range(longest + 1):
        costs = np.where(durations > length, durations - length, 2.0 * (length - durations))
        costs[largest > length] = np.inf
        best = costs.min()
        is_chosen = np.isfinite(costs) & (costs < best + _NEARLY_AS_GOOD)
        result.append([splits[number] for number in np.flatnonzero(is_chosen)])
    return result


def _possible_splits(lengths: tuple[int, ...], overlap: int, longest: int) -> list[tuple[int, ...]]:
    """The splits, sorted; as in Kaldi, two other lengths alone are there in both orders."""
    found = set()
    for one, other in itertools.product((None, *lengths[1:]), repeat=2):
        split = [length for length in (one, other) if length is not None]
        while _duration(split, lengths[0], overlap) <= longest:
            if split:
                found.add(tuple(split))
            split = sorted([*split, lengths[0]])
    return sorted(found)


def _duration(split: Sequence[int], first: int, overlap: int) -> float:
    """The number of frames that chunks cover with the wanted overlap, in rising order."""
    ordered = sorted(split)
    shared = sum(overlap / first * min(pair) for pair in itertools.pairwise(ordered))
    return sum(ordered) - shared
