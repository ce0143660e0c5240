"""Streams on Kaldi's looped archives, and on random networks of all kinds."""

from random import Random

import attrs
import numpy as np
import pytest
from judge_random_streams import changing_ivectors, outputs_of_seed
from judged_cases import LOOP, Case, case_of_seed
from kaldi_tables import assert_same_archive, read_archive
from nnet3_compiler import chunks_with_state, compile_computation
from nnet3_compiler.looped import extended_requests
from nnet3_graph import ComputationRequest, IoSpecification
from nnet3_runtime_cuda import load
from nnet3_runtime_reference import ReferenceComputer
from reference_cases import TOOLS_REFERENCE
from test_looped_networks import assert_same
from test_reference_loops import CASES, case_file, features_of

TOLERANCE = 1e-9
"""Tolerance; both sides compute in float64, by the same formulas."""


@pytest.mark.parametrize(("name", "chunk", "subsampling"), CASES)
def test_outputs_are_those_of_kaldi(name: str, chunk: int, subsampling: int) -> None:
    """Utterances in pushes of random sizes have the outputs of Kaldi's looped decoder."""
    model, sizes = load(TOOLS_REFERENCE / f"{name}.raw"), Random(0)
    stream = model.stream(frames_per_chunk=chunk, frame_subsampling_factor=subsampling)
    outputs = {}
    for key, frames in read_archive(features_of(model.nnet)).items():
        parts, begin = [], 0
        while begin < len(frames):
            end = begin + sizes.randint(0, 12)
            parts.append(stream.push(frames[begin:end]))
            begin = end
        outputs[key] = np.concatenate([*parts, stream.finish()])

    expected = read_archive(case_file(name, chunk, subsampling, "ark"))
    scale = max(np.abs(rows).max() for rows in expected.values())
    assert_same_archive(
        {key: rows / scale for key, rows in outputs.items()},
        {key: rows / scale for key, rows in expected.items()},
        1e-5,
    )


@pytest.mark.parametrize("seed", range(20))
def test_streams_are_what_a_model_computes(seed: int) -> None:
    """For random networks, streams side by side have the outputs of whole utterances."""
    for outputs, expected in (*outputs_of_seed(seed), *changing_ivectors(seed)):
        assert_same(outputs, expected)


# ---- chunks with a state, in the reference runtime ----


def of_first_sequence(request: ComputationRequest) -> ComputationRequest:
    """The rows n = 0 of a request."""

    def rows(io: IoSpecification) -> IoSpecification:
        return attrs.evolve(io, indexes=io.indexes[io.indexes[:, 0] == 0])

    return attrs.evolve(
        request,
        inputs=tuple(map(rows, request.inputs)),
        outputs=tuple(map(rows, request.outputs)),
        store_component_stats=False,
    )


def chunk_by_chunk(case: Case) -> list[dict[str, np.ndarray]]:
    """The outputs of each round, for chunks that hand on their state."""
    requests = [of_first_sequence(request) for request in case.requests]
    chunks = chunks_with_state(case.nnet, requests)
    num_sequences = int(case.request.inputs[0].indexes[:, 0].max()) + 1
    came: dict[tuple[str, int, int], np.ndarray] = {}
    state: dict[str, np.ndarray] = {}
    rounds = []
    whole = extended_requests(case.requests, max(case.rounds, 3))
    for number, values in enumerate(case.inputs()):
        for io in whole[number].inputs:
            for (n, t, _), row in zip(io.indexes.tolist(), values[io.name], strict=True):
                came[io.name, n, t] = row
        chunk, start = chunks.chunk(number), number * chunks.shift
        request = chunk.for_sequences(num_sequences)
        computer = ReferenceComputer(chunks.nnet, compile_computation(chunks.nnet, request))
        given = state | {
            io.name: np.array([came[io.name, n, t + start] for n, t, _ in io.indexes.tolist()])
            for io in request.inputs
            if io.name not in state
        }
        outputs = computer.forward(given)
        state = {node: outputs.pop(name) for node, name in chunk.state_outputs}
        rounds.append(outputs)
    return rounds


def test_chunks_with_a_state_are_those_of_a_loop() -> None:
    """With any component types, each round has the outputs of the looped computation."""
    cases = [case_of_seed(seed) for seed in range(60)]
    loops = [case for case in cases if case.form == LOOP and not case.is_random]
    assert len(loops) >= 10

    for case in loops:
        computer = ReferenceComputer(case.nnet, case.compiled)
        expected = [computer.forward(values) for values in case.inputs()]
        for found, wanted in zip(chunk_by_chunk(case), expected, strict=True):
            for node, rows in wanted.items():
                scale = max(1.0, np.abs(rows).max())
                error = np.abs(found[node] - rows).max() / scale
                assert error < TOLERANCE, f"seed {case.seed}, output '{node}': {error}"
