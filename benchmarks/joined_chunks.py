"""The gain of computing chunks in a row as one chunk, where the outputs are the same.

    OPENBLAS_NUM_THREADS=1 python benchmarks/joined_chunks.py [--network tdnnf ...]
        [--utterances 60] [--frames-per-chunk 50 150] [--runs 3]

`Model.compute_many` on random features of 733 frames on average, one thread. Prints the processor
time with joined chunks, divided by that without them, of models that compile anew in each run.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from nnet3 import Model, chunk_work
from workload import Workload

FRAMES = 733
NEVER = 1 << 30
"""A number of chunks that no utterance has."""


def seconds(workload: Workload, count: int, frames_per_chunk: int, num_joined: int) -> float:
    """The processor time of a new model for so many utterances.

    Args:
        workload: The network.
        count: Number of utterances.
        frames_per_chunk: Frames of a chunk.
        num_joined: Number of chunks that are computed as one.
    """
    model, rng = Model(workload.nnet), np.random.default_rng(0)
    lengths = rng.integers(FRAMES // 2, FRAMES + FRAMES // 2, count)
    items = [
        (f"u{number}", rng.standard_normal((length, model.input_dim), dtype=np.float32))
        for number, length in enumerate(lengths)
    ]
    ivectors = None
    if model.ivector_dim:
        ivectors = {key: rng.standard_normal(model.ivector_dim) for key, _ in items}
    chunk_work.CHUNKS_JOINED = num_joined
    start = time.process_time()
    for _ in model.compute_many(
        items, ivectors=ivectors, frames_per_chunk=frames_per_chunk, frame_subsampling_factor=3
    ):
        pass
    return time.process_time() - start


def main() -> None:
    """Prints a line for each network and size of chunks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", nargs="*", default=["tdnnf", "tdnn-lstm", "cnn-tdnnf"])
    parser.add_argument("--utterances", type=int, default=60)
    parser.add_argument("--frames-per-chunk", type=int, nargs="*", default=[50, 150])
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    number = chunk_work.CHUNKS_JOINED
    print("| network | frames of a chunk | time / without joined chunks |")
    print("|---|---|---|")
    for name in arguments.network:
        workload = Workload.make(name, "infer", 1)
        for size in arguments.frames_per_chunk:
            pairs = [
                [
                    seconds(workload, arguments.utterances, size, joined)
                    for joined in (number, NEVER)
                ]
                for _ in range(arguments.runs)
            ]
            joined, apart = (min(taken) for taken in zip(*pairs, strict=True))
            print(f"| {name} | {size} | {joined / apart:.2f} |", flush=True)


if __name__ == "__main__":
    main()
