"""Compares streams of any number of random networks with whole utterances.

`python tests/judge_random_streams.py --count 1000 --first-seed 1000` prints the streams that differ
by more than 1e-5 of the largest value, and the largest difference. A seed draws a network
(recurrent or not, with i-vectors or not), three utterances side by side, pushes of any sizes, and
options. Networks with i-vectors also get new ones while frames come: the definition reads off which
one serves each frame, and runs the whole utterance in float64 on nnet3-runtime-reference.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from random import Random

import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
from nnet3_compiler import compile_computation, with_ivector_period
from nnet3_graph import ComputationRequest, IoSpecification
from nnet3_runtime_cuda import Model
from nnet3_runtime_reference import ReferenceComputer
from small_thresholds import thresholds
from test_looped_networks import DIM, IVECTOR_DIM, case_of_seed

LARGEST_DIFFERENCE = 1e-5


def outputs_of_seed(seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each utterance, the outputs (rows, dim) of a stream and of the model at once."""
    case, rng, sizes = case_of_seed(seed), np.random.default_rng(seed), Random(seed)
    model = Model(case.nnet)
    stream = model.stream(
        frames_per_chunk=case.chunk,
        frame_subsampling_factor=case.subsampling,
        extra_left_context_initial=case.left,
        sequences=case.sequences,
    )
    lengths = [sizes.randint(1, 5 * case.chunk) for _ in range(3)]
    utterances = {
        number: rng.standard_normal((length, DIM), dtype=np.float32)
        for number, length in enumerate(lengths)
    }
    ivectors = rng.standard_normal((3, IVECTOR_DIM), dtype=np.float32)
    given = dict(enumerate(ivectors)) if case.has_ivector else {}
    found: dict[int, list[np.ndarray]] = {number: [] for number in utterances}
    begin = 0
    while begin < max(lengths):
        end = begin + sizes.randint(1, 2 * case.chunk)
        pieces = {number: rows[begin:end] for number, rows in utterances.items()}
        for number, rows in stream.push_many(pieces, given if begin == 0 else {}).items():
            found[number].append(rows)
        begin = end
    for number, rows in stream.push_many({}, finished=utterances).items():
        found[number].append(rows)

    for number, frames in utterances.items():
        expected = model.compute(
            frames,
            given.get(number),
            frames_per_chunk=len(frames) if case.is_recurrent else case.chunk,
            frame_subsampling_factor=case.subsampling,
            extra_left_context_initial=case.left,
        )
        yield np.concatenate(found[number]), expected


def changing_ivectors(seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The outputs of a stream that gets new i-vectors, and of the definition; for some seeds."""
    case, rng, sizes = case_of_seed(seed), np.random.default_rng([seed, 1]), Random(seed)
    if not case.has_ivector:
        return
    model, period = Model(case.nnet), sizes.choice([None, 1, 2, 3, 5])
    unit = math.lcm(case.subsampling, model.modulus, period or 1)
    chunk = -(-case.chunk // unit) * unit
    stream = model.stream(
        frames_per_chunk=case.chunk,
        frame_subsampling_factor=case.subsampling,
        extra_left_context_initial=case.left,
        ivector_period=period,
    )
    frames = rng.standard_normal((sizes.randint(1, 5 * chunk), DIM), dtype=np.float32)
    given: dict[int, np.ndarray] = {}  # by the first frame that an i-vector holds for
    found, begin = [], 0
    while begin < len(frames):
        end = begin + sizes.randint(1, 2 * chunk)
        if begin == 0 or sizes.random() < 0.6:
            given[begin] = rng.standard_normal(IVECTOR_DIM, dtype=np.float32)
        found.append(stream.push(frames[begin:end], given.get(begin)))
        begin = end
    found.append(stream.finish())

    def served(start: int) -> np.ndarray:
        """The i-vector of the frames from `start` on."""
        number = max(0, -(-(start + 1 - model.right_context) // chunk) - 1)
        read = (number + 1) * chunk - 1 + model.right_context  # by the first chunk that needs it
        time = read if period is None else min(start + period - 1, read)
        return given[max((first for first in given if first <= time), default=0)]

    first = -model.left_context - case.left
    last = len(frames) - 1 + model.right_context
    step = period or chunk
    starts = range(first // step * step, last + 1, step)
    request = ComputationRequest(
        inputs=[
            IoSpecification.from_range("input", first, last + 1),
            IoSpecification.from_range("ivector", starts.start, starts.stop, t_step=step),
        ],
        outputs=[IoSpecification.from_range("output", 0, len(frames), t_step=case.subsampling)],
    )
    nnet = with_ivector_period(model.nnet, step)
    inputs = {
        "input": frames[np.clip(np.arange(first, last + 1), 0, len(frames) - 1)],
        "ivector": np.stack([served(start) for start in starts]),
    }
    computer = ReferenceComputer(nnet, compile_computation(nnet, request))
    yield np.concatenate(found), computer.forward(inputs)["output"]


def difference_of_seed(seed: int) -> float:
    """The largest difference of an output, relative to the largest output, or to 1."""
    largest = 0.0
    with thresholds(seed):
        pairs = [*outputs_of_seed(seed), *changing_ivectors(seed)]
    for outputs, expected in pairs:
        if outputs.shape != expected.shape:
            return float("inf")
        scale = max(float(np.abs(expected).max()), 1.0)
        largest = max(largest, float(np.abs(outputs - expected).max()) / scale)
    return largest


def main() -> int:
    """Judges the streams that the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.count)
    differences = {seed: difference_of_seed(seed) for seed in seeds}
    disagree = [seed for seed, value in differences.items() if not value <= LARGEST_DIFFERENCE]
    for seed in disagree:
        print(f"seed {seed}: differs by {differences[seed]:.1e}")
    print(
        f"{arguments.count} streams from seed {arguments.first_seed} on, {len(disagree)} disagree; "
        f"the largest difference is {max(differences.values()):.1e}"
    )
    return 1 if disagree else 0


if __name__ == "__main__":
    sys.exit(main())
