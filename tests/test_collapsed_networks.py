"""Random networks give the same outputs before and after the network passes.

`judge_random_collapsing.py` judges any number of networks. The seed of a failure repeats it there.
"""

from collections import Counter

import pytest
from judge_random_collapsing import case_of_seed, judged, kinds_of

SEEDS = range(35, 60)


@pytest.mark.parametrize("seed", SEEDS)
def test_collapsed_is_the_same(seed: int) -> None:
    """With all pairs collapsed, with some, and after the other passes."""
    assert judged(seed).problem == ""


def test_there_is_something_to_change() -> None:
    """Components are combined in half of these networks, in some of them three; passes apply."""
    kinds = Counter(kind for seed in SEEDS for kind in kinds_of(case_of_seed(seed)[0]))

    assert kinds["0 combined components"] <= len(SEEDS) / 2
    assert kinds["3 combined components"]
    assert kinds["name was taken"]
    assert kinds["shared component"]
    assert min(kinds[name] for name in ("input split", "columns split", "affine to TDNN")) > 1
