"""The time of the objective of chain models with its derivatives, relative to Kaldi's.

    OPENBLAS_NUM_THREADS=1 python benchmarks/chain_objective.py [--share]

Denominators and supervisions are random, of the sizes at which Kaldi was measured: arcs into a
state have one of two pdfs, as in a chain topology. Kaldi's times are scaled by a loop in Python,
which takes turns with the objective. --share adds the share of the objective in a training step of
the TDNN-F benchmark. The step has eight sequences and a denominator of 7,000 states.
"""

from __future__ import annotations

import argparse
import statistics
import time

import attrs
import numpy as np
from execute import training_step
from nnet3_training import ChainObjective, ChainOptions, ChainSupervision, Fst
from workload import Workload

REPEATS = 9
LOOP = 10**7
KALDI_LOOP_SECONDS = 0.34
"""Of as many additions, where Kaldi was measured."""
PATHS = 3
"""States of a supervision at one time."""


@attrs.frozen
class Size:
    """A minibatch and a denominator, and Kaldi's milliseconds for them on one thread."""

    sequences: int
    frames: int
    states: int
    arcs: int
    pdfs: int
    kaldi_ms: float


SIZES = (
    Size(16, 20, 7459, 49321, 1000, 42.0),
    Size(16, 36, 1163, 9010, 688, 13.0),
    Size(16, 18, 1712, 31587, 688, 22.0),
)


def denominator(size: Size, rng: np.random.Generator) -> Fst:
    """A random HMM, with a loop in each state."""
    loops, others = np.arange(size.states), size.arcs - size.states
    sources = np.concatenate([loops, rng.integers(size.states, size=others)])
    destinations = np.concatenate([loops, rng.integers(size.states, size=others)])
    pdfs = rng.integers(size.pdfs, size=(size.states, 2))
    return Fst.from_arcs(
        start=0,
        final_costs=np.zeros(size.states),
        sources=sources,
        labels=1 + pdfs[destinations, rng.integers(2, size=size.arcs)],
        costs=np.full(size.arcs, np.log(size.arcs / size.states + 1.0)),
        destinations=destinations,
    )


def supervision(size: Size, rng: np.random.Generator) -> ChainSupervision:
    """Random paths, a few states wide, for all sequences."""
    parts = []
    for _ in range(size.sequences):
        layers = [np.array([0])]
        for width in [*[PATHS] * (size.frames - 1), 1]:
            layers.append(layers[-1][-1] + 1 + np.arange(width))
        pairs = [
            (source, destination)
            for number in range(size.frames)
            for source in layers[number]
            for destination in layers[number + 1]
        ]
        sources, destinations = np.array(pairs).T
        finals = np.full(destinations.max() + 1, np.inf)
        finals[-1] = 0.0
        fst = Fst.from_arcs(
            start=0,
            final_costs=finals,
            sources=sources,
            labels=rng.integers(1, size.pdfs + 1, size=len(pairs)),
            costs=np.zeros(len(pairs)),
            destinations=destinations,
        )
        parts.append(
            ChainSupervision(frames_per_sequence=size.frames, label_dim=size.pdfs, fst=fst)
        )
    return ChainSupervision.merged(parts)


def loop_seconds() -> float:
    """Processor time of the loop by which machines are compared."""
    start, total = time.process_time(), 0
    for number in range(LOOP):
        total += number
    return time.process_time() - start


def objective_seconds(size: Size) -> list[tuple[float, float]]:
    """Processor time of the objective and of the loop, in turns."""
    rng = np.random.default_rng(0)
    options = ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=5e-5, xent_regularize=0.1)
    objective = ChainObjective(denominator(size, rng), options, num_pdfs=size.pdfs)
    known = supervision(size, rng)
    output = rng.standard_normal((known.num_frames, size.pdfs)).astype(np.float32)
    objective.compute(known, output)
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        objective.compute(known, output)
        times.append((time.process_time() - start, loop_seconds()))
    return times


def share_of_step() -> tuple[float, float]:
    """Milliseconds of the objective, and of the rest of a training step."""
    work = Workload.make("tdnnf", "train", 8)
    run, _ = training_step(work)
    step = work.time(run, time.process_time)
    _, frames, pdfs = work.derivatives["output"].shape
    size = Size(8, frames, 7000, 46000, pdfs, 0.0)
    objective = statistics.median(seconds for seconds, _ in objective_seconds(size))
    return 1e3 * objective, step


def main() -> None:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", action="store_true", help="also the share of a training step")
    arguments = parser.parse_args()
    print("sequences  frames  states    arcs  milliseconds  of Kaldi's")
    for size in SIZES:
        times = objective_seconds(size)
        ratio = statistics.median(
            seconds / loop * KALDI_LOOP_SECONDS / (1e-3 * size.kaldi_ms) for seconds, loop in times
        )
        milliseconds = 1e3 * statistics.median(seconds for seconds, _ in times)
        print(
            f"{size.sequences:9} {size.frames:7} {size.states:7} {size.arcs:7} "
            f"{milliseconds:13.1f} {ratio:11.2f}"
        )
    if arguments.share:
        objective, step = share_of_step()
        share = objective / (objective + step)
        print(f"of a TDNN-F step: {objective:.0f} ms beside {step:.0f} ms, {share:.0%}")


if __name__ == "__main__":
    main()
