"""Streams on Kaldi's looped archives, and on random networks of all kinds."""

import looped_networks
import pytest
from chunks_in_turn import chunks_in_turn
from judge_random_streams import judged
from judged_cases import LOOP, case_of_seed
from judged_seeds import differences
from nnet3_runtime_reference import ReferenceComputer

WHERE_IVECTORS_ARE_TAKEN = 25, 89
"""Outputs of these seeds tell a frame earlier, and an i-vector that is taken once more."""

SHARE = 1e-4
"""Of the tolerance of single precision; both sides compute in float64, by the same formulas."""


@pytest.mark.parametrize("seed", [*range(20), *WHERE_IVECTORS_ARE_TAKEN])
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
