"""Compares streams of any number of random networks with whole utterances.

`python tests/judge_random_streams.py --count 1000 --first-seed 1000` prints the streams that differ
by more than 1e-5 of the largest value, the largest difference, and how many were of each kind. A
seed draws a network (recurrent or not, with i-vectors or not; every second reads inputs of every
kind through optional terms and at fixed times), three utterances side by side, pushes of any sizes,
and options. Networks with i-vectors also get new ones while frames come: the definition reads off
which one serves each frame, and runs the whole utterance in float64 on nnet3-runtime-reference.
Where a network reads frames at a fixed time, the whole utterance does: a stream must refuse it.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from random import Random

import attrs
import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
from chunk_networks import (
    OPTIONAL,
    ChunkWriter,
    add_ivector,
    features_in,
    finish_chunk_network,
)
from example_generator import is_computable
from judge_random_models import reads_in
from judged_seeds import (
    LARGEST_DIFFERENCE,
    TOO_FEW_DIGITS,
    Judged,
    command_line,
    difference_of,
    differences,
    judge_seeds,
)
from looped_networks import (
    DIM,
    Case,
    add_lookahead,
    case_of_seed,
    request_of_frames,
    whole_request,
)
from nnet3 import Model
from nnet3_compiler import CompilationError, compile_computation, looped_chunk_size
from nnet3_descriptors import ComponentInputNode, Nnet, Nnet3Error, OutputNode, parse_config
from nnet3_descriptors.descriptors import Descriptor, ForwardingDescriptor, ReplaceIndex, Round
from nnet3_descriptors.editing import remove_orphans
from nnet3_graph import ContextError, NotComputableError, compute_context
from nnet3_runtime_reference import ReferenceComputer
from small_thresholds import thresholds

AT_FIXED_TIMES = "which would be another frame in each chunk"
"""In the error of networks that read something at a fixed time."""

Pairs = Iterator[tuple[np.ndarray, np.ndarray]]
"""Outputs of a stream and the expected ones, (rows, dim) each."""


# ---- cases ----


def case_of(seed: int) -> Case:
    """Draws a case."""
    if seed % 2 == 0:
        return case_of_seed(seed)
    rng = Random(seed)
    while True:
        try:
            case = _draw(rng)
        except ContextError:
            continue
        nnet = with_period(case.nnet, case.chunk)
        reads_all_ahead = compute_context(case.nnet)[1] == case.lookahead
        if reads_all_ahead and is_computable(nnet, whole_request(case)):
            return case


def _draw(rng: Random) -> Case:
    """Draws a network that reads inputs of every kind, in every way, but nothing optional ahead."""
    writer = ChunkWriter(rng, inputs=[f"input-node name=input dim={DIM}"], is_past=True)
    lookahead = rng.choice([0, 0, 1, 3])
    add_lookahead(writer, "first", lookahead, has_ivector=False)
    writer.sources.append("input")
    if rng.randrange(3):
        add_ivector(writer)
    finish_chunk_network(writer)
    nnet = parse_config(writer.text(), rng=np.random.default_rng(rng.getrandbits(32)))
    subsampling = rng.choice([1, 1, 1, 2, 3])
    return Case(
        nnet=Model(nnet).nnet,  # gives its batch-norms statistics
        lookahead=lookahead,
        is_recurrent=any(word in writer.text() for word in OPTIONAL),
        chunk=looped_chunk_size(nnet, rng.choice([1, 2, 3, rng.randint(1, 9)]), subsampling),
        left=rng.choice([0, 0, 3]),
        right=0,
        subsampling=subsampling,
        sequences=rng.choice([1, 1, 2]),
    )


def with_period(nnet: Nnet, period: int) -> Nnet:
    """The network with an i-vector every `period` frames in place of one; frames stay fixed."""
    of_features = features_in(nnet)

    def rounded(leaf: ForwardingDescriptor) -> ForwardingDescriptor:
        """The same with Round in place of each ReplaceIndex of i-vectors at t = 0."""
        sources = tuple(map(rounded, leaf.sources))
        is_fixed = isinstance(leaf, ReplaceIndex) and (leaf.variable, leaf.value) == ("t", 0)
        if is_fixed and not of_features & {*leaf.node_names}:
            return Round(sources[0], period)
        return leaf.with_sources(sources)

    nodes = []
    for node in nnet.nodes:
        if isinstance(node, ComponentInputNode | OutputNode):
            parts = tuple(part.map_leaves(rounded) for part in node.descriptor.parts)
            node = attrs.evolve(node, descriptor=Descriptor(parts))
        nodes.append(node)
    return attrs.evolve(nnet, nodes=tuple(nodes))


# ---- streams and what is expected ----


def outputs_of_seed(seed: int, case: Case) -> Pairs:
    """For each utterance, the outputs of a stream and of the model at once."""
    rng, sizes = np.random.default_rng(seed), Random(seed)
    model = Model(case.nnet)
    stream = model.stream(
        frames_per_chunk=case.chunk,
        frame_subsampling_factor=case.subsampling,
        extra_left_context_initial=case.left,
        sequences=case.sequences,
    )
    lengths = [sizes.randint(1, 5 * case.chunk) for _ in range(3)]
    utterances = {
        number: rng.standard_normal((length, DIM), dtype=np.float32)
        for number, length in enumerate(lengths)
    }
    ivectors = rng.standard_normal((3, model.ivector_dim), dtype=np.float32)
    given = dict(enumerate(ivectors)) if case.has_ivector else {}
    found: dict[int, list[np.ndarray]] = {number: [] for number in utterances}
    begin = 0
    while begin < max(lengths):
        end = begin + sizes.randint(1, 2 * case.chunk)
        pieces = {number: rows[begin:end] for number, rows in utterances.items()}
        for number, rows in stream.push_many(pieces, given if begin == 0 else {}).items():
            found[number].append(rows)
        begin = end
    for number, rows in stream.push_many({}, finished=utterances).items():
        found[number].append(rows)

    for number, frames in utterances.items():
        expected = model.compute(
            frames,
            given.get(number),
            frames_per_chunk=len(frames) if case.is_recurrent else case.chunk,
            frame_subsampling_factor=case.subsampling,
            extra_left_context_initial=case.left,
        )
        yield np.concatenate(found[number]), expected


def changing_ivectors(seed: int, case: Case, dtype: type = np.float64) -> Pairs:
    """The outputs of a stream that gets new i-vectors, and of the definition in a precision."""
    rng, sizes = np.random.default_rng([seed, 1]), Random(seed)
    model, period = Model(case.nnet), sizes.choice([None, 1, 2, 3, 5])
    chunk, nnet = 0, model.nnet
    while not chunk or chunk % remove_orphans(nnet).modulus:
        unit = math.lcm(case.subsampling, remove_orphans(nnet).modulus, period or 1)
        chunk = -(-case.chunk // unit) * unit
        step = period or chunk
        nnet = with_period(model.nnet, step)
    context = _context(case, nnet, 12 * chunk, step)
    try:
        stream = model.stream(
            frames_per_chunk=case.chunk,
            frame_subsampling_factor=case.subsampling,
            extra_left_context_initial=case.left,
            ivector_period=period,
        )
    except NotComputableError:
        if context is not None:
            raise
        return
    assert context is not None, "the stream computes what cannot be computed"
    frames = rng.standard_normal((sizes.randint(1, 5 * chunk), DIM), dtype=np.float32)
    given: dict[int, np.ndarray] = {}  # by the first frame that an i-vector holds for
    found, begin = [], 0
    while begin < len(frames):
        end = begin + sizes.randint(1, 2 * chunk)
        if case.has_ivector and (begin == 0 or sizes.random() < 0.6):
            given[begin] = rng.standard_normal(model.ivector_dim, dtype=np.float32)
        found.append(stream.push(frames[begin:end], given.get(begin)))
        begin = end
    found.append(stream.finish())

    def served(start: int) -> np.ndarray:
        """The i-vector of the frames from `start` on."""
        number = max(0, -(-(start + 1 - context[1]) // chunk) - 1)
        read = (number + 1) * chunk - 1 + context[1]  # by the first chunk that needs it
        time = read if period is None else min(start + period - 1, read)
        return given[max((first for first in given if first <= time), default=0)]

    request = request_of_frames(case, context, len(frames), step)
    times = {io.name: io.indexes[:, 1] for io in request.inputs}
    inputs = {"input": frames[times["input"].clip(0, len(frames) - 1)]}
    if case.has_ivector:
        inputs["ivector"] = np.stack([served(start) for start in times["ivector"].tolist()])
    computer = ReferenceComputer(nnet, compile_computation(nnet, request), dtype)
    yield np.concatenate(found), computer.forward(inputs)["output"]


def _context(case: Case, nnet: Nnet, num_frames: int, step: int) -> tuple[int, int] | None:
    """The context of a stream: that of the network, unless it reads i-vectors of other times."""
    for each in (case.nnet, remove_orphans(nnet)):
        try:
            context = compute_context(each)
        except ContextError:
            return None
        if is_computable(nnet, request_of_frames(case, context, num_frames, step)):
            return context
    return None


# ---- the judgement ----


def judged(seed: int) -> Judged:
    """The verdict on a seed."""
    case = case_of(seed)
    kinds = kinds_of(case)
    try:
        with thresholds(seed):
            pairs = [*pairs_of(seed, case)]
    except Nnet3Error as error:
        is_fixed = isinstance(error, CompilationError) and AT_FIXED_TIMES in str(error)
        if is_fixed and "ReplaceIndex" in kinds:
            return Judged("", kinds | {"refused: fixed times"})
        return Judged(str(error), kinds)
    if not pairs:
        kinds.add("refused: cannot be computed with this i-vector period")
    found = [difference_of(*pair) for pair in pairs]
    wrong = [f"differs by {each:.1e}" for each in found if not each <= LARGEST_DIFFERENCE]
    if wrong and math.isfinite(sum(found)) and _is_rounding_large(seed, case):
        return Judged("", kinds | {"too few digits"})
    return Judged("; ".join(wrong), kinds, max(found, default=0.0))


def _is_rounding_large(seed: int, case: Case) -> bool:
    """Whether the definition in float32 differs too much to tell anything."""
    exact, rounded = (
        {str(n): pair[1] for n, pair in enumerate(changing_ivectors(seed, case, dtype))}
        for dtype in (np.float64, np.float32)
    )
    return bool(differences(rounded, exact, TOO_FEW_DIGITS))


def pairs_of(seed: int, case: Case) -> Pairs:
    """Outputs and what is expected, in the ways that say the same for this case.

    A model reads its i-vector for all frames; a stream has none before the first that it needs.
    """
    if seed % 2 == 0 or not case.has_ivector:
        yield from outputs_of_seed(seed, case)
    if seed % 2 or case.has_ivector:
        yield from changing_ivectors(seed, case)


def kinds_of(case: Case) -> set[str]:
    """The kinds of networks and options that a case is of."""
    flags = {
        "i-vector": case.has_ivector,
        "several sequences at a time": case.sequences > 1,
        "fewer outputs than frames": case.subsampling > 1,
    }
    size = case.chunk if case.chunk < 4 else "4 or more"
    return {
        f"frames of a chunk: {size}",
        *reads_in(case.nnet),
        *(name for name, holds in flags.items() if holds),
    }


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="the network is not trained")
    sys.exit(judge_seeds(judged, command_line(__doc__).parse_args()))
