"""Models and trainers on random networks have the results of their definition.

`judge_random_models.py` and `judge_random_training.py` judge any number of networks. The seed of a
failure repeats it there: `--first-seed SEED --count 1`.
"""

import pytest
from judge_random_models import case_of, is_joined, problems_of_seed
from judge_random_training import problem_of_seed

ENDLESS_IN_A_LARGER_CHUNK = 61543
"""A recurrence of this seed's network ends in a chunk, and has no end in four chunks as one."""


@pytest.mark.parametrize("seed", [*range(12), ENDLESS_IN_A_LARGER_CHUNK])
def test_models_cut_utterances_as_is_defined(seed: int) -> None:
    """Chunks, minibatches and threads change no score, whatever the network and the options."""
    assert problems_of_seed(seed) == []


def test_some_models_join_chunks() -> None:
    """Several chunks in a row are one run for some of these networks, and not for others."""
    assert 2 <= sum(is_joined(case_of(seed)) for seed in range(12)) <= 10


@pytest.mark.parametrize("block", range(4))
def test_trainers_make_the_steps_that_are_defined(block: int) -> None:
    """Momentum, backstitch, limits and l2 are the definition's; a checkpoint changes nothing."""
    seeds = range(25 * block, 25 * (block + 1))
    problems = {seed: problem_of_seed(seed) for seed in seeds}

    assert {seed: problem for seed, problem in problems.items() if problem} == {}
    assert sum(problem is not None for problem in problems.values()) > 2
