"""The command line of judges that judge one seed after the other, and how they compare outputs."""

from __future__ import annotations

import argparse
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable

import attrs
import numpy as np

PROGRESS_EVERY = 500


@attrs.frozen
class Judged:
    """The verdict on a seed.

    Attributes:
        problem: What disagrees, on lines; "" if nothing does.
        kinds: What was drawn, and what came of it, to be counted.
        difference: The largest one of an output, where a judge says so; see `difference_of`.
    """

    problem: str
    kinds: Iterable[str]
    difference: float = 0.0


def difference_of(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of outputs, relative to the largest value, or to 1.

    It is infinite for outputs of another shape; NaN where one of them is.
    """
    if found.shape != expected.shape:
        return float("inf")
    scale = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    return float(np.abs(found - expected).max(initial=0.0)) / scale


def judge_seeds(about: str, judge: Callable[[int], Judged]) -> int:
    """Judges the seeds that the command line asks for; prints problems, and counts by kind.

    Args:
        about: What the script does.
        judge: Judges a seed; an error of it is a problem, too.

    Returns:
        The exit status: 1 if anything disagrees.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    kinds: Counter[str] = Counter()
    disagree: list[int] = []
    largest = 0.0
    for number in range(1, arguments.count + 1):
        seed = arguments.first_seed + number - 1
        try:
            judged = judge(seed)
        except Exception:  # a defect, reported like the others
            judged = Judged(traceback.format_exc(limit=-2), ["error"])
        kinds.update(judged.kinds)
        largest = max(largest, judged.difference)
        if judged.problem:
            disagree.append(seed)
            print(f"--first-seed {seed} --count 1: {judged.problem}", flush=True)
        if number % PROGRESS_EVERY == 0 or number == arguments.count:
            print(
                f"{number} seeds from {arguments.first_seed} on, {len(disagree)} disagree",
                flush=True,
            )
    for kind, count in sorted(kinds.items()):
        print(f"{count:7} {kind}")
    if largest:
        print(f"the largest difference is {largest:.1e}")
    print("disagree:", *disagree)
    return 1 if disagree else 0
