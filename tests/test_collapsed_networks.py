"""Random networks give the same outputs before and after collapsing.

`judge_random_collapsing.py` judges any number of networks. The seed of a failure repeats it there.
"""

from collections import Counter

import pytest
from judge_random_collapsing import case_of_seed, judged, kinds_of

SEEDS = range(25)


@pytest.mark.parametrize("seed", SEEDS)
def test_collapsed_is_the_same(seed: int) -> None:
    """With all pairs collapsed, and with some."""
    assert judged(seed).problem == ""


def test_there_is_something_to_collapse() -> None:
    """Components are combined in half of these networks, in some of them three."""
    kinds = Counter(kind for seed in SEEDS for kind in kinds_of(case_of_seed(seed)[0]))

    assert kinds["0 combined components"] <= len(SEEDS) / 2
    assert kinds["3 combined components"]
    assert kinds["name was taken"]
    assert kinds["shared component"]
