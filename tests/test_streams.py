"""Streams on Kaldi's looped archives, and on random networks of all kinds."""

from random import Random

import looped_networks
import numpy as np
import pytest
from chunks_in_turn import chunks_in_turn
from judge_random_streams import judged
from judged_cases import LOOP, case_of_seed
from judged_seeds import differences
from kaldi_tables import assert_same_archive, read_archive
from nnet3 import load
from nnet3_runtime_reference import ReferenceComputer
from reference_cases import TOOLS_REFERENCE
from test_reference_loops import CASES, case_file, features_of

SHARE = 1e-4
"""Of the tolerance of single precision; both sides compute in float64, by the same formulas."""


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
    assert_same_archive(outputs, expected, 1e-5, is_relative=True)


@pytest.mark.parametrize("seed", range(20))
def test_streams_are_what_a_model_computes(seed: int) -> None:
    """For random networks, streams side by side have the outputs of whole utterances."""
    assert judged(seed).problem == ""


def test_the_networks_are_of_all_kinds() -> None:
    """The cases include states, i-vectors, several sequences, and fewer outputs than inputs."""
    cases = [looped_networks.case_of_seed(seed) for seed in range(20)]

    assert 4 < sum(case.is_recurrent for case in cases) < 16
    assert sum(case.has_ivector for case in cases) > 4
    assert sum(case.sequences > 1 for case in cases) >= 4
    assert sum(case.subsampling > 1 for case in cases) > 4


# ---- chunks with a state, in the reference runtime ----


def test_chunks_with_a_state_are_segments() -> None:
    """With any component types, each round has the outputs of a segment."""
    cases = [case_of_seed(seed) for seed in range(60)]
    loops = [case for case in cases if case.form == LOOP and not case.is_random]
    assert len(loops) >= 10

    for case in loops:
        computer = ReferenceComputer(case.nnet, case.compiled)
        expected = [computer.forward(values) for values in case.inputs()]
        in_turn = chunks_in_turn(case.nnet, case.requests, case.inputs())
        for found, wanted in zip(in_turn, expected, strict=True):
            assert not differences(found, wanted, SHARE), f"seed {case.seed}"
