"""Compares Model with the definition, for any number of random networks, utterances and options.

`python tests/judge_random_models.py --count 1000 --first-seed 1000` prints the seeds whose scores
differ from the definition, and how many cases were of each kind. A seed draws a network (recurrent
or not, with i-vectors or not; every fourth has all kinds of layers and descriptors, every second
reads inputs of every kind through optional terms and at fixed times), utterances of any length, the
length of chunks, and options of minibatches and outputs.

The definition (`defined_chunks.py`) runs each chunk alone. Model.compute, with one and several
threads, and Model.compute_many, with minibatches, must give the same scores; so must the queue that
nnet3-compute-batch fills, with its options. On any number of threads, the bits are the same.
Networks without optional terms must give what the whole utterance gives. What cannot be computed
must be refused, and so must an utterance of several chunks if their outputs depend on the time.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any
from unittest import mock

import attrs
import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
from chunk_networks import IVECTOR, OPTIONAL, features_in, write_chunk_network
from defined_chunks import NOT_COMPUTABLE, ChunkDefinition, Utterance
from judged_seeds import Judged, command_line, differences, judge_seeds
from looped_networks import add_lookahead, case_of_seed
from network_generator import DIM, LAYERS, OFTEN, NetworkWriter
from nnet3 import BatchOptions, ChunkOptions, Model, ScoreOptions, chunk_work
from nnet3.batches import larger_chunks, minibatches
from nnet3_descriptors import Nnet, node_config_lines, parse_config
from nnet3_graph import ContextError
from nnet3_runtime_cuda import RunError
from small_thresholds import thresholds

WORDS = ("Failover", "IfDefined", "Round", "ReplaceIndex", "Switch")
"""The ways of reading that may depend on the time, or on which rows there are."""

AT_FIXED_TIMES = "which would be another frame in each chunk: expected an utterance of one chunk"
"""In the error of an utterance that is cut though its network reads frames at fixed times."""


@attrs.frozen(kw_only=True)
class Case:
    """A network, utterances, and options.

    Attributes:
        definition: What the chunks are: the network, and the options of `Model.compute`.
        priors: (DIM,) of the outputs.
        utterances: By key.
        threads: Number of threads.
        batches: The options of minibatches; `compute_many` takes two of them.
        joined: The number of chunks in a row that may be joined.
        is_large: Whether the network is computed as a large one: last chunks and the last
            minibatches are not all full ones.
    """

    definition: ChunkDefinition
    priors: np.ndarray
    utterances: dict[str, Utterance]
    threads: int
    batches: BatchOptions
    joined: int
    is_large: bool

    @property
    def nnet(self) -> Nnet:
        """The network, in test mode."""
        return self.definition.nnet

    @property
    def options(self) -> dict[str, float]:
        """Keyword arguments of `Model.compute`."""
        return self.definition.options


def in_test_mode(config: str, seed: int) -> Nnet:
    """A network with random parameters; the model gives statistics to its batch-norms."""
    return Model(parse_config(config, rng=np.random.default_rng(seed))).nnet


Drawn = tuple[Nnet, int]
"""A network, in test mode, and the frames between two rows of its output."""


def network_of_all_kinds(seed: int) -> Drawn:
    """Draws a network that may read frames at fixed times, or look far ahead."""
    rng = Random(seed)
    writer = NetworkWriter(rng, inputs=[f"input-node name=input dim={DIM}"], sources=["input"])
    if rng.randrange(2):
        add_lookahead(writer, "first", rng.randint(0, 2), has_ivector=True)
    for number in range(rng.randint(1, 4)):
        LAYERS[rng.choice([*LAYERS, *OFTEN])](writer, f"layer{number}")
    writer.nodes.append(f"output-node name=output input={writer.sum()}")
    return in_test_mode(writer.text(), seed), rng.choice([1, 1, 3])


def network_for_chunks(seed: int) -> Drawn:
    """Draws a network that reads inputs of every kind, in every way."""
    rng = Random(seed)
    writer = write_chunk_network(rng, is_past=False, has_ivector=rng.randrange(4) > 0)
    return in_test_mode(writer.text(), seed), rng.choice([1, 1, 1, 2, 3])


def first_with_context(draw: Callable[[int], Any], seed: int) -> Any:
    """The first network of a seed that has a context."""
    while True:
        try:
            return draw(seed)
        except ContextError:
            seed += 1 << 32


def case_of(seed: int) -> Case:
    """Draws a case."""
    if seed % 4 == 0:
        spoken = case_of_seed(seed)
        nnet, subsampling = spoken.nnet, spoken.subsampling
    else:
        draw = network_of_all_kinds if seed % 4 == 3 else network_for_chunks
        nnet, subsampling = first_with_context(draw, seed)
    rng, values = Random(seed), np.random.default_rng(seed)
    per_chunk = rng.choice([rng.randint(1, 3), rng.randint(1, 12)])
    options: dict[str, float] = {
        "frames_per_chunk": per_chunk,
        "frame_subsampling_factor": subsampling,
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
    dims = {node.name: node.dim for node in nnet.input_nodes}
    is_online = "ivector" in dims and rng.random() < 0.5
    if is_online:
        options["online_ivector_period"] = rng.randint(1, 9)
    utterances = {}
    for number in range(rng.randint(1, 9)):
        length = rng.choice([rng.randint(1, 5), rng.randint(1, 6 * per_chunk), 9 * per_chunk])
        ivector, online = None, None
        if is_online:
            rows = max(1, -(-length // int(options["online_ivector_period"])) - rng.randint(0, 2))
            online = values.standard_normal((rows, dims["ivector"]), dtype=np.float32)
        elif "ivector" in dims:
            ivector = values.standard_normal(dims["ivector"], dtype=np.float32)
        frames = values.standard_normal((length, DIM), dtype=np.float32)
        utterances[f"u{97 * number % 101}"] = Utterance(
            frames=frames, ivector=ivector, online=online
        )
    return Case(
        definition=ChunkDefinition(nnet=nnet, options=options, begins_at_zero=seed % 4 > 0),
        priors=values.dirichlet(np.ones(DIM)),
        utterances=utterances,
        threads=rng.randint(2, 4),
        batches=BatchOptions(
            minibatch_size=rng.choice([1, 4, 6, 8, 8, 128]),
            edge_minibatch_size=rng.choice([None, 1, 2, 5, 32]),
            partial_minibatch_factor=rng.choice([0.0, 0.5, 0.5, 0.3, 0.9]),
            ensure_exact_final_context=rng.random() < 0.7,
            memory=rng.choice([1, 64, 64]),
        ),
        joined=rng.choice([2, 2, 3, 4, 4]),
        is_large=rng.random() < 0.7,
    )


# ---- what is judged ----


Scores = dict[str, np.ndarray]
"""The scores of all utterances, by key."""


def ways(case: Case) -> Iterator[tuple[str, Callable[[], Scores]]]:
    """Each way of computing the scores of all utterances."""
    one = Model(case.nnet, priors=case.priors)
    several = Model(case.nnet, priors=case.priors, threads=case.threads)
    yield "compute", partial(_one_by_one, case, one)
    yield f"compute on {case.threads} threads", partial(_one_by_one, case, several)
    yield "compute of a list", partial(_listed, case, several)
    for threads in (1, case.threads):
        yield f"compute_many on {threads} threads", partial(_many, case, one, threads)
    for threads in (1, case.threads):
        yield f"{BATCHES} on {threads} threads", partial(_in_batches, case, one, threads)


BATCHES = "batches with all options"
"""The way whose last chunks begin earlier if the options say so."""


def _one_by_one(case: Case, model: Model) -> Scores:
    return {
        key: model.compute(each.frames, each.ivector, online_ivectors=each.online, **case.options)
        for key, each in case.utterances.items()
    }


def _listed(case: Case, model: Model) -> Scores:
    listed = model.compute(
        [each.frames for each in case.utterances.values()],
        _each(case, "ivector", list),
        online_ivectors=_each(case, "online", list),
        **case.options,
    )
    return dict(zip(case.utterances, listed, strict=True))


@contextmanager
def _thresholds(case: Case) -> Iterator[None]:
    settings = [(chunk_work, "CHUNKS_JOINED", case.joined)]
    if case.is_large:
        settings += [
            (larger_chunks, "MOST_PRODUCTS_IN_VAIN", 0),
            (minibatches, "SMALL_MINIBATCH", 0),
        ]
    with ExitStack() as stack:
        for module, name, value in settings:
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def _many(case: Case, model: Model, threads: int) -> Scores:
    with _thresholds(case):
        return dict(
            model.compute_many(
                ((key, each.frames) for key, each in case.utterances.items()),
                ivectors=_each(case, "ivector", partial(zip, case.utterances)),
                online_ivectors=_each(case, "online", partial(zip, case.utterances)),
                threads=threads,
                minibatch_size=case.batches.minibatch_size,
                memory=case.batches.memory,
                **case.options,
            )
        )


def _in_batches(case: Case, model: Model, threads: int) -> Scores:
    step, scores = int(case.options["frame_subsampling_factor"]), {}
    with _thresholds(case), model.utterance_queue(threads, step, case.batches) as queue:
        for (key, each), work in zip(case.utterances.items(), works(case, model), strict=True):
            queue.add(key, len(each.frames), work)
        queue.flush()
        while queue:
            scores[queue.oldest.key] = queue.next_result()
            queue.remove_oldest()
    return scores


def works(case: Case, model: Model) -> list[Any]:
    """The work of each utterance, in runs that may share minibatches."""
    chunks, scores = (
        kind(
            **{
                field.name: case.options[field.name]
                for field in attrs.fields(kind)
                if field.name in case.options
            }
        )
        for kind in (ChunkOptions, ScoreOptions)
    )
    with _thresholds(case):
        return [
            model.compute_work(each.frames, each.ivector, each.online, chunks, scores, case.batches)
            for each in case.utterances.values()
        ]


def _each(case: Case, name: str, collect: Callable[[list[np.ndarray]], Any]) -> Any:
    """The i-vectors of all utterances of this name, collected; None if there are none."""
    arrays = [getattr(utterance, name) for utterance in case.utterances.values()]
    if arrays[0] is None:
        return None
    collected = collect(arrays)
    return collected if isinstance(collected, list) else dict(collected)


# ---- the judgement ----


def judged(seed: int) -> Judged:
    """The verdict on a seed."""
    case = case_of(seed)
    with thresholds(seed):
        problems, kinds = _judged(case)
    return Judged("\n".join(problems), kinds | kinds_of(case))


def _judged(case: Case) -> tuple[list[str], set[str]]:
    """What disagrees in each way of computing a case, and what came of it."""
    problems: list[str] = []
    kinds: set[str] = set()
    exact = of_one_length = _defined(case, is_exact=True)
    if not case.batches.ensure_exact_final_context:
        of_one_length = _defined(case, is_exact=False)
    cut = {
        key: utterance
        for key, utterance in case.utterances.items()
        if len(list(case.definition.chunks(utterance))) > 1
    }
    may_refuse = bool(cut) and "ReplaceIndex" in reads_of(case.nnet)
    must_refuse = (
        may_refuse and exact is not None and any(map(case.definition.depends_on_time, cut.values()))
    )
    scores_of: dict[str, Scores] = {}
    refused = []
    for way, compute in ways(case):
        expected = of_one_length if way.startswith(BATCHES) else exact
        is_finite = expected is None or all(map(_is_single, expected.values()))
        try:
            found = scores_of[way] = compute()
        except (RunError, *NOT_COMPUTABLE) as error:
            if may_refuse and AT_FIXED_TIMES in str(error):
                refused.append(way)
            elif not is_finite and "overflowed" in str(error):
                kinds.add("refused: the exponential of an output overflows")
            elif expected is not None or not isinstance(error.__cause__ or error, NOT_COMPUTABLE):
                problems.append(f"{way}: {error}")
            continue
        if expected is None or must_refuse or not is_finite:
            reason = "a chunk cannot be computed" if expected is None else "a frame's time is fixed"
            reason = reason if is_finite else "an exponential overflows"
            problems.append(f"{way}: computes though {reason}")
            continue
        problems += [f"{way}: {problem}" for problem in differences(found, expected).values()]
    if refused:
        kinds.add("refused: frames at fixed times in several chunks")
        if scores_of:
            problems.append(f"{refused} refuse fixed times, {[*scores_of]} do not")
        rest = {key: each for key, each in case.utterances.items() if key not in cut}
        if rest:
            problems += _judged(attrs.evolve(case, utterances=rest))[0]
    elif exact is None:
        kinds.add("refused: a chunk cannot be computed")
    elif is_plain(case):
        computed = {key: case.definition.whole(utterance) for key, utterance in cut.items()}
        wholes = {
            key: case.definition.scores(whole, case.priors)
            for key, whole in computed.items()
            if whole is not None
        }
        if wholes:
            kinds.add("chunks are the whole utterance")
        finite = {key: whole for key, whole in wholes.items() if _is_single(exact[key])}
        problems += [
            f"the chunks of {problem} from the whole"
            for problem in differences(exact, finite).values()
        ]
    if scores_of:
        kinds |= _kinds_of_runs(case)
        problems += _other_bits(case, scores_of)
    return problems, kinds


def _defined(case: Case, *, is_exact: bool) -> Scores | None:
    """The scores by their definition; None if a chunk cannot be computed."""
    try:
        return {
            key: case.definition.scores(
                case.definition.outputs(utterance, is_exact=is_exact), case.priors
            )
            for key, utterance in case.utterances.items()
        }
    except NOT_COMPUTABLE:
        return None


def _is_single(scores: np.ndarray) -> bool:
    """Whether all scores are finite in single precision."""
    return bool((np.abs(scores) <= np.finfo(np.float32).max).all())


def _other_bits(case: Case, scores_of: Mapping[str, Scores]) -> list[str]:
    """The utterances whose bits depend on the number of threads."""
    problems = []
    for way in ("compute_many", BATCHES):
        by_one, by_several = (scores_of.get(f"{way} on {n} threads") for n in (1, case.threads))
        if by_one is not None and by_several is not None:
            problems += [
                f"{way}: '{key}' has other bits on {case.threads} threads"
                for key in by_one
                if not np.array_equal(by_one[key], by_several[key])
            ]
    return problems


# ---- kinds of cases ----


def reads_of(nnet: Nnet) -> str:
    """The nodes of a network but for inputs, as config lines, without usual reads of i-vectors."""
    lines = (line for line in node_config_lines(nnet) if not line.startswith("input-node"))
    return "\n".join(lines).replace(IVECTOR, "")


def is_plain(case: Case) -> bool:
    """Whether each output reads a fixed number of frames, and one i-vector for all of them."""
    reads = reads_of(case.nnet)
    types = [type(component).__name__ for component in case.nnet.components]
    is_online = "online_ivector_period" in case.options
    return not (is_online or reads_ivector(case.nnet)) and not any(
        word in each for word in OPTIONAL for each in (reads, *types)
    )


def reads_ivector(nnet: Nnet) -> bool:
    """Whether an i-vector is read at its own time."""
    return re.search(r"\bivector\b", reads_of(nnet)) is not None


def words_in(nnet: Nnet) -> set[str]:
    """The ways of reading that a network has, but for the usual one of i-vectors."""
    return {word for word in WORDS if f"{word}(" in reads_of(nnet)}


def reads_in(nnet: Nnet) -> set[str]:
    """The kinds of reading that a network has; see `words_in`."""
    flags = {
        "i-vector read without ReplaceIndex": reads_ivector(nnet),
        "outputs that read no features": "output" not in features_in(nnet),
    }
    return {*words_in(nnet), *(name for name, holds in flags.items() if holds)}


def kinds_of(case: Case) -> set[str]:
    """The kinds of networks, inputs and options that a case is of."""
    batches, options = case.batches, case.options
    utterance = next(iter(case.utterances.values()))
    of_ivector = "none" if utterance.ivector is None else "one for all"
    if utterance.online is not None:
        of_ivector = "with a period"
    rows = case.definition.rows_of_chunk
    has_edges = options["extra_left_context_initial"] >= 0 or (
        options["extra_right_context_final"] >= 0
    )
    flags = {
        "edge chunks with another minibatch size": has_edges and batches.edge_minibatch_size,
        "partial_minibatch_factor=0": batches.partial_minibatch_factor == 0,
        "chunks of one length": not batches.ensure_exact_final_context,
        "computed as a large network": case.is_large,
    }
    return {
        f"i-vector: {of_ivector}",
        f"rows of a chunk: {rows if rows < 4 else '4 or more'}",
        *reads_in(case.nnet),
        *(name for name, holds in flags.items() if holds),
    }


def _kinds_of_runs(case: Case) -> set[str]:
    """How chunks become runs."""
    try:
        runs = [run for work in works(case, Model(case.nnet)) for run in work.runs]
    except (RunError, *NOT_COMPUTABLE):
        return set()
    are_joined = any(run.num_chunks > 1 for run in runs)
    return {"chunks joined" if are_joined else "no chunks joined"}


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="the network is not trained")
    sys.exit(judge_seeds(judged, command_line(__doc__).parse_args()))
