"""The use of threads by nnet3-compute, for utterances of different lengths.

    python benchmarks/compute_tool.py [--threads 2] [--network tdnnf ...]

The main loop of the tool computes archives of random features with equal numbers of frames: one
long utterance, one long among short ones, short ones only. Each line has two numbers. The first is
the average number of threads that computed or waited only for a processor, by Linux's schedstat.
Threads that wait for the interpreter lock or for work do not count. The second is the time of the
loop relative to that of one thread. The first number needs no quiet machine, the second does.
Outputs are compared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import attrs
import numpy as np
from nnet3.batches.runs import Work
from nnet3.chunks import ChunkOptions
from nnet3.model import Model
from nnet3.output_scores import ScoreOptions
from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.cpu.threads import Task
from nnet3_tables import MatrixWriter
from nnet3_tools.compute.utterances import compute_all
from nnet3_tools.progress import Progress
from workload import Workload

FRAMES = 3_000
LENGTHS = {
    "one long": [FRAMES],
    "one long, then short": [FRAMES // 2, *[300] * (FRAMES // 600)],
    "short": [300] * (FRAMES // 300),
}


def write_features(path: Path, lengths: list[int], dim: int) -> None:
    """Writes an archive of random features."""
    rng = np.random.default_rng(0)
    with MatrixWriter(f"ark:{path}") as writer:
        for number, length in enumerate(lengths):
            writer.write(f"u{number}", rng.standard_normal((length, dim), dtype=np.float32))


def runnable_seconds() -> float:
    """The time for which this thread has run, or waited only for a processor."""
    running, waiting, _ = Path("/proc/thread-self/schedstat").read_text(encoding="utf-8").split()
    return 1e-9 * (int(running) + int(waiting))


def run(model: Model, features: Path, output: Path, threads: int) -> tuple[float, float]:
    """Seconds that the tool's loop takes, and how many threads could run on average."""
    ivector = np.zeros(model.ivector_dim) if model.ivector_dim else None
    chunk_options = ChunkOptions(frames_per_chunk=150, frame_subsampling_factor=3)
    score_options = ScoreOptions()
    spent: list[float] = []

    def timed(task: Task) -> None:
        start = runnable_seconds()
        task()
        spent.append(runnable_seconds() - start)

    def prepare(_: str, frames: FloatArray) -> Work:
        work = model.compute_work(frames, ivector, None, chunk_options, score_options)
        return attrs.evolve(work, tasks=[partial(timed, task) for task in work.tasks])

    start = time.perf_counter()
    compute_all(
        f"ark:{features}",
        lambda: MatrixWriter(f"ark:{output}"),
        prepare,
        Progress("benchmark"),
        num_threads=threads,
    )
    seconds = time.perf_counter() - start
    return seconds, sum(spent) / seconds


def main() -> None:
    """Prints a line for each network and kind of table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--network", nargs="*", default=["tdnnf", "tdnn-lstm", "cnn-tdnnf"])
    arguments = parser.parse_args()
    print("| network | utterances | threads that could run | time / of one thread |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.network:
            model = Model(Workload.make(name, "infer", 1).nnet)
            for kind, lengths in LENGTHS.items():
                features = Path(folder) / "features.ark"
                write_features(features, lengths, model.input_dim)
                times: dict[int, list[tuple[float, float]]] = {1: [], arguments.threads: []}
                for _ in range(arguments.runs + 1):
                    for threads, taken in times.items():
                        taken.append(run(model, features, Path(f"{folder}/{threads}"), threads))
                outputs = {Path(f"{folder}/{threads}").read_bytes() for threads in times}
                assert len(outputs) == 1, "threads must not change the output"
                # The first run compiles.
                one, many = (min(taken[1:]) for taken in times.values())
                print(f"| {name} | {kind} | {many[1]:.2f} | {many[0] / one[0]:.2f} |")


if __name__ == "__main__":
    main()
