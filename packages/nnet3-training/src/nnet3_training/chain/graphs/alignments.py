"""Supervisions from alignments and lattices: the phones that may be said in each frame.

An alignment says when each phone begins and ends; a lattice says it for several alternatives.
Tolerances allow a phone to begin a few frames earlier or end a few frames later, so a supervision
accepts many sequences of pdfs.

In Kaldi's tables phones are a line of text: `phone phone ...`, or with durations
`phone duration ; phone duration ...`. In binary they are a count and as many integers, or pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np
from nnet3_descriptors.files import BinaryReader, Reader, parse_integer
from nnet3_speech.hmm import ContextDependency, Transitions

from nnet3_training import fields
from nnet3_training.chain.fsts.fst import Arc, Graph, breadth_first, explored
from nnet3_training.chain.fsts.machines import without_epsilons
from nnet3_training.chain.graphs.phone_lattices import PhoneLattice
from nnet3_training.chain.graphs.transition_graph import in_context, transition_graph
from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.errors import ExampleError

_MAX_PHONES = 1 << 20


def read_phones(reader: Reader) -> list[int]:
    """Reads the phones of an utterance.

    Raises:
        ModelFileError: the file holds something else there.
    """
    phones: list[int] = reader.table_integers().tolist()
    return phones


def read_alignment(reader: Reader) -> list[tuple[int, int]]:
    """Reads phones and durations of an utterance, as ali-to-phones --write-lengths makes them.

    Raises:
        ModelFileError: the file holds something else there.
    """
    if isinstance(reader, BinaryReader):
        count = reader.count("phones", maximum=_MAX_PHONES)
        return [(reader.integer(), reader.integer()) for _ in range(count)]
    start = reader.position
    pairs = []
    for part in reader.line().split(";"):
        words = part.split()
        if len(words) != 2:
            reader.fail(
                "these are no pairs", at=start, expected="phone duration ; phone duration ...",
                found=repr(part.strip()[:48]),
            )  # fmt: skip
        try:
            phone, duration = map(parse_integer, words)
        except ValueError:
            text = " ".join(words)[:48]
            reader.fail("these are no integers", at=start, expected="integers", found=repr(text))
        pairs.append((phone, duration))
    return pairs


_MOST_FRAMES = 1 << 18
"""The frames of 43 minutes. A supervision takes time and memory for each, and a damaged duration
would take all."""
_MOST_STATES = 300_000
"""States of a supervision, each a place in the phones at a frame: many times those of a minute."""


def _is_phone(pair: object) -> bool:
    """Whether this is a pair of integers."""
    if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
        return False
    return all(isinstance(number, int | np.integer) for number in pair)


@attrs.frozen(kw_only=True)
class SupervisionOptions:
    """Options for making supervisions, with names and defaults of chain-get-supervision.

    Attributes:
        left_tolerance: Number of input frames by which a phone may begin earlier.
        right_tolerance: Number of input frames by which a phone may end later.
        frame_subsampling_factor: Frames of the input for each frame of the output.
        convert_to_pdfs: Whether labels are 1 + the number of a pdf; else transition-ids.
        lm_scale: Factor of the graph costs of lattices; at least 0 and below 1.

    Raises:
        ExampleError: a number is out of range, or the tolerances are so small that a phone could
            have no output frame.
    """

    left_tolerance: int = fields.integer(ExampleError, 5, least=0)
    right_tolerance: int = fields.integer(ExampleError, 5, least=0)
    frame_subsampling_factor: int = fields.integer(ExampleError, 1, least=1)
    convert_to_pdfs: bool = True
    lm_scale: float = fields.number(ExampleError, 0.0, below=1.0)

    def __attrs_post_init__(self) -> None:
        widest = self.left_tolerance + self.right_tolerance + 1
        if self.frame_subsampling_factor > widest:
            raise ExampleError(
                f"frame_subsampling_factor must be 1 to {widest}, one more than the tolerances "
                f"together (got {self.frame_subsampling_factor})"
            )

    def output_frames(self, begin: int, end: int, num_frames: int) -> range:
        """The frames of the output that a phone may be in.

        Args:
            begin: Its first frame of the input.
            end: The input frame after its last one.
            num_frames: Number of input frames.
        """
        factor = self.frame_subsampling_factor
        first = max(0, begin - self.left_tolerance)
        last = min(num_frames, end + self.right_tolerance)
        return range(-(-first // factor), -(-last // factor))

    def num_output_frames(self, num_frames: int) -> int:
        """The number of output frames for `num_frames` input frames."""
        return -(-num_frames // self.frame_subsampling_factor)


def _sets(values: Iterable[Iterable[int]]) -> tuple[frozenset[int], ...]:
    return tuple(frozenset(each) for each in values)


@attrs.frozen(kw_only=True, eq=False)
class ProtoSupervision:
    """An utterance as phones: their order, and the frames in which each may be said.

    Attributes:
        allowed_phones: The phones that may be said in each frame of the output.
        phones: An acceptor of phones.
    """

    allowed_phones: tuple[frozenset[int], ...] = attrs.field(converter=_sets)
    phones: Graph

    @classmethod
    def from_alignment(
        cls, alignment: Sequence[tuple[int, int]], options: SupervisionOptions
    ) -> ProtoSupervision:
        """The phones of an alignment, with tolerances.

        Args:
            alignment: Phone and duration in frames of the input, one after the other.
            options: The tolerances, and frames of the input for each of the output.

        Raises:
            ExampleError: the alignment is empty, has something else than pairs of integers, or more
                than 262,144 frames, or a phone or a duration below 1.
        """
        if not alignment:
            raise ExampleError("the alignment has no phones")
        if not all(map(_is_phone, alignment)):
            raise ExampleError("an alignment is made of pairs of integers, phone and duration")
        num_frames = sum(duration for _, duration in alignment)
        if num_frames > _MOST_FRAMES:
            raise ExampleError(
                f"the alignment has {num_frames} frames; expected at most {_MOST_FRAMES}"
            )
        allowed: list[set[int]] = [set() for _ in range(options.num_output_frames(num_frames))]
        phones, time = Graph(), 0
        for number, (phone, duration) in enumerate(alignment):
            if phone < 1 or duration < 1:
                raise ExampleError(
                    f"the alignment has phone {phone} for {duration} frames; both must be at "
                    "least 1"
                )
            for frame in options.output_frames(time, time + duration, num_frames):
                allowed[frame].add(phone)
            phones.add_state()
            phones.arcs[number].append(Arc(phone, 0.0, number + 1))
            time += duration
        phones.add_state(0.0)
        return cls(allowed_phones=allowed, phones=phones)

    @classmethod
    def from_lattice(cls, lattice: PhoneLattice, options: SupervisionOptions) -> ProtoSupervision:
        """The phones of a lattice, with tolerances.

        A phone may be said near the frames of any of its arcs.

        Args:
            lattice: Phones with their durations.
            options: The tolerances, the subsampling factor, and the scale of graph costs.

        Raises:
            ExampleError: the lattice has no path, or phones that are not aligned; or no phone is
                near a frame.
        """
        *times, num_frames = lattice.times()
        allowed: list[set[int]] = [set() for _ in range(options.num_output_frames(num_frames))]
        for time, arcs in zip(times, lattice.graph.arcs, strict=True):
            for arc in arcs if time >= 0 else ():
                end = times[arc.destination]
                for frame in options.output_frames(time, end, num_frames):
                    allowed[frame].add(arc.label)
        if not all(allowed):
            frame = next(frame for frame, phones in enumerate(allowed) if not phones)
            raise ExampleError(f"no phone of the lattice is near frame {frame} of the output")
        return cls(allowed_phones=allowed, phones=lattice.with_scaled_costs(options.lm_scale))


def supervision_of(
    proto: ProtoSupervision,
    tree: ContextDependency,
    transitions: Transitions,
    *,
    convert_to_pdfs: bool = True,
) -> ChainSupervision | None:
    """The supervision of an utterance: its phones as pdfs, each within its allowed frames.

    Args:
        proto: Phones.
        tree: The tree.
        transitions: The transition model.
        convert_to_pdfs: Whether labels are 1 + the number of a pdf; else transition-ids.

    Returns:
        A supervision; None if the phones do not fit into the frames.

    Raises:
        ExampleError: the supervision has more than 300,000 states.
        HmmError: a phone has no topology, or the tree no pdf for it.
    """
    graph = transition_graph(in_context(proto.phones, tree), tree, transitions, probabilities=False)
    fst = graph.fst()
    if bool((fst.labels == 0).any()):
        fst = without_epsilons(fst)
    timed = _timed(Graph.of(fst), proto.allowed_phones, transitions, convert_to_pdfs)
    if not timed.num_states:
        return None
    return ChainSupervision(
        frames_per_sequence=len(proto.allowed_phones),
        label_dim=transitions.num_pdfs if convert_to_pdfs else transitions.num_ids,
        fst=breadth_first(timed.fst()),
    )


def _timed(
    graph: Graph, allowed: Sequence[frozenset[int]], transitions: Transitions, convert_to_pdfs: bool
) -> Graph:
    """The paths of a graph of transition-ids with an allowed phone in each frame.

    A state of the result is a pair of a state of the graph and a frame.
    """
    if not graph.num_states:
        return graph
    phones = transitions.phones.tolist()
    labels = (transitions.pdfs + 1).tolist() if convert_to_pdfs else range(transitions.num_ids + 1)
    numbers = itertools.count()

    def final(place: tuple[int, int]) -> float:
        if next(numbers) == _MOST_STATES:
            raise ExampleError(
                f"the supervision of {len(allowed)} frames has more than {_MOST_STATES} states"
            )
        state, frame = place
        return graph.finals[state] if frame == len(allowed) else math.inf

    def arcs(place: tuple[int, int]) -> Iterator[tuple[int, float, tuple[int, int]]]:
        state, frame = place
        for arc in graph.arcs[state] if frame < len(allowed) else ():
            if phones[arc.label] in allowed[frame]:
                yield labels[arc.label], arc.cost, (arc.destination, frame + 1)

    return explored((0, 0), final, arcs).trimmed()
