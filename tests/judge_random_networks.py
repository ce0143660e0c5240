"""Judges any number of random networks: see `judging`.

`python tests/judge_random_networks.py --count 100000 --first-seed 10000000 --processes 2` prints
each disagreement with the command that repeats it, and at the end their number. With
`--first-seed N --count 1` it judges one network again. With `--device cuda` it judges a CUDA
device, with `--device host` the kernels of the CUDA runtime, built for the processor, and with
`--device strict` also every access of theirs to memory. With `--precision fp32x3` the products of
these two are those of split factors.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from functools import partial

import attrs
import package_tests  # noqa: F401  the helpers of the packages
import threadpoolctl
from emulated_device import HostPlatform
from judged_cases import case_of_seed
from judging import BF16, FP32, FP64, Device, judge
from nnet3_runtime_cuda.cpu import bf16, products

PROGRESS_EVERY = 1000

HOST, STRICT = "host", "strict"
FP32X3 = "fp32x3"


@attrs.frozen
class Outcome:
    """The verdict on the case of a seed.

    Attributes:
        kinds: The drawn kinds; see `judged_cases.Case`.
        problem: The results that disagree, with the network; "" if all agree.
        is_skipped: Whether nothing is known of this case; see `judging.Verdict`.
        seconds: Processor time of this process.
    """

    seed: int
    kinds: frozenset[str]
    problem: str
    is_skipped: bool
    seconds: float


@functools.cache
def opened(device: str, *, split: bool) -> Device:
    """The device of a name; "host" and "strict" are the processor in the place of a CUDA device."""
    if device in (HOST, STRICT):
        return HostPlatform(strict=device == STRICT, split=split)
    return device


def outcome_of(seed: int, precision: str = FP32, device: str = "cpu") -> Outcome:
    """Judges the case of a seed; any error is part of the verdict."""
    start, config, kinds = time.process_time(), "", frozenset[str]()
    problem, is_skipped = "", False
    try:
        case = case_of_seed(seed)
        config, kinds = case.config, case.kinds | {case.form}
        split = precision == FP32X3  # as exact as FP32, and judged like it
        verdict = judge(case, FP32 if split else precision, opened(device, split=split))
        problem, is_skipped = verdict.problem, verdict.is_skipped
        if problem:
            problem += f"\n{case.options}"
    except Exception:  # a defect, reported like the others
        problem = traceback.format_exc()
    if problem:
        problem = f"seed {seed}:\n{problem}\n{config}\n"
    return Outcome(seed, kinds, problem, is_skipped, time.process_time() - start)


def outcomes(
    first: int, count: int, processes: int, precision: str, device: str
) -> Iterator[Outcome]:
    """The outcomes of `count` seeds from `first` on."""
    seeds = range(first, first + count)
    outcome = partial(outcome_of, precision=precision, device=device)
    if processes == 1:
        yield from map(outcome, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, maxtasksperchild=5000) as pool:
        yield from pool.imap_unordered(outcome, seeds, chunksize=20)


def main() -> int:
    """Judges the networks that the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=int(time.time()))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--precision", choices=[FP32, FP64, BF16, FP32X3], default=FP32)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:<number>, host, strict")
    arguments = parser.parse_args()
    if arguments.precision == FP32X3 and arguments.device not in (HOST, STRICT):
        parser.error("--precision=fp32x3 needs --device=host or --device=strict")
    if arguments.precision == BF16 and bf16.missing():
        print(f"bf16 needs {bf16.missing()}: nothing is judged")
        return 0
    print(f"products: {products.library_name()}; {threadpoolctl.threadpool_info()}")
    print(f"{arguments.count} networks from seed {arguments.first_seed} on", flush=True)
    kinds: Counter[str] = Counter()
    disagreements, skipped, seconds = [], [], 0.0
    found = outcomes(
        arguments.first_seed,
        arguments.count,
        arguments.processes,
        arguments.precision,
        arguments.device,
    )
    for number, outcome in zip(itertools.count(1), found, strict=False):
        kinds.update(outcome.kinds)
        seconds += outcome.seconds
        if outcome.is_skipped:
            skipped.append(outcome.seed)
        if outcome.problem:
            disagreements.append(outcome.seed)
            print(outcome.problem, flush=True)
        if number % PROGRESS_EVERY == 0 or number == arguments.count:
            print(
                f"{number} networks, {len(disagreements)} disagree, {len(skipped)} skipped "
                f"({len(skipped) / number:.1%}), {1e3 * seconds / number:.0f} ms each",
                flush=True,
            )
    print("with:", ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    print("skipped:", *skipped)
    print("disagree:", *disagreements)
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
