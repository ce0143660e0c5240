"""Compares models that nnet3-to-onnx writes with the definition, for any number of random networks.

`python tests/judge_random_onnx.py --count 1000 --first-seed 1000` prints the seeds whose outputs
differ, and counts what was drawn. A seed draws a network (optional terms, fixed times and patterns
over features and i-vectors; all kinds of layers; all component types; pooling over time), the
options of the tool, and an utterance with one i-vector or with new ones as it goes on. A third of
the models takes any number of frames: each is run for several lengths, and a refusal must have a
known reason. The tool writes the model, and the code of examples/digits/recognise_onnx.py, which
knows the file alone, drives it.

The definition cuts the utterance by itself, and runs each chunk, or the requests of a stream one
after the other, in float64 on nnet3-runtime-reference. `Model` must agree, too, where it computes
the same. What the tool refuses must be what cannot be computed, or what `Model` refuses.
"""

from __future__ import annotations

import contextlib
import math
import re
import runpy
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import attrs
import numpy as np
import onnxruntime
from chunk_networks import write_chunk_network
from judge_random_models import (
    WORDS,
    first_with_context,
    in_test_mode,
    network_of_all_kinds,
    reads_ivector,
    words_in,
)
from judged_networks import Source, WidthWriter
from judged_networks import write_network as write_judged_network
from judged_seeds import TOO_FEW_DIGITS, Judged, command_line, differences, judge_seeds
from looped_networks import case_of_seed
from nnet3 import Model
from nnet3_compiler import (
    CompilationError,
    compile_computation,
    compile_segments,
    looped_requests,
    with_ivector_period,
)
from nnet3_compiler.looped import extended_requests
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, Nnet3Error, node_config_lines, write_nnet
from nnet3_descriptors.editing import remove_orphans
from nnet3_graph import NotComputableError, UnboundedComputationError, compute_context
from nnet3_runtime_cuda import RunError
from nnet3_runtime_reference import ReferenceComputer
from nnet3_tools.models.exporting import start_path
from reference_cases import DIGITS_EXAMPLE
from tool_runs import run_tool

MOST_CHUNKS = 24
"""Of a stream; longer ones are judged by their first rows."""

FIRST_CHUNKS = 8
"""Of a stream; if these can be computed, all can."""

REFUSALS = NotComputableError, UnboundedComputationError, CompilationError, RunError
"""Errors of networks that have no outputs, or others in chunks than in whole utterances."""

AT_A_FIXED_TIME = "which would be another frame in each chunk"
"""In the error of `Model.stream` for networks that read a fixed time, as files of a stream may."""

OF_ANY_LENGTH = (
    "the network does not pool over time",
    "the network is recurrent",
    "whose choice depends on the number of frames",
    "which is at no fixed distance",
    "reads a window that moves with the frames",
    "has values at any time",
    "which short utterances may lack",
    "and outputs have all times",
    "cannot be computed at t",
    "reads rows by other rules",
    "has a row at t = 0 alone",
    "which is no StatisticsExtractionComponent",
    "reads no frame",
    "requires no",
    "has no row at t",
    "has none at t",
    "pools over a whole utterance",
)
"""Why a model of any length is refused."""

CHUNKS, STREAM, XVECTOR = "chunks", "stream", "xvector"

Models = list[onnxruntime.InferenceSession]
"""The model of chunks or x-vectors; or the two of a stream."""

DRIVER = runpy.run_path(str(DIGITS_EXAMPLE / "recognise_onnx.py"))
"""The code that users copy."""


@attrs.frozen(kw_only=True)
class Case:
    """A network and the options of the tool.

    Attributes:
        seed: The seed of the values.
        generator: What drew the network.
        nnet: The network, in test mode, without nodes that no output needs.
        frames: --frames; of a model of any length, the frames of the longest utterance.
        step: --frame-subsampling-factor.
        left: --extra-left-context.
        right: --extra-right-context.
        sequences: --sequences.
        mode: CHUNKS, STREAM or XVECTOR: without an option, --stream or --xvector.
        period: Frames for each i-vector of the utterance; 0 for one i-vector.
        any_length: Whether the model takes whole utterances, of any number of frames.
    """

    seed: int
    generator: str
    nnet: Nnet
    frames: int
    step: int
    left: int
    right: int
    sequences: int
    mode: str
    period: int
    any_length: bool

    @property
    def has_ivector(self) -> bool:
        """Whether the network takes i-vectors."""
        return len(self.nnet.input_nodes) > 1

    @property
    def chunk(self) -> int:
        """Frames of a chunk."""
        if self.mode == XVECTOR or self.any_length:
            return self.frames
        unit = math.lcm(self.step, self.nnet.modulus)
        chunk = -(-self.frames // unit) * unit
        with contextlib.suppress(CompilationError):  # what reads fixed times is no stream
            while self.mode == STREAM and (
                chunk % (unit := with_ivector_period(self.nnet, chunk).modulus)
            ):
                chunk = -(-chunk // unit) * unit
        return chunk

    @property
    def options(self) -> list[str]:
        """The options on the command line."""
        return [
            *([] if self.any_length else [f"--frames={self.frames}"]),
            f"--frame-subsampling-factor={self.step}",
            f"--extra-left-context={self.left}",
            f"--extra-right-context={self.right}",
            f"--sequences={self.sequences}",
            *([] if self.mode == CHUNKS else [f"--{self.mode}"]),
        ]


def _optional_terms(seed: int) -> Nnet:
    rng = Random(seed)
    writer = write_chunk_network(
        rng, is_past=rng.randrange(3) == 0, has_ivector=rng.randrange(3) > 0
    )
    return in_test_mode(writer.text(), seed)


def _pooling(seed: int) -> Nnet:
    """A network that pools over time, as those of x-vectors do."""
    rng = Random(seed)
    writer = WidthWriter(rng)
    writer.inputs = ["input-node name=input dim=4", "input-node name=ivector dim=2"]
    last = Source("input", 4, "input")

    def affine(given: str, columns: int) -> Source:
        return writer.add("Affine", f"input-dim={columns} output-dim={rng.randint(3, 6)}", given)

    for _ in range(rng.randint(1, 4)):
        before, after = rng.randint(-3, -1), rng.randint(1, 3)
        name, dim = last.text, last.dim
        match rng.randrange(8):
            case 0 | 1:
                spliced = f"Append(Offset({name}, {before}), Offset({name}, {after}))"
                last = affine(spliced, 2 * dim)
            case 2:
                spliced = f"Append(IfDefined(Offset({name}, {before})), Scale(0.5, {name}))"
                last = affine(spliced, 2 * dim)
            case 3:
                sum_ = f"Sum({name}, IfDefined(Offset({name}, {after})))"
                spliced = f"Append({sum_}, ReplaceIndex(ivector, t, 0), Const(0.5, 1))"
                last = affine(spliced, dim + 3)
            case 4:
                options = f"input-dim={dim} output-dim=5 time-offsets={before},0,{after}"
                last = writer.add("Tdnn", options, name)
            case 5:
                first = affine(name, dim)
                second = affine(first.text, first.dim)
                last = affine(writer.part(second, 1, 2).text, 2)
            case 6:
                options = (
                    f"num-filters-in=1 num-filters-out=2 height-in={dim} height-out={dim} "
                    f"height-offsets=-1,0,1 time-offsets={before},0,{after} required-time-offsets=0"
                )
                last = writer.add("TimeHeightConvolution", options, name)
            case _:
                first = affine(name, dim)
                columns = 2 + 3 + 2 + 4  # key, value, query, context
                options = f"input-dim={first.dim} output-dim={columns}"
                query = writer.add("Affine", options, first.text)
                options = (
                    "num-heads=1 key-dim=2 value-dim=3 num-left-inputs=2 num-right-inputs=1 "
                    f"num-left-inputs-required={rng.randint(0, 2)} num-right-inputs-required=0"
                )
                last = writer.add("RestrictedAttention", options, query.text)
        if rng.randrange(2):
            last = writer.add("RectifiedLinear", f"dim={last.dim}", last.text)
    period, step = rng.choice([(1, 1), (1, 1), (4, 1), (6, 3)])
    squares = rng.choice(["true", "false"])
    options = f"input-period={step} output-period={period} include-variance={squares}"
    sums = writer.add("StatisticsExtraction", f"input-dim={last.dim} {options}", last.text)
    left, right = rng.choice([(0, 10000), (0, 10000), (0, 24), (12, 36)])
    options = (
        f"input-dim={sums.dim} left-context={left} right-context={right // period * period} "
        f"num-log-count-features={rng.choice([0, 2])} input-period={period} "
        f"output-stddevs={squares} variance-floor=0.001"
    )
    pooled = writer.add("StatisticsPooling", options, sums.text)
    last = affine(rng.choice([pooled.text, f"Round({pooled.text}, {period})"]), pooled.dim)
    if rng.randrange(2):
        last = writer.add("LogSoftmax", f"dim={last.dim}", last.text)
    writer.nodes.append(f"output-node name=output input={last.text}")
    return in_test_mode(writer.text(), seed)


def _all_components(seed: int) -> Nnet:
    return in_test_mode(write_judged_network(Random(seed), is_looped=True).text(), seed)


GENERATORS: dict[str, Callable[[int], Nnet]] = {
    "all components": _all_components,
    "all layers": lambda seed: network_of_all_kinds(seed)[0],
    "optional terms": _optional_terms,
    "speech": lambda seed: case_of_seed(seed).nnet,
}


def case_of(seed: int) -> Case:
    """Draws a case, of a network that has outputs at all."""
    rng = Random(seed)
    generator = rng.choice(["all components", "all layers", *["optional terms"] * 2, "speech"])
    nnet = remove_orphans(first_with_context(GENERATORS[generator], seed))
    any_length = rng.randrange(3) == 0
    if any_length and rng.randrange(2):
        generator = "pooling"
        nnet = remove_orphans(_pooling(seed))
    case = Case(
        seed=seed,
        generator=generator,
        nnet=nnet,
        frames=rng.choice([rng.randint(1, 12), rng.randint(1, 12), rng.randint(13, 60)]),
        step=rng.choice([1, 1, 2, 3]),
        left=rng.choice([0, 0, 3]),
        right=rng.choice([0, 0, 2]),
        sequences=rng.choice([0, 0, 0, 1, 2, 3]),
        mode=rng.choice([CHUNKS] * 4 + [STREAM] * 5 + [XVECTOR]),
        period=rng.choice([0, 0, 1, 4, 10]),
        any_length=any_length,
    )
    if not any_length:
        return case
    mode = XVECTOR if generator == "pooling" or rng.randrange(4) == 0 else CHUNKS
    return attrs.evolve(case, mode=mode, step=1, left=0, right=0, period=0)


# ---- the definition ----


@attrs.frozen
class Utterance:
    """An utterance, and the i-vectors given for it.

    Attributes:
        frames: (frames, columns).
        ivectors: (rows, columns), or None.
    """

    frames: np.ndarray
    ivectors: np.ndarray | None

    def window(self, begin: int, end: int) -> np.ndarray:
        """The frames from `begin` to before `end`; those at the edges repeat."""
        return self.frames[np.arange(begin, end).clip(0, len(self.frames) - 1)]

    def ivector(self, frame: int, period: int) -> np.ndarray:
        """The i-vector of a frame, (1, columns)."""
        assert self.ivectors is not None
        row = min(frame // period, len(self.ivectors) - 1) if period else 0
        return self.ivectors[row : row + 1]


def chunk_request(case: Case) -> ComputationRequest:
    """What a chunk takes and gives; its first output is at t = 0."""
    if case.mode == XVECTOR:
        begin, end, last = 0, case.chunk, 0
    else:
        before, after = compute_context(case.nnet)
        last = case.chunk - case.step
        begin, end = -before - case.left, last + 1 + after + case.right
    inputs = [IoSpecification.from_range("input", begin, end)]
    if case.has_ivector:
        inputs.append(IoSpecification.from_range("ivector", 0, 1))
    output = IoSpecification.from_range("output", 0, last + 1, t_step=case.step)
    return ComputationRequest(inputs=inputs, outputs=[output])


def defined_chunks(case: Case, utterance: Utterance, dtype: type) -> np.ndarray:
    """The outputs of an utterance, chunk by chunk, (rows, columns)."""
    request = chunk_request(case)
    computer = ReferenceComputer(case.nnet, compile_computation(case.nnet, request), dtype)
    times = request.inputs[0].indexes[:, 1]
    num_frames, outputs = len(utterance.frames), []
    for begin in range(0, num_frames, case.chunk):
        given = {"input": utterance.window(begin + times[0], begin + times[-1] + 1)}
        if case.has_ivector:
            own = range(begin, min(begin + case.chunk, num_frames), case.step)
            given["ivector"] = utterance.ivector((own[0] + own[-1]) // 2, case.period)
        outputs.append(computer.forward(given)["output"])
    return np.concatenate(outputs)[: -(-num_frames // case.step)]


def stream_requests(case: Case, num_chunks: int) -> tuple[Nnet, tuple[ComputationRequest, ...]]:
    """The network of a stream, with an i-vector for each chunk, and the chunks.

    They have the context of the network, unless one of them needs that of the network of the
    stream.
    """
    nnet = with_ivector_period(case.nnet, case.chunk)
    count = max(num_chunks, FIRST_CHUNKS)
    for with_context in (case.nnet, nnet):
        requests = looped_requests(
            nnet,
            case.chunk,
            frame_subsampling_factor=case.step,
            extra_left_context=case.left,
            extra_right_context=case.right,
            context=compute_context(with_context),
        )
        segments = extended_requests(requests, count)
        with contextlib.suppress(NotComputableError):
            if case.has_ivector:  # else both contexts are the same
                compile_segments(nnet, segments)
            break
    return nnet, segments[:num_chunks]


def defined_stream(
    case: Case, utterance: Utterance, ends: list[int], num_chunks: int, dtype: type
) -> np.ndarray:
    """The outputs of the first chunks of a stream, (rows, columns).

    Args:
        case: The network and the options.
        utterance: The utterance.
        ends: For each call, the number of frames that have come by then. A call takes the i-vector
            of its last frame, for the chunks that take their i-vector in it.
        num_chunks: The number of chunks.
        dtype: Of the computation.
    """
    nnet, requests = stream_requests(case, num_chunks)
    computer = ReferenceComputer(nnet, compile_segments(nnet, requests), dtype)
    outputs = []
    for request in requests:
        given = {}
        for io in request.inputs:
            times = io.indexes[:, 1].tolist()
            if io.name == "input":
                given["input"] = utterance.window(times[0], times[-1] + 1)
            else:
                lasts = [next(end for end in ends if end > time) - 1 for time in times]
                frames = [min(last, len(utterance.frames) - 1) for last in lasts]
                rows = [utterance.ivector(frame, case.period) for frame in frames]
                given["ivector"] = np.concatenate(rows)
        outputs.append(computer.forward(given)["output"])
    return np.concatenate(outputs)[: -(-len(utterance.frames) // case.step)]


# ---- what is judged ----


def models_of(path: Path) -> Models:
    """The models of a file, ready to run; those of a stream are two files."""
    paths = [each for each in (start_path(path), path) if each.exists()]
    return [
        onnxruntime.InferenceSession(each, providers=["CPUExecutionProvider"]) for each in paths
    ]


def size_of(ports: list[Any], name: str) -> int:
    """The rows of an input or output of a model."""
    [rows] = [each.shape[1] for each in ports if each.name == name]
    return int(rows)


def num_frames(case: Case, models: Models) -> int:
    """A length of an utterance: of several chunks, or of a few calls of a stream."""
    if case.mode == XVECTOR or case.any_length:
        return case.frames
    most = 4 * case.chunk
    if case.mode == STREAM:
        start, again = (size_of(model.get_inputs(), "input") for model in models)
        most = min(start + 3 * again, MOST_CHUNKS * case.chunk)
    return Random(case.seed).randint(1, most)


def draw_utterance(case: Case, frames: int) -> Utterance:
    """An utterance of so many frames."""
    values = np.random.default_rng(case.seed)

    def drawn(rows: int, node: str) -> np.ndarray:
        return values.standard_normal((rows, case.nnet.node_dim(node)), dtype=np.float32)

    if not case.has_ivector:
        return Utterance(drawn(frames, "input"), None)
    rows = -(-frames // case.period) if case.period else 1
    return Utterance(drawn(frames, "input"), drawn(rows, "ivector"))


def judged(seed: int) -> Judged:
    """The verdict on a seed."""
    case = case_of(seed)
    kinds = kinds_of(case)
    with tempfile.TemporaryDirectory() as folder:
        network, path = Path(folder, "net.raw"), Path(folder, "net.onnx")
        write_nnet(case.nnet, network)
        done = run_tool("nnet3-to-onnx", network, path, *case.options)
        models = models_of(path)
    problems = list(_log_problems(case, done.stderr)) if not done.returncode else []
    if done.returncode:
        why = "fixed times" if AT_A_FIXED_TIME in done.stderr else "not computable"
        if case.any_length:
            why = next((each for each in OF_ANY_LENGTH if each in done.stderr), "not known")
            problems += [done.stderr] if why == "not known" or _is_plain(case) else []
        else:
            problems += _wrongly_refused(case, done.stderr)
        kinds.add(f"{case.mode}{' of any length' * case.any_length} refused: {why}")
    elif case.any_length:
        problems += _length_problems(case, models, kinds)
    else:
        problems += _output_problems(case, models, kinds)
    text = "\n".join([*problems, *node_config_lines(case.nnet)]) if problems else ""
    return Judged(f"{' '.join(case.options)}\n{text}" if text else "", kinds)


def _is_plain(case: Case) -> bool:
    """Whether a network has nothing that could prevent a model of any length."""
    text = " ".join(node_config_lines(case.nnet))
    types = {component.type for component in case.nnet.components}
    return (
        case.mode == CHUNKS
        and not any(word in text for word in WORDS)
        and not reads_ivector(case.nnet)
        and re.search(r"Offset\(\w+, -?\d+, ", text) is None
        and all(word not in " ".join(types) for word in ("Statistics", "Distribute"))
        and _reads_frames(case)
    )


def _reads_frames(case: Case) -> bool:
    """Whether rows of the output differ; a constant is no function of frames."""
    model = Model(remove_orphans(case.nnet, remove_orphan_inputs=True))
    rows = model.compute(draw_utterance(case, 20).frames)
    return bool((rows != rows[0]).any())


def _length_problems(case: Case, models: Models, kinds: set[str]) -> Iterator[str]:
    """Lines for outputs of a model of any length that differ, for several lengths."""
    about = DRIVER["numbers"](models[0])
    least = max(about["least_frames"] - about["left_context"] - about["right_context"], 1)
    kinds.add(f"{case.mode} of any length")
    if case.mode == XVECTOR and least > 1:
        try:
            compile_computation(case.nnet, chunk_request(attrs.evolve(case, frames=least - 1)))
            yield f"least_frames is {least}, but fewer frames suffice"
        except NotComputableError:
            pass
    for frames in {least, least + 1, least + 2, least + case.frames, least + 4 * case.frames}:
        yield from _output_problems(attrs.evolve(case, frames=frames), models, kinds)


def _log_problems(case: Case, log: str) -> Iterator[str]:
    """A line if the tool rounds without a word, or says so in vain."""
    if case.any_length:
        return
    if (f"Chunks have {case.chunk} frames" in log) != (case.chunk != case.frames):
        yield f"chunks have {case.chunk} frames, the log is {log!r}"


def _output_problems(case: Case, models: Models, kinds: set[str]) -> Iterator[str]:
    """Lines for outputs of the written models that differ."""
    utterance = draw_utterance(case, num_frames(case, models))
    drive = DRIVER["compute_stream" if case.mode == STREAM else "compute"]
    found = drive(*models, utterance.frames, utterance.ivectors, case.period)
    expected = defined(case, utterance, models, np.float64)
    try:
        others = dict(_by_model(case, utterance))
        wanted = {way: expected[: len(rows)] for way, rows in others.items()}
        problems = differences({"the file": found, **others}, {"the file": expected, **wanted})
    except RunError as error:
        if "overflowed" not in str(error):
            raise
        problems = {"Model": str(error)}
    if case.mode == STREAM and len(found) > size_of(models[0].get_outputs(), "output"):
        kinds.add("stream with rounds")
    if problems and _is_rounding_large(case, utterance, models):
        kinds.add("too few digits")
        return
    yield from problems.values()


def _is_rounding_large(case: Case, utterance: Utterance, models: Models) -> bool:
    """Whether the definition in float32 differs too much to tell anything.

    Its rounding errors may cancel for one utterance, so some that hardly differ are tried, too.
    """
    for step in range(3):
        near = attrs.evolve(utterance, frames=utterance.frames * np.float32(1 + step * 2.0**-20))
        exact, rounded = (defined(case, near, models, each) for each in (np.float64, np.float32))
        if differences({"": rounded}, {"": exact}, TOO_FEW_DIGITS):
            return True
    return False


def defined(case: Case, utterance: Utterance, models: Models, dtype: type) -> np.ndarray:
    """The outputs of an utterance by their definition, (rows, columns)."""
    if case.mode != STREAM:
        return defined_chunks(case, utterance, dtype)
    start, again = (size_of(model.get_inputs(), "input") for model in models)
    start -= DRIVER["numbers"](models[0])["left_context"]
    num_chunks = -(-len(utterance.frames) // case.chunk)
    ends = [start + again * number for number in range(num_chunks + 2)]
    return defined_stream(case, utterance, ends, num_chunks, dtype)


def _by_model(case: Case, utterance: Utterance) -> Iterator[tuple[str, np.ndarray]]:
    """What `Model` gives for the same, and in which way; maybe only the first rows."""
    model = Model(case.nnet)
    frames, one = utterance.frames, None
    if case.has_ivector and not case.period:
        one = utterance.ivectors
    if case.mode == CHUNKS:
        online = utterance.ivectors if case.period else None
        whole = -(-len(frames) // case.chunk) * case.chunk  # it would take a shorter last chunk
        rows = model.compute(
            utterance.window(0, whole),
            one,
            online_ivectors=online,
            online_ivector_period=case.period if online is not None else 0,
            frames_per_chunk=case.frames,
            frame_subsampling_factor=case.step,
            extra_left_context=case.left,
            extra_right_context=case.right,
        )
        # The i-vector of the last chunk would be another one.
        full = len(frames) // case.chunk * (case.chunk // case.step)
        yield "Model.compute", rows[: full if case.period else -(-len(frames) // case.step)]
    elif case.mode == STREAM and not case.right and (one is not None or not case.has_ivector):
        try:
            stream = model.stream(
                frames_per_chunk=case.frames,
                frame_subsampling_factor=case.step,
                extra_left_context_initial=case.left,
            )
        except CompilationError as error:
            if AT_A_FIXED_TIME in str(error):
                return
            raise
        first = stream.push(frames, None if one is None else one[0])
        yield "Model.stream", np.concatenate([first, stream.finish()])
    elif case.mode == XVECTOR and not case.has_ivector:
        yield "Model.xvector", model.xvector(frames, min_chunk_size=1)[None]


def _wrongly_refused(case: Case, message: str) -> list[str]:
    """The problem if the tool refuses what can be computed, or says nothing clear."""
    try:
        if case.mode == STREAM:
            Model(case.nnet).stream(
                frames_per_chunk=case.frames, frame_subsampling_factor=case.step
            )
        else:
            compile_computation(case.nnet, chunk_request(case))
            if case.mode == CHUNKS:
                list(_by_model(case, draw_utterance(case, 2 * case.chunk)))
    except REFUSALS:
        return [] if message.splitlines()[-1].startswith("nnet3-to-onnx: ") else [message]
    except Nnet3Error as error:
        return [f"refused: {message}", repr(error)]
    return [f"refused: {message}"]


def kinds_of(case: Case) -> set[str]:
    """What a case has."""
    kinds = {case.generator, case.mode}
    kinds.add(f"subsampling {case.step}")
    kinds.add(f"modulus {case.nnet.modulus}" if case.nnet.modulus < 4 else "modulus 4+")
    if case.chunk != case.frames:
        kinds.add("rounded frames")
    if case.sequences:
        kinds.add("fixed number of sequences")
    if case.has_ivector:
        kinds.add("i-vectors with a period" if case.period else "one i-vector")
    if case.left or case.right:
        kinds.add("extra context")
    return kinds | words_in(case.nnet)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="the network is not trained")
    sys.exit(judge_seeds(judged, command_line(__doc__).parse_args()))
