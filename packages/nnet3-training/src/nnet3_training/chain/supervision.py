"""The supervision of the sequences on which a 'chain' model is trained, and its files.

A file, or a value of a table, is

    <Supervision> <Weight> w <NumSequences> n <FramesPerSeq> f <LabelDim> d <End2End> F
    fst </Supervision>

or `<End2End> T <Fsts> fst ... </Fsts>`, with `<AlignmentPdfs>` and integers before the end if there
are such. In binary the FSTs are compact acceptors.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Sequence
from typing import Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import files
from nnet3_descriptors.indexes import IndexArray, N, T

from nnet3_training import fields
from nnet3_training.chain.fsts import files as fst_files
from nnet3_training.chain.fsts.fst import EPSILON, Fst, breadth_first, concatenated
from nnet3_training.egs.examples import PathSupervision, weights_of
from nnet3_training.errors import ExampleError


def _fsts(values: Iterable[Fst]) -> tuple[Fst, ...]:
    return tuple(values)


def _pdfs(values: Iterable[int]) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, values))
    except TypeError as error:
        raise ExampleError(f"expected numbers of pdfs in alignment_pdfs: {error}") from error


def _check(fst: object, label_dim: int) -> None:
    """Raises an ExampleError if this is no FST of a supervision."""
    if not isinstance(fst, Fst):
        raise ExampleError(f"expected an Fst, found {type(fst).__name__}")
    if not fst.is_acceptor:
        raise ExampleError("the FST of a supervision must be an acceptor: labels of an arc differ")
    largest = int(fst.labels.max(initial=0))
    if largest > label_dim:
        raise ExampleError(
            f"the FST of a supervision has the label {largest}; expected at most {label_dim}"
        )


@attrs.frozen(kw_only=True, eq=False)
class ChainSupervision(PathSupervision):
    """The correct paths for one or several sequences of the same length (the numerator).

    Labels are 1 + the number of a pdf. If there is `fst`, it reads one label for each frame of all
    sequences, one sequence after the other. Else `e2e_fsts` has an FST for each sequence, which
    may have loops (training without alignments).

    Attributes:
        weight: Multiplies the objective.
        num_sequences: Number of sequences.
        frames_per_sequence: Output frames of each.
        label_dim: Number of pdfs.
        fst: An acceptor of all sequences.
        e2e_fsts: An acceptor for each sequence.
        alignment_pdfs: One pdf for each frame, for statistics, if examples were made without
            constraints on time; else empty.
        deriv_weights: (frames * sequences,), factors of the derivative of each output row; or
            empty. With them a frame that several examples share counts once.

    Raises:
        ExampleError: a number is out of range, or the FSTs are not as described above.
    """

    weight: float = fields.number(ExampleError, 1.0)
    num_sequences: int = fields.integer(ExampleError, 1, least=1)
    frames_per_sequence: int = fields.integer(ExampleError, least=1)
    label_dim: int = fields.integer(ExampleError, least=1)
    fst: Fst | None = None
    e2e_fsts: tuple[Fst, ...] = attrs.field(default=(), converter=_fsts)
    alignment_pdfs: tuple[int, ...] = attrs.field(default=(), converter=_pdfs)
    deriv_weights: npt.NDArray[np.float32] = attrs.field(default=(), converter=weights_of)

    def __attrs_post_init__(self) -> None:
        if (self.fst is None) != bool(self.e2e_fsts):
            raise ExampleError("a supervision has either one FST or one for each sequence")
        if self.e2e_fsts and len(self.e2e_fsts) != self.num_sequences:
            raise ExampleError(
                f"expected an FST for each of {self.num_sequences} sequences, found "
                f"{len(self.e2e_fsts)}"
            )
        for fst in self.fsts:
            _check(fst, self.label_dim)
        factors = self.deriv_weights
        if factors.shape not in ((0,), (self.num_frames,)):
            raise ExampleError(
                f"expected a weight for each of {self.num_frames} frames or none, found the shape "
                f"{factors.shape}"
            )
        if not (np.isfinite(factors) & (factors >= 0.0)).all():
            raise ExampleError("the weight of a frame is negative or not finite")

    def check_indexes(self, name: str, indexes: IndexArray) -> None:
        """Checks the indexes of an output with this supervision.

        They must be its frames in order, at equal steps, with all sequences n = 0, 1, ... of a
        frame side by side and x = 0.

        Raises:
            ExampleError: they are not; it names the output.
        """
        sequences, frames = self.num_sequences, self.frames_per_sequence
        if len(indexes) != sequences * frames:
            raise ExampleError(
                f"output '{name}': expected {frames} frames of {sequences} sequences, found "
                f"{len(indexes)} indexes"
            )
        expected = np.zeros((frames, sequences, 3), dtype=np.int64)
        expected[..., N] = np.arange(sequences)
        first = int(indexes[0, T])
        step = int(indexes[sequences, T]) - first if frames > 1 else 1
        expected[..., T] = first + step * np.arange(frames)[:, None]
        if step < 1 or not np.array_equal(expected.reshape(-1, 3), indexes):
            raise ExampleError(
                f"output '{name}': the indexes are not frames at equal steps with all sequences of "
                "a frame side by side"
            )

    @property
    def fsts(self) -> tuple[Fst, ...]:
        """The one FST, or that of each sequence."""
        return self.e2e_fsts if self.fst is None else (self.fst,)

    @property
    def num_frames(self) -> int:
        """Frames of all sequences together: the rows of the output."""
        return self.num_sequences * self.frames_per_sequence

    @property
    def total_weight(self) -> float:
        """Weight times number of frames, the divisor of objectives in logs."""
        return self.weight * self.num_frames

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """The sequences of all parts, one after the other.

        Raises:
            ExampleError: they differ in weight, length, number of pdfs, or kind of FST.
        """
        if len(parts) == 1:
            return parts[0]
        kinds = {
            (part.weight, part.frames_per_sequence, part.label_dim, part.fst is None)
            for part in parts
        }
        if len(kinds) != 1:
            raise ExampleError(
                "supervisions that are merged must have the same weight, frames per sequence, "
                f"number of pdfs and kind of FST; found {len(kinds)} kinds"
            )
        if len({len(part.deriv_weights) > 0 for part in parts}) != 1:
            raise ExampleError("some of the supervisions that are merged have weights of frames")
        first = parts[0]
        fsts = [fst for part in parts for fst in part.fsts]
        by_part = [part.deriv_weights.reshape(-1, part.num_sequences) for part in parts]
        return attrs.evolve(
            first,
            num_sequences=sum(part.num_sequences for part in parts),
            fst=None if first.fst is None else breadth_first(concatenated(fsts)),
            e2e_fsts=fsts if first.fst is None else (),
            alignment_pdfs=(),
            deriv_weights=np.concatenate(by_part, axis=1).ravel(),
        )


def check_labels(fst: Fst) -> None:
    """Raises an ExampleError if an FST has no states, or an arc without a label."""
    if not fst.num_states:
        raise ExampleError("a supervision's FST has no states")
    unlabelled = np.flatnonzero(fst.labels == EPSILON)
    if unlabelled.size:
        arc = unlabelled[0]
        raise ExampleError(
            f"a supervision's FST has an arc without a label, from state {fst.sources[arc]} to "
            f"{fst.destinations[arc]}: nnet3-chain-normalize-egs removes such arcs"
        )


def state_times(fst: Fst) -> npt.NDArray[np.int64]:
    """The number of labels that are read before each state.

    Args:
        fst: An FST without epsilons. All paths to a state must have the same length, states must be
            in the order of this length, and all final states must be at the end.

    Returns:
        (states,) int64; the last element is the number of frames.

    Raises:
        ExampleError: the FST does not meet these conditions.
    """
    if fst.start != 0:
        raise ExampleError(f"a supervision's FST must start at state 0, found {fst.start}")
    check_labels(fst)
    sources, destinations = fst.sources, fst.destinations
    furthest = np.zeros(fst.num_states, dtype=np.int64)
    np.maximum.at(furthest, sources, destinations)
    reached = np.maximum.accumulate(furthest).tolist()
    times = np.zeros(fst.num_states, dtype=np.int64)
    begin, end, time = 0, 1, 0
    while end < fst.num_states:
        begin, end, time = end, reached[end - 1] + 1, time + 1
        if end <= begin:
            raise ExampleError(f"no arc leads to state {begin} of a supervision's FST")
        times[begin:end] = time
    wrong = np.flatnonzero(times[destinations] != times[sources] + 1)
    if wrong.size:
        arc = wrong[0]
        raise ExampleError(
            f"an arc of a supervision's FST leads from state {sources[arc]} to "
            f"{destinations[arc]}, which is not one frame later"
        )
    early = np.isfinite(fst.final_costs) & (times != time)
    if early.any():
        raise ExampleError(
            f"state {np.flatnonzero(early)[0]} of a supervision's FST is final before the last "
            f"frame"
        )
    if not np.isfinite(fst.final_costs).any():
        raise ExampleError("a supervision's FST has no final state")
    return times


_MAX_SEQUENCES = 1 << 20


def read_chain_supervision(source: files.PathOrFile) -> ChainSupervision:
    """Reads one supervision, binary or text.

    Args:
        source: A path, `path:offset` (as in Kaldi's scp files), or a file open for reading bytes.

    Raises:
        ModelFileError: the file cannot be read, or holds something else; the error says where.
    """
    reader = files.open_reader(source)
    supervision = read_supervision(reader)
    files.leave_behind(source, reader)
    return supervision


def write_chain_supervision(
    supervision: ChainSupervision, path: str | os.PathLike[str], *, binary: bool = True
) -> None:
    """Writes one supervision to a file of its own.

    Raises:
        FileError: the file cannot be written.
    """
    files.write_atomically(path, [supervision_bytes(supervision, binary=binary)])


def supervision_bytes(supervision: ChainSupervision, *, binary: bool = True) -> bytes:
    """A supervision as it stands in a table, behind its key."""
    writer = files.new_writer(binary=binary)
    write_supervision(writer, supervision)
    return writer.data


def read_supervision(reader: files.Reader) -> ChainSupervision:
    """Reads a supervision, from its opening token on.

    Raises:
        ModelFileError: the file holds something else there.
    """
    reader.skip_blanks()
    start = reader.position
    reader.expect("<Supervision>")
    reader.expect("<Weight>")
    weight = reader.real()
    reader.expect("<NumSequences>")
    num_sequences = reader.count("sequences", maximum=_MAX_SEQUENCES)
    reader.expect("<FramesPerSeq>")
    frames_per_sequence = reader.integer()
    reader.expect("<LabelDim>")
    label_dim = reader.integer()
    reader.expect("<End2End>")
    fst, e2e_fsts = None, []
    if reader.boolean():
        reader.expect("<Fsts>")
        e2e_fsts = [_read_fst(reader) for _ in range(num_sequences)]
        reader.expect("</Fsts>")
    else:
        fst = _read_fst(reader)
    reader.skip_blanks()
    alignment_pdfs: list[int] = []
    if reader.next_is(b"<A"):
        reader.expect("<AlignmentPdfs>")
        alignment_pdfs = reader.integers()
    reader.expect("</Supervision>")
    try:
        return ChainSupervision(
            weight=weight,
            num_sequences=num_sequences,
            frames_per_sequence=frames_per_sequence,
            label_dim=label_dim,
            fst=fst,
            e2e_fsts=e2e_fsts,
            alignment_pdfs=alignment_pdfs,
        )
    except ExampleError as error:
        reader.fail(str(error), at=start)


def _read_fst(reader: files.Reader) -> Fst:
    if isinstance(reader, files.BinaryReader):
        return fst_files.read_binary_fst(reader)
    # The blank has ended the line of text before the FST.
    while reader.next_is(b" "):
        reader.position += 1
    return fst_files.read_text_fst(reader)


def write_supervision(writer: files.Writer, supervision: ChainSupervision) -> None:
    """Writes a supervision."""
    writer.token("<Supervision>")
    writer.token("<Weight>")
    writer.real(supervision.weight)
    for token, count in (
        ("<NumSequences>", supervision.num_sequences),
        ("<FramesPerSeq>", supervision.frames_per_sequence),
        ("<LabelDim>", supervision.label_dim),
    ):
        writer.token(token)
        writer.integer(count)
    writer.token("<End2End>")
    writer.boolean(supervision.fst is None)
    if supervision.fst is not None:
        _write_fst(writer, supervision.fst)
    else:
        writer.token("<Fsts>")
        for fst in supervision.e2e_fsts:
            _write_fst(writer, fst)
        writer.token("</Fsts>")
    if supervision.alignment_pdfs:
        writer.token("<AlignmentPdfs>")
        writer.integers(supervision.alignment_pdfs)
    writer.token("</Supervision>")


def _write_fst(writer: files.Writer, fst: Fst) -> None:
    if writer.binary:
        writer.raw(fst_files.compact_bytes(fst))
    else:
        fst_files.write_text_fst(writer, fst)
