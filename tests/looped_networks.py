"""Random networks that give the same outputs chunk by chunk and over whole utterances.

Chunks do not see later frames, so the networks have no optional right context. One layer reads
ahead; all other layers read this layer and the past, parts of which can be missing.
"""

from random import Random

import attrs
import numpy as np
from example_generator import is_computable
from network_generator import DIM, LAYERS, OTHER_LAYERS, NetworkWriter
from nnet3 import Model
from nnet3_compiler import looped_chunk_size, with_ivector_period
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import compute_context

IVECTOR_DIM = 3
ROUNDS = 5
"""Number of chunks that a network must be able to compute."""

RECURRENT = ("clockwork", "lstm", "projected-lstm", "recurrence")
PLAIN = ("append", "rows", "rows", "tdnn", "wide")
KINDS = (*RECURRENT, *PLAIN, "pooling")
OPTIONAL = ("IfDefined", "Failover", "StatisticsPooling")
"""Layers that make outputs depend on where an utterance, or a chunk, begins."""


class PastWriter(NetworkWriter):
    """Writes descriptors of the present and the past; some terms can be missing."""

    SUMS = ("leaf",) * 5, ("sum", "failover", "optional", "constant")
    NEAR = (-3, 0)
    TAPS = range(-4, 1)
    NEXT = -1
    FAR = FARTHER = tuple(range(-9, -2))

    @property
    def leaves(self) -> tuple[str, ...]:
        """The kinds of forwarding descriptors: none at a fixed time."""
        return ("node",) * 3 + ("offset",) * 3 + ("scale", "round", "switch")


class PlainWriter(PastWriter):
    """Writes descriptors without optional terms."""

    SUMS = ("leaf",), ("sum",)


def add_pooling(writer: NetworkWriter, name: str) -> None:
    """The mean over this frame and some earlier ones."""
    options = "input-dim=4 include-variance=false"
    sums = writer.layer(f"{name}.sums", "StatisticsExtraction", options, writer.leaf())
    past = writer.rng.randint(1, 6)
    options = f"input-dim=5 left-context={past} right-context=0 num-log-count-features=0"
    writer.sources.append(
        writer.layer(name, "StatisticsPooling", f"{options} output-stddevs=false", sums)
    )


def add_lookahead(writer: NetworkWriter, name: str, frames: int, *, has_ivector: bool) -> None:
    """The layer that reads `frames` frames ahead, and the i-vector."""
    parts = [f"Offset(input, {writer.rng.randint(-2, 0)})", f"Offset(input, {frames})"]
    if has_ivector:
        writer.inputs.append(f"input-node name=ivector dim={IVECTOR_DIM}")
        parts.append("ReplaceIndex(ivector, t, 0)")
    options = f"input-dim={2 * DIM + IVECTOR_DIM * has_ivector} output-dim={DIM}"
    writer.sources.append(writer.layer(name, "Affine", options, f"Append({', '.join(parts)})"))


@attrs.frozen(kw_only=True)
class Case:
    """A network for speech, and how to run it.

    Attributes:
        nnet: The network, in test mode, with one i-vector for an utterance.
        lookahead: Number of frames that one layer reads ahead.
        is_recurrent: Whether outputs depend on where an utterance begins.
        chunk: Frames of a chunk.
        left: Frames of left context beyond the network's own.
        right: Frames of right context beyond the network's own.
        subsampling: Number of input frames for each output frame.
        sequences: Number of utterances.
    """

    nnet: Nnet
    lookahead: int
    is_recurrent: bool
    chunk: int
    left: int
    right: int
    subsampling: int
    sequences: int

    @property
    def has_ivector(self) -> bool:
        """Whether the network takes an i-vector."""
        return len(self.nnet.input_nodes) > 1


def case_of_seed(seed: int) -> Case:
    """Draws cases with a seed until one can be computed.

    Networks whose outputs differ at the beginning of an utterance, or at odd times, get less right
    context than the layer that reads ahead wants; the rest of its context is optional.
    """
    rng = Random(seed)
    while True:
        case = draw_case(rng)
        reads_all_ahead = compute_context(case.nnet)[1] == case.lookahead
        nnet = with_ivector_period(case.nnet, case.chunk)
        if reads_all_ahead and is_computable(nnet, whole_request(case)):
            return case


def draw_case(rng: Random) -> Case:
    """Draws a network and the way to run it."""
    is_plain = rng.randrange(3) == 0
    make_writer = PlainWriter if is_plain else PastWriter
    writer = make_writer(rng, inputs=[f"input-node name=input dim={DIM}"])
    lookahead = rng.randint(0, 3)
    add_lookahead(writer, "first", lookahead, has_ivector=rng.randrange(2) == 0)
    kinds = [rng.choice(PLAIN if is_plain else KINDS) for _ in range(rng.randint(1, 4))]
    layers = LAYERS | OTHER_LAYERS | {"pooling": add_pooling}
    for number, kind in enumerate(kinds):
        layers[kind](writer, f"layer{number}")
    writer.nodes.append(f"output-node name=output input={writer.sum()}")
    nnet = parse_config(writer.text(), rng=np.random.default_rng(rng.getrandbits(32)))
    subsampling = rng.choice([1, 1, 2, 3])
    return Case(
        nnet=Model(nnet).nnet,  # gives its batch-norms statistics
        lookahead=lookahead,
        is_recurrent=any(word in writer.text() for word in OPTIONAL),
        chunk=looped_chunk_size(nnet, rng.randint(1, 9), subsampling),
        left=rng.choice([0, 0, 3]),
        right=rng.choice([0, 0, 2]),
        subsampling=subsampling,
        sequences=rng.choice([1, 1, 2]),
    )


def whole_request(case: Case) -> ComputationRequest:
    """One request with the inputs and outputs of all chunks."""
    left, right = compute_context(case.nnet)
    context = left, right + case.right
    return request_of_frames(case, context, ROUNDS * case.chunk, case.chunk, case.sequences)


def request_of_frames(
    case: Case, context: tuple[int, int], frames: int, period: int, sequences: int = 1
) -> ComputationRequest:
    """The request for the outputs of so many frames, with an i-vector for each `period` of them."""
    begin, end = -context[0] - case.left, frames + context[1]
    inputs = [IoSpecification.from_range("input", begin, end, sequences)]
    if case.has_ivector:
        first = begin // period * period
        inputs.append(IoSpecification.from_range("ivector", first, end, sequences, t_step=period))
    output = IoSpecification.from_range("output", 0, frames, sequences, t_step=case.subsampling)
    return ComputationRequest(inputs=inputs, outputs=[output])
