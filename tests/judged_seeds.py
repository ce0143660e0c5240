"""The command line of judges that judge one seed after the other, and how they compare outputs."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import attrs
import numpy as np

os.environ.setdefault("NNET3_CACHE_DIR", "")  # networks that no run sees again

PROGRESS_EVERY = 500

LARGEST_DIFFERENCE = 1e-5
"""Of an output, relative to the largest one, or to 1."""

TOO_FEW_DIGITS = 0.1
"""If the definition in float32 differs by this share of that, nothing is known."""


@attrs.frozen
class Judged:
    """The verdict on a seed.

    Attributes:
        problem: What disagrees, on lines; "" if nothing does.
        kinds: What was drawn, and what came of it, to be counted.
        difference: The largest one of an output, where a judge says so; see `difference_of`.
        is_skipped: Whether nothing is known of this seed.
    """

    problem: str
    kinds: Iterable[str]
    difference: float = 0.0
    is_skipped: bool = False


def difference_of(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of outputs, relative to the largest value, or to 1.

    It is infinite for outputs of another shape; NaN where one of them is.
    """
    if found.shape != expected.shape:
        return float("inf")
    scale = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    return float(np.abs(found - expected).max(initial=0.0)) / scale


def differences(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], share: float = 1.0
) -> dict[str, str]:
    """A line for each output that differs by more than a share of the largest difference."""
    lines = {}
    for name, array in expected.items():
        difference = difference_of(found[name], array)
        if not difference <= share * LARGEST_DIFFERENCE:
            lines[name] = f"'{name}' differs by {difference:.1e}"
    return lines


def command_line(about: str) -> argparse.ArgumentParser:
    """The options of all judges, for a script that does what `about` says."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=int(time.time()))
    parser.add_argument("--processes", type=int, default=1)
    return parser


def judge_seeds(judge: Callable[[int], Judged], arguments: argparse.Namespace) -> int:
    """Judges the seeds that the command line asks for; prints problems, and counts by kind.

    Args:
        judge: Judges a seed; an error of it is a problem, too.
        arguments: What `command_line` has read.

    Returns:
        The exit status: 1 if anything disagrees.
    """
    kinds: Counter[str] = Counter()
    disagree, skipped = [], []
    seconds, largest = 0.0, 0.0
    outcomes = _outcomes(judge, arguments)
    for number, (seed, judged, taken) in enumerate(outcomes, 1):
        kinds.update(judged.kinds)
        seconds += taken
        largest = max(largest, judged.difference)
        if judged.is_skipped:
            skipped.append(seed)
        if judged.problem:
            disagree.append(seed)
            print(f"--first-seed {seed} --count 1: {judged.problem}", flush=True)
        if number % PROGRESS_EVERY == 0 or number == arguments.count:
            print(
                f"{number} seeds from {arguments.first_seed} on, {len(disagree)} disagree, "
                f"{len(skipped)} skipped, {1e3 * seconds / number:.0f} ms each",
                flush=True,
            )
    for kind, count in sorted(kinds.items()):
        print(f"{count:7} {kind}")
    if largest:
        print(f"the largest difference is {largest:.1e}")
    print("skipped:", *skipped)
    print("disagree:", *disagree)
    return 1 if disagree else 0


def _outcomes(
    judge: Callable[[int], Judged], arguments: argparse.Namespace
) -> Iterator[tuple[int, Judged, float]]:
    """Each seed with its verdict, and the seconds of processor time for it."""
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.count)
    outcome = partial(_outcome, judge)
    if arguments.processes == 1:
        yield from map(outcome, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes, maxtasksperchild=5000) as pool:
        yield from pool.imap_unordered(outcome, seeds, chunksize=20)


def _outcome(judge: Callable[[int], Judged], seed: int) -> tuple[int, Judged, float]:
    start = time.process_time()
    try:
        judged = judge(seed)
    except Exception:  # a defect, reported like the others
        judged = Judged(traceback.format_exc(), ["error"])
    return seed, judged, time.process_time() - start
