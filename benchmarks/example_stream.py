"""How much memory tools take for examples that are made on the fly, however many there are.

    python benchmarks/example_stream.py --gigabytes 1

A pipe of three tools: examples of noise are shuffled with a buffer, merged into minibatches, and
copied. Printed is the largest memory of each when a quarter of the bytes has passed, and at the
end: it must not grow.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
from nnet3_training import ExampleInput, ExampleOutput, TrainingExample
from nnet3_training.egs import example_bytes

FRAMES, CONTEXT, COLUMNS, CLASSES = 20, 12, 40, 100

TOOLS = {
    "nnet3-shuffle-egs": ("--buffer-size=1000", "ark:-", "ark:-"),
    "nnet3-merge-egs": ("--minibatch-size=64", "ark:-", "ark:-"),
    "nnet3-copy-egs": ("ark:-", "ark:-"),
}


def examples(rng: np.random.Generator) -> Iterator[bytes]:
    """Entries of an archive, of noise, without end; each hundredth has new numbers."""
    number = 0
    while True:
        if number % 100 == 0:
            frames = rng.standard_normal((FRAMES + 2 * CONTEXT, COLUMNS), dtype=np.float32)
            labels = rng.integers(0, CLASSES, FRAMES)
            example = TrainingExample(
                key="key",
                inputs=[ExampleInput.from_sequences("input", [frames], t_start=-CONTEXT)],
                outputs=[ExampleOutput.from_labels("output", [labels], CLASSES)],
            )
            data = example_bytes(attrs.evolve(example, key="key"))
        yield f"example-{number} ".encode() + data
        number += 1


def peak(process_id: int) -> float:
    """The largest memory of a process so far, in megabytes."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def main() -> None:
    """Print the peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    total = int(1e9 * parser.parse_args().gigabytes)
    processes: list[subprocess.Popen[bytes]] = []
    source = subprocess.PIPE
    for name, arguments in TOOLS.items():
        tool = Path(sys.executable).with_name(name)
        is_last = len(processes) == len(TOOLS) - 1
        sink = subprocess.DEVNULL if is_last else subprocess.PIPE
        before = processes[-1].stdout if processes else source
        processes.append(
            subprocess.Popen(
                [tool, *arguments], stdin=before, stdout=sink, stderr=subprocess.DEVNULL
            )
        )
    start, written, early = time.perf_counter(), 0, {}
    pipe = processes[0].stdin
    assert pipe is not None
    for entry in examples(np.random.default_rng(0)):
        pipe.write(entry)
        written += len(entry)
        if not early and written > total / 4:
            early = {process.pid: peak(process.pid) for process in processes}
        if written > total:
            break
    late = {process.pid: peak(process.pid) for process in processes}
    pipe.close()
    seconds = time.perf_counter() - start
    assert all(process.wait() == 0 for process in processes)
    print(f"{written / 1e9:.2f} GB in {seconds:.0f} s")
    for name, process in zip(TOOLS, processes, strict=True):
        print(
            f"{name:18} {early[process.pid]:6.1f} MB after a quarter, {late[process.pid]:6.1f} MB"
        )


if __name__ == "__main__":
    main()
