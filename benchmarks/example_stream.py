"""The memory of tools on a stream of examples, which must not grow with their number.

    python benchmarks/example_stream.py --gigabytes 1 5 10

A pipe of three tools: examples of noise are shuffled with a buffer, merged into minibatches, and
copied. Nothing is written to disk. Printed are the largest memory of each tool so far and the
processor time of all tools when so many bytes have passed: memory must not grow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
from nnet3_training import ExampleInput, ExampleOutput, TrainingExample
from nnet3_training.egs import example_bytes

os.environ.setdefault("NNET3_CACHE_DIR", "")  # compiling is timed, too

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
    status = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def processor_seconds(process_id: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started() -> list[subprocess.Popen[bytes]]:
    """The tools, each reading what the one before writes."""
    processes: list[subprocess.Popen[bytes]] = []
    for name, arguments in TOOLS.items():
        tool = Path(sys.executable).with_name(name)
        is_last = len(processes) == len(TOOLS) - 1
        sink = subprocess.DEVNULL if is_last else subprocess.PIPE
        before = processes[-1].stdout if processes else subprocess.PIPE
        processes.append(
            subprocess.Popen(
                [tool, *arguments], stdin=before, stdout=sink, stderr=subprocess.DEVNULL
            )
        )
    return processes


def main() -> None:
    """Print the peaks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0, 5.0, 10.0])
    marks = sorted(parser.parse_args().gigabytes)
    print("| passed | processor time | " + " | ".join(TOOLS) + " |")
    print("|---|---|" + "---|" * len(TOOLS), flush=True)
    processes, written = started(), 0
    pipe = processes[0].stdin
    assert pipe is not None
    entries = examples(np.random.default_rng(0))
    for mark in marks:
        while written < 1e9 * mark:
            entry = next(entries)
            pipe.write(entry)
            written += len(entry)
        spent = sum(processor_seconds(process.pid) for process in processes)
        peaks = " | ".join(f"{peak(process.pid):.1f} MB" for process in processes)
        print(f"| {written / 1e9:.2f} GB | {spent:.0f} s | {peaks} |", flush=True)
    pipe.close()
    assert all(process.wait() == 0 for process in processes)


if __name__ == "__main__":
    main()
