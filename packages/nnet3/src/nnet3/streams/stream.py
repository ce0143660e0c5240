"""Stream: takes frames and gives outputs, for one sequence or for many that begin and end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import NotCopied, changing
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import (
    FloatArray,
    as_array,
    as_matrix,
    as_vector,
    check_float32,
    check_output,
)

from nnet3.output_scores import ScoreOptions
from nnet3.streams.program import INPUT, OUTPUT, StreamProgram
from nnet3.streams.sequence import Sequence, StreamState


class Stream(NotCopied):
    """Sequences of frames whose outputs are computed as soon as the frames for them have come.

    `Model.stream` makes streams. A stream is for one thread at a time; several streams of a model
    may run side by side.

    A sequence begins with its first push and ends with `finish`. A stream has any number of
    sequences at a time, told apart by their names; without names there is one, None. One call of
    `push_many` computes all sequences whose frames it gets together.

    Attributes:
        chunk_size: Number of frames computed at a time; their outputs come together.
        sequences: Number of sequences that are computed at a time.
        delay: The most frames that must come after a frame before its output is ready.
    """

    _instead = "state() of a sequence can, and resume() of another stream continues from it"

    def __init__(
        self, program: StreamProgram, priors: FloatArray | None, score_options: ScoreOptions
    ) -> None:
        """Begins without sequences.

        Args:
            program: Computes the chunks.
            priors: (output_dim,), the prior of each output, or None.
            score_options: The options for turning outputs into scores.

        Raises:
            RunError: priors are asked for but missing, or have no logarithm.
        """
        score_options.check(priors)
        self.chunk_size = program.chunk_size
        self.sequences = program.options.sequences
        self.delay = max(program.inputs_of(0).end, program.chunk_size) - 1
        self._program = program
        self._priors = priors
        self._score_options = score_options
        self._open: dict[Hashable, Sequence] = {}

    def __repr__(self) -> str:
        return (
            f"<Stream: chunks of {self.chunk_size} frames, delay {self.delay}, "
            f"{self.sequences} at a time, {len(self._open)} open>"
        )

    @property
    def open_sequences(self) -> tuple[Hashable, ...]:
        """The names of the sequences that have begun and not ended."""
        return tuple(self._open)

    @property
    def no_outputs(self) -> FloatArray:
        """(0, output_dim) float32."""
        return np.empty((0, self._program.output_dim), np.float32)

    def frames_to_outputs(self, sequence: Hashable = None) -> int:
        """The number of frames of a sequence that must come before the next outputs.

        It is at least 1, or 0 if outputs wait because a call of `push_many` failed.

        Raises:
            RunError: the name has no hash.
        """
        found = self._open.get(_hashable(sequence))
        return (found or Sequence(self._program)).num_missing

    # ---- frames ----

    def push(
        self,
        frames: npt.ArrayLike,
        ivector: npt.ArrayLike | None = None,
        *,
        sequence: Hashable = None,
    ) -> FloatArray:
        """Takes the next frames of a sequence.

        Args:
            frames: (count, input_dim), any number, none included. They are copied.
            ivector: (ivector_dim,), the i-vector that is valid from the first of these frames on,
                until another is given; the first push needs one if the network takes i-vectors.
            sequence: The name of the sequence.

        Returns:
            (k, output_dim) float32, the outputs that have become ready, in order; k may be 0.

        Raises:
            RunError: see `push_many`.
        """
        ivectors = {} if ivector is None else {_hashable(sequence): ivector}
        return self.push_many({_hashable(sequence): frames}, ivectors)[sequence]

    def finish(self, sequence: Hashable = None) -> FloatArray:
        """Ends a sequence: its last frame is repeated as often as the network needs frames.

        Args:
            sequence: Its name. The next push begins another one of this name. A stream without
                sequences ends one of no frames.

        Returns:
            (k, output_dim) float32, the remaining outputs. The sequence then has one for every
            frame_subsampling_factor frames that were pushed, rounded up.

        Raises:
            RunError: see `push_many`.
        """
        return self.push_many({}, finished=[sequence])[sequence]

    def push_many(
        self,
        frames: Mapping[Hashable, npt.ArrayLike],
        ivectors: Mapping[Hashable, npt.ArrayLike] | None = None,
        *,
        finished: Iterable[Hashable] = (),
    ) -> dict[Hashable, FloatArray]:
        """Takes frames of several sequences, and computes their chunks together.

        Args:
            frames: By the name of the sequence; see `push`. New names begin new sequences.
            ivectors: I-vectors for some of these.
            finished: Sequences that end, after these frames if they get any; see `finish`.

        Returns:
            For each sequence of `frames` and `finished`, (k, output_dim) float32.

        Raises:
            RunError: frames or an i-vector are of another dimension, or not finite, or an i-vector
                is missing or not wanted, or an argument is of another kind, or there is no sequence
                that is to end, or Ctrl-C broke one off: nothing has changed then. Or a value of an
                output, scaled or not, or a value that a chunk hands on to the next, is not finite:
                then this sequence ends, and the other sequences get their outputs with the next
                call.
            DeviceMemoryError: the device lacks memory.
        """
        ivectors, ended = {} if ivectors is None else ivectors, _names(finished)
        _check_mapping(frames, "frames")
        _check_mapping(ivectors, "i-vectors")
        checked = {name: self._frames(name, values) for name, values in frames.items()}
        vectors = {name: self._ivector(name, values) for name, values in ivectors.items()}
        for name in (*checked, *vectors):
            found = self._open.get(name)
            has_ivector = name in vectors or (found is not None and found.has_ivector)
            if name not in checked:
                raise RunError(f"an i-vector{_of(name)} came without frames")
            if self._program.ivector_dim and not has_ivector:
                raise RunError(f"the first frames{_of(name)} need an i-vector, found none")
        for name in ended:
            self._check_known(name, checked)
        for name in (*checked, *ended):
            self._check_whole(name)
        for name, rows in checked.items():
            if name not in self._open:
                self._open[name] = Sequence(self._program)
            with changing(self._open[name]):
                self._open[name].add(rows, vectors.get(name))
        for name in ended:
            if name in self._open:
                with changing(self._open[name]):
                    self._open[name].end()
        names = list(dict.fromkeys([*checked, *ended]))
        self._compute([name for name in names if name in self._open])
        scores = {name: self._scores(name) for name in names}  # an error here loses no outputs
        for name in names:
            if name in self._open:
                self._open[name].outputs.clear()
        for name in ended:
            self._open.pop(name, None)
        return scores

    def reset(self, sequence: Hashable = None) -> None:
        """Forgets a sequence without its last outputs; the next push begins it anew.

        Raises:
            RunError: the name has no hash.
        """
        self._open.pop(_hashable(sequence), None)

    # ---- states ----

    def state(self, sequence: Hashable = None) -> StreamState:
        """The state of a sequence, as a value that can be saved and sent.

        A stream of the same model with the same options continues from it (`resume`), in any
        process; `sequences` and the options of scores may differ. Outputs are the same; on another
        machine, or with other numbers of sequences computed together, up to rounding.

        Raises:
            RunError: there is no such sequence, or it has ended or has outputs that were not handed
                out, because a call of `push_many` failed.
        """
        found = self._open.get(_hashable(sequence))
        self._check_whole(sequence)
        if found is None:
            raise self._unknown(sequence)
        if found.has_ended:
            raise RunError(
                f"sequence {sequence!r} has ended: finish() gives the outputs that are left"
            )
        if found.outputs:
            raise RunError(f"outputs{_of(sequence)} wait for the next push: push no frames first")
        return found.state()

    def resume(self, state: StreamState, sequence: Hashable = None) -> None:
        """Continues a sequence from a state.

        Args:
            state: A result of `state`, from any process.
            sequence: The new name of the sequence.

        Raises:
            RunError: there is a sequence of this name; or the state is of another network or other
                options, or is damaged.
        """
        if _hashable(sequence) in self._open:
            raise RunError(f"there is a sequence {sequence!r}; reset() it first")
        if not isinstance(state, StreamState):
            raise RunError(f"expected a StreamState, found {type(state).__name__}")
        self._open[sequence] = Sequence.resumed(self._program, state)

    # ---- chunks ----

    def _compute(self, names: list[Hashable]) -> None:
        """Computes all ready chunks of some sequences, as many at a time as possible."""
        last = len(self._program.inputs) - 1
        while True:
            ready: dict[int, list[Hashable]] = defaultdict(list)
            for name in names:
                if self._open[name].is_ready:
                    ready[min(self._open[name].num_chunks, last)].append(name)
            if not ready:
                return
            for number, together in ready.items():
                most = self._program.most_at_a_time(number)
                for begin in range(0, len(together), most):
                    self._compute_chunk(number, together[begin : begin + most])

    def _compute_chunk(self, number: int, names: list[Hashable]) -> None:
        """Computes the next chunk of some sequences together."""
        try:
            results = self._program.run(number, [self._open[name].inputs() for name in names])
        except RunError:  # a value is not finite
            self._check_handed_on(names)
            raise
        for name, (output, state) in zip(names, results, strict=True):
            with changing(self._open[name]):
                self._open[name].advance(output, state)
        for name, (output, _) in zip(names, results, strict=True):
            with self._ending(name):
                check_output(output, f"the output of node '{OUTPUT}'{_of(name)}")

    def _check_handed_on(self, names: list[Hashable]) -> None:
        """Ends the first sequence whose last chunk handed on a value that is not finite."""
        for name in names:
            with self._ending(name):
                for node, rows in self._open[name].handed_on.items():
                    check_output(rows, f"the state of node '{node}'{_of(name)}")

    def _scores(self, name: Hashable) -> FloatArray:
        """The outputs of a sequence that have not been handed out, as scores."""
        found = self._open.get(name)
        if found is None or not found.outputs:
            return self.no_outputs
        scores = self._score_options.apply(np.concatenate(found.outputs), self._priors)
        with self._ending(name):
            check_output(scores, f"what was made of the output{_of(name)} (scale, exponential)")
        return scores

    @contextmanager
    def _ending(self, name: Hashable) -> Iterator[None]:
        """Ends a sequence whose values turn out not to be finite."""
        try:
            yield
        except RunError:
            del self._open[name]
            raise

    # ---- checks ----

    def _unknown(self, name: Hashable) -> RunError:
        known = ", ".join(map(repr, islice(self._open, 5))) or "none"
        more = ", ..." if len(self._open) > 5 else ""
        return RunError(f"there is no sequence {name!r}; open are {known}{more}")

    def _check_known(self, name: Hashable, begun: Mapping[Hashable, FloatArray]) -> None:
        """Raises a RunError if there is no sequence that could end.

        The one without a name may end before it has begun, if there are no others: a recording may
        have no frames.
        """
        is_alone = name is None and not self._open and not begun
        if not (is_alone or name in self._open or name in begun):
            raise self._unknown(name)

    def _check_whole(self, name: Hashable) -> None:
        """Raises a RunError if a sequence is broken."""
        if name in self._open and self._open[name].is_broken:
            raise RunError(f"Ctrl-C broke off the frames{_of(name)}: reset() begins them anew")

    def _frames(self, name: Hashable, values: npt.ArrayLike) -> FloatArray:
        """Frames as a float32 matrix of their own; there may be none."""
        found, dim = self._open.get(name), self._program.dim
        if found is not None and found.has_ended:
            raise RunError(
                f"frames{_of(name)} came after its end: finish() gives the outputs that are left"
            )
        what = f"frames{_of(name)}"
        array = as_array(values, what)
        if array.shape in ((0,), (0, 0), (0, dim)):
            return np.empty((0, dim), np.float32)
        return np.array(as_matrix(array, INPUT, what, dim))

    def _ivector(self, name: Hashable, values: npt.ArrayLike) -> FloatArray:
        dim, what = self._program.ivector_dim, f"the i-vector{_of(name)}"
        if not dim:
            raise RunError(f"{what} was given, but the network has no input node 'ivector'")
        vector = as_vector(values, what, dim)
        check_float32(vector[None], what)
        return np.array(vector)


def _names(finished: object) -> list[Hashable]:
    """The names of sequences that end, each once.

    Raises:
        RunError: they are one name, whose characters would be taken for names, or no names.
    """
    if isinstance(finished, str | bytes):
        raise RunError(f"finished: expected names of sequences, as [{finished!r}], found one name")
    if not isinstance(finished, Iterable):
        found = type(finished).__name__
        raise RunError(f"finished: expected names of sequences, found {found}")
    names = list(finished)
    try:
        return list(dict.fromkeys(names))
    except TypeError as error:
        raise RunError(f"finished: expected names of sequences: {error}") from error


def _hashable(name: Hashable) -> Hashable:
    """The name of a sequence.

    Raises:
        RunError: it cannot be one, because it has no hash.
    """
    try:
        hash(name)
    except TypeError as error:
        raise RunError(f"expected the name of a sequence: {error}") from error
    return name


def _check_mapping(values: object, what: str) -> None:
    """Raises a RunError if values are not given by the names of sequences."""
    if not isinstance(values, Mapping):
        found = type(values).__name__
        raise RunError(f"{what}: expected a mapping from names of sequences, found {found}")


def _of(name: Hashable) -> str:
    """The part of a message that names the sequence."""
    return "" if name is None else f" of sequence {name!r}"
