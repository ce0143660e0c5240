"""Models and trainers on random networks have the results of their definition.

`judge_random_models.py` and `judge_random_training.py` judge any number of networks. The seed of a
failure repeats it there: `--first-seed SEED --count 1`.
"""

from functools import cache

import judge_random_training
import pytest
from judge_random_models import judged

AT_THE_TIME_OF_AN_IVECTOR = (125, 250, 317, 418)
"""In chunks of these seeds' networks, some rows read only the i-vector, and others features."""

WITH_JOINED_CHUNKS = 84

WITH_FULL_CHUNKS_AT_THE_ENDS = 178
"""Outputs tell which of the full chunks have the extra context of the first and the last."""

SEEDS = (
    *range(9),
    WITH_JOINED_CHUNKS,
    WITH_FULL_CHUNKS_AT_THE_ENDS,
    *AT_THE_TIME_OF_AN_IVECTOR,
)

verdict = cache(judged)


@pytest.mark.parametrize("seed", SEEDS)
def test_models_cut_utterances_as_is_defined(seed: int) -> None:
    """Chunks, minibatches and threads change no score, whatever the network and the options."""
    assert verdict(seed).problem == ""


def test_the_models_are_of_all_kinds() -> None:
    """Some networks join chunks and some do not; some chunks are the whole, some are refused."""
    kinds = {kind for seed in SEEDS for kind in verdict(seed).kinds}

    assert kinds >= {
        *("chunks joined", "no chunks joined", "chunks are the whole utterance"),
        *("refused: frames at fixed times in several chunks", "i-vector read without ReplaceIndex"),
        "chunks of one length",
        *("outputs that read no features", "partial_minibatch_factor=0"),
    }


@pytest.mark.parametrize("block", range(4))
def test_trainers_make_the_steps_that_are_defined(block: int) -> None:
    """Momentum, backstitch, limits and l2 are the definition's; a checkpoint changes nothing."""
    seeds = range(25 * block, 25 * (block + 1))
    verdicts = {seed: judge_random_training.judged(seed) for seed in seeds}

    assert {seed: each.problem for seed, each in verdicts.items() if each.problem} == {}
    assert sum("judged" in each.kinds for each in verdicts.values()) > 2
