"""Compares Model with the definition, for any number of random networks, utterances and options.

`python tests/judge_random_models.py --count 1000 --first-seed 1000` prints the seeds whose scores
differ from the definition. A seed draws a network (recurrent or not, with i-vectors or not; every
second network has all kinds of layers and descriptors), utterances of any length, the length of
chunks, and options of the outputs. A network that cannot compute a chunk must be refused.

The definition cuts each utterance by itself, compiles each chunk alone at its own times, and runs
that program in float64 on nnet3-runtime-reference. Model.compute, with one and several threads, and
Model.compute_many, with minibatches, must give the same scores. On any number of threads,
compute_many must give the same bits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import attrs
import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
from network_generator import DIM, LAYERS, OFTEN, NetworkWriter
from nnet3_compiler import compile_computation
from nnet3_descriptors import Nnet, parse_config
from nnet3_descriptors.editing import remove_orphans
from nnet3_graph import (
    ComputationRequest,
    ContextError,
    IoSpecification,
    NotComputableError,
    UnboundedComputationError,
    compute_context,
)
from nnet3_runtime_cuda import BatchOptions, ChunkOptions, Model, ScoreOptions
from nnet3_runtime_reference import ReferenceComputer
from small_thresholds import thresholds
from test_looped_networks import IVECTOR_DIM, add_lookahead, case_of_seed

LARGEST_DIFFERENCE = 1e-5
"""Of a score, relative to the largest one of the utterance, or to 1."""

NOT_COMPUTABLE = NotComputableError, UnboundedComputationError
"""Errors of requests that a network has no outputs for."""


@attrs.frozen(kw_only=True)
class Utterance:
    """An utterance, with its i-vectors.

    Attributes:
        frames: (frames, DIM).
        ivector: (IVECTOR_DIM,) for the whole utterance, or None.
        online: (rows, IVECTOR_DIM) as the utterance went on, or None.
    """

    frames: np.ndarray
    ivector: np.ndarray | None
    online: np.ndarray | None


@attrs.frozen(kw_only=True)
class Case:
    """A network, utterances, and options.

    Attributes:
        nnet: The network, in test mode.
        priors: (DIM,) of the outputs.
        utterances: By key.
        options: Keyword arguments of `Model.compute`.
        threads: Number of threads.
        minibatch_size: Largest number of chunks computed together.
        memory: Mebibytes that `compute_many` may take.
        begins_at_zero: Whether the definition gives the first output of each chunk the time 0, as
            nnet3-compute does. It matters if the network reads fixed times; else it keeps its time.
    """

    nnet: Nnet
    priors: np.ndarray
    utterances: dict[str, Utterance]
    options: dict[str, float]
    threads: int
    minibatch_size: int
    memory: int
    begins_at_zero: bool


@attrs.frozen(kw_only=True)
class Drawn:
    """A network, in test mode, and the frames between two rows of its output."""

    nnet: Nnet
    subsampling: int

    @property
    def has_ivector(self) -> bool:
        """Whether the network takes an i-vector."""
        return len(self.nnet.input_nodes) > 1


def network_of_all_kinds(seed: int) -> Drawn:
    """Draws a network that may read frames at fixed times, or look far ahead."""
    while True:
        rng = Random(seed)
        writer = NetworkWriter(rng, inputs=[f"input-node name=input dim={DIM}"], sources=["input"])
        if rng.randrange(2):
            add_lookahead(writer, "first", rng.randint(0, 2), has_ivector=True)
        for number in range(rng.randint(1, 4)):
            LAYERS[rng.choice([*LAYERS, *OFTEN])](writer, f"layer{number}")
        writer.nodes.append(f"output-node name=output input={writer.sum()}")
        nnet = parse_config(writer.text(), rng=np.random.default_rng(seed))
        try:
            # The model gives statistics to its batch-norms.
            return Drawn(nnet=Model(nnet).nnet, subsampling=rng.choice([1, 1, 3]))
        except ContextError:
            seed += 1 << 32


def case_of(seed: int) -> Case:
    """Draws a case."""
    drawn = network_of_all_kinds(seed) if seed % 2 else case_of_seed(seed)
    rng, values = Random(seed), np.random.default_rng(seed)
    per_chunk = rng.randint(1, 12)
    options: dict[str, float] = {
        "frames_per_chunk": per_chunk,
        "frame_subsampling_factor": drawn.subsampling,
        "extra_left_context": rng.choice([0, 0, 2, 5]),
        "extra_right_context": rng.choice([0, 0, 1, 4]),
        "extra_left_context_initial": rng.choice([-1, 0, 3]),
        "extra_right_context_final": rng.choice([-1, 0, 2]),
        "use_priors": rng.random() < 0.3,
        "acoustic_scale": rng.choice([1.0, 1.0, 0.3, -2.0]),
    }
    if rng.random() < 0.2:
        # Small enough that no exponential overflows, or makes rounding errors larger.
        options |= {"apply_exp": True, "acoustic_scale": 1e-3}
    is_online = drawn.has_ivector and rng.random() < 0.5
    if is_online:
        options["online_ivector_period"] = rng.randint(1, 9)
    utterances = {}
    for number in range(rng.randint(1, 9)):
        length = rng.choice([rng.randint(1, 5), rng.randint(1, 6 * per_chunk), 9 * per_chunk])
        ivector, online = None, None
        if is_online:
            rows = max(1, -(-length // int(options["online_ivector_period"])) - rng.randint(0, 2))
            online = values.standard_normal((rows, IVECTOR_DIM), dtype=np.float32)
        elif drawn.has_ivector:
            ivector = values.standard_normal(IVECTOR_DIM, dtype=np.float32)
        frames = values.standard_normal((length, DIM), dtype=np.float32)
        utterances[f"u{97 * number % 101}"] = Utterance(
            frames=frames, ivector=ivector, online=online
        )
    return Case(
        nnet=drawn.nnet,
        priors=values.dirichlet(np.ones(DIM)),
        utterances=utterances,
        options=options,
        threads=rng.randint(2, 4),
        minibatch_size=rng.choice([1, 3, 4, 6, 8]),
        memory=rng.choice([1, 64, 64]),
        begins_at_zero=bool(seed % 2),
    )


# ---- the definition ----


def defined(case: Case, utterance: Utterance) -> np.ndarray:
    """The scores of an utterance, (rows, DIM), chunk by chunk in float64."""
    given = case.options
    step, frames = int(given["frame_subsampling_factor"]), len(utterance.frames)
    # A chunk begins where the pattern of reading of the nodes that are needed repeats, and at an
    # output.
    unit = int(np.lcm(step, remove_orphans(case.nnet).modulus))
    rows_of_chunk = -(-int(given["frames_per_chunk"]) // unit) * unit // step
    rows = np.arange(0, frames, step)
    outputs = []
    for begin in range(0, len(rows), rows_of_chunk):
        own = rows[begin : begin + rows_of_chunk]
        left, right = given["extra_left_context"], given["extra_right_context"]
        if begin == 0 and given["extra_left_context_initial"] >= 0:
            left = given["extra_left_context_initial"]
        if own[-1] == rows[-1] and given["extra_right_context_final"] >= 0:
            right = given["extra_right_context_final"]
        outputs.append(_outputs_of_chunk(case, utterance, own, int(left), int(right)))
    scores = np.concatenate(outputs)
    if given["use_priors"]:
        scores = scores - np.log(case.priors)
    scores = scores * given["acoustic_scale"]
    return np.exp(scores) if "apply_exp" in given else scores


def _outputs_of_chunk(
    case: Case, utterance: Utterance, rows: np.ndarray, left: int, right: int
) -> np.ndarray:
    """The outputs at the frames `rows`, from the frames around them; the edges repeat."""
    before, after = compute_context(case.nnet)
    first, last = int(rows[0]) - before - left, int(rows[-1]) + after + right
    step = int(case.options["frame_subsampling_factor"])
    inputs = {"input": utterance.frames[_clipped(first, last, len(utterance.frames))]}
    zero = int(rows[0]) if case.begins_at_zero else 0
    requested = [IoSpecification.from_range("input", first - zero, last + 1 - zero)]
    if utterance.ivector is not None:
        inputs["ivector"] = utterance.ivector[None]
    if utterance.online is not None:
        middle = (int(rows[0]) + int(rows[-1])) // 2
        row = middle // int(case.options["online_ivector_period"])
        inputs["ivector"] = utterance.online[min(row, len(utterance.online) - 1)][None]
    if "ivector" in inputs:
        requested.append(IoSpecification.from_range("ivector", 0, 1))
    begin, end = int(rows[0]) - zero, int(rows[-1]) + 1 - zero
    wanted = IoSpecification.from_range("output", begin, end, t_step=step)
    request = ComputationRequest(inputs=requested, outputs=[wanted])
    computer = ReferenceComputer(case.nnet, compile_computation(case.nnet, request))
    return computer.forward(inputs)["output"]


def _clipped(first: int, last: int, frames: int) -> np.ndarray:
    return np.clip(np.arange(first, last + 1), 0, frames - 1)


# ---- what is judged ----


Scores = dict[str, np.ndarray]
"""The scores of all utterances, by key."""


def found(case: Case) -> Iterator[tuple[str, Scores]]:
    """Each way of computing the scores, and its scores."""
    one = Model(case.nnet, priors=case.priors)
    several = Model(case.nnet, priors=case.priors, threads=case.threads)
    yield "compute", _one_by_one(case, one)
    yield f"compute on {case.threads} threads", _one_by_one(case, several)
    utterances = list(case.utterances.values())
    listed = several.compute(
        [each.frames for each in utterances],
        _each(case, "ivector", list),
        online_ivectors=_each(case, "online", list),
        **case.options,
    )
    yield "compute of a list", dict(zip(case.utterances, listed, strict=True))
    for threads in (1, case.threads):
        many = one.compute_many(
            ((key, each.frames) for key, each in case.utterances.items()),
            ivectors=_each(case, "ivector", partial(zip, case.utterances)),
            online_ivectors=_each(case, "online", partial(zip, case.utterances)),
            threads=threads,
            minibatch_size=case.minibatch_size,
            memory=case.memory,
            **case.options,
        )
        yield f"compute_many on {threads} threads", dict(many)


def _one_by_one(case: Case, model: Model) -> Scores:
    return {
        key: model.compute(each.frames, each.ivector, online_ivectors=each.online, **case.options)
        for key, each in case.utterances.items()
    }


def _each(case: Case, name: str, collect: Callable[[list[np.ndarray]], Any]) -> Any:
    """The i-vectors of all utterances of this name, collected; None if there are none."""
    arrays = [getattr(utterance, name) for utterance in case.utterances.values()]
    if arrays[0] is None:
        return None
    collected = collect(arrays)
    return collected if isinstance(collected, list) else dict(collected)


def problems_of_seed(seed: int) -> list[str]:
    """The differences from the definition, and between numbers of threads; empty for none."""
    case = case_of(seed)
    try:
        expected = {key: defined(case, utterance) for key, utterance in case.utterances.items()}
    except NOT_COMPUTABLE:
        return _computed_in_spite(case)
    with thresholds(seed):
        scores_of = dict(found(case))
    problems = []
    for way, scores in scores_of.items():
        if list(scores) != list(expected):
            problems.append(f"{way}: keys {list(scores)}, expected {list(expected)}")
            continue
        for key, rows in expected.items():
            if scores[key].shape != rows.shape:
                problems.append(f"{way}: '{key}' has the shape {scores[key].shape}")
                continue
            scale = max(float(np.abs(rows).max()), 1.0)
            difference = float(np.abs(scores[key] - rows).max()) / scale
            if not difference <= LARGEST_DIFFERENCE:
                problems.append(f"{way}: '{key}' differs by {difference:.1e}")
    by_one, by_several = (scores_of[f"compute_many on {n} threads"] for n in (1, case.threads))
    problems += [
        f"'{key}' has other bits on {case.threads} threads"
        for key in by_one
        if not np.array_equal(by_one[key], by_several[key])
    ]
    return problems


def _computed_in_spite(case: Case) -> list[str]:
    """The problem if the model computes utterances of which a chunk cannot be computed."""
    try:
        _one_by_one(case, Model(case.nnet, priors=case.priors))
    except NOT_COMPUTABLE:
        return []
    return ["compute: computes what cannot be computed"]


def is_joined(case: Case) -> bool:
    """Whether `compute_many` computes several chunks of an utterance at a time."""
    names = {field.name for field in attrs.fields(ChunkOptions)} & set(case.options)
    chunks = ChunkOptions(**{name: case.options[name] for name in names})
    batches = BatchOptions(minibatch_size=case.minibatch_size, memory=case.memory)
    model = Model(case.nnet)
    works = (
        model.compute_work(each.frames, each.ivector, each.online, chunks, ScoreOptions(), batches)
        for each in case.utterances.values()
    )
    return any(run.num_chunks > 1 for work in works for run in work.runs)


def main() -> int:
    """Judges the seeds that the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    disagree = 0
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.count):
        problems = problems_of_seed(seed)
        disagree += bool(problems)
        for problem in problems:
            print(f"seed {seed}: {problem}", flush=True)
    print(
        f"{arguments.count} cases from seed {arguments.first_seed} on, {disagree} disagree with "
        "the definition"
    )
    return 1 if disagree else 0


if __name__ == "__main__":
    sys.exit(main())
