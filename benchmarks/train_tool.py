"""The time of whole processes of nnet3-train on benchmark networks, beside any other nnet3-train.

    python benchmarks/train_tool.py [--network tdnnf ...] [--minibatches 8] [--runs 2]
        [--other PATH]

The networks have random parameters. The minibatches are ready: eight sequences of noise, with a
class for each frame of each output. There is one thread. Each program runs once before it is
measured: Python then has its bytecode, as on a user's machine from the second run on. The programs
alternate, over one minibatch and over all. Each network has a line with processor seconds and
largest memory of the process. Beside another program, the line also has these figures: the ratios
for all minibatches, for one, and for each further one (without start, compiling and writing); the
number of minibatches from which on our process takes 0.8 of the other's time, by these ratios; the
difference of the first minibatch's objectives. (Later objectives depend on the draws of each
program.)
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from nnet3_descriptors import write_nnet
from nnet3_training import (
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    TrainingExample,
    write_examples,
)
from processes import Spent, spent
from workload import Workload

NETWORKS = ["tdnnf", "tdnn-lstm", "cnn-tdnnf", "xvector"]
SEQUENCES = 8
GOAL = 0.8


def write_inputs(folder: Path, network: str, count: int) -> None:
    """Writes a network, and archives of one minibatch and of all."""
    work = Workload.make(network, "train", SEQUENCES)
    write_nnet(work.nnet, str(folder / "0.raw"))
    rng = np.random.default_rng(0)

    def example(number: int) -> TrainingExample:
        inputs = []
        for io in work.request.inputs:
            shape = len(io.indexes), work.nnet.node_dim(io.name)
            values = rng.standard_normal(shape, dtype=np.float32)
            inputs.append(ExampleInput(name=io.name, indexes=io.indexes, values=values))
        outputs = []
        for io in work.request.outputs:
            rows, dim = len(io.indexes), work.nnet.node_dim(io.name)
            known = SparsePosteriors(
                dim=dim,
                splits=np.arange(rows + 1),
                classes=rng.integers(dim, size=rows),
                weights=np.ones(rows, dtype=np.float32),
            )
            outputs.append(ExampleOutput(name=io.name, indexes=io.indexes, supervision=known))
        return TrainingExample(key=f"m{number}", inputs=inputs, outputs=outputs)

    examples = [example(number) for number in range(count)]
    write_examples(examples[:1], folder / "1.egs")
    write_examples(examples, folder / f"{count}.egs")


def run(program: str, folder: Path, count: int) -> tuple[Spent, str]:
    """Trains on `count` minibatches; returns the cost and the log."""
    log = folder / "log"
    arguments = [program, "--max-param-change=1.0", "--print-interval=1", "--use-gpu=no"]
    arguments += [f"{folder}/0.raw", f"ark:{folder}/{count}.egs", f"{folder}/out.raw"]
    return spent(arguments, log), log.read_text()


def objectives(log: str) -> list[float]:
    """The objectives of single minibatches in a log."""
    return [float(number) for number in re.findall(r"minibatches \d+-\d+ is (\S+) over", log)]


def measured(name: str, programs: dict[str, str], count: int, runs: int) -> list[str]:
    """The rows of the table for a network."""
    costs: dict[tuple[str, int], list[Spent]] = {}
    logs = {}
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder), name, count)
        for program in programs.values():
            run(program, Path(folder), 1)
        for _ in range(runs):
            for size in (1, count):
                for label, program in programs.items():
                    found, logs[label] = run(program, Path(folder), size)
                    costs.setdefault((label, size), []).append(found)
    rows, first = [], {}
    for label in programs:
        one, whole = (min(each.processor for each in costs[label, size]) for size in (1, count))
        memory = min(each.megabytes for each in costs[label, count])
        row = f"| {name} | {label} | {whole:.2f} s | {one:.2f} s | {memory:.0f} MB |"
        further = (whole - one) / max(count - 1, 1)
        if first:
            ratios = first["whole"] / whole, first["one"] / one, first["further"] / further
            gain = GOAL * further - first["further"]
            needed = 1.0 + max(first["one"] - GOAL * one, 0.0) / gain if gain > 0.0 else math.inf
            mine, theirs = (objectives(logs[each])[0] for each in ("ours", label))
            row += "".join(f" {ratio:.2f} |" for ratio in ratios)
            row += f" {np.ceil(needed):.0f} | {abs(mine - theirs) / abs(theirs):.0e} |"
        else:
            first = {"whole": whole, "one": one, "further": further}
            row += " | | | | |"
        rows.append(row)
    return rows


def main() -> None:
    """Prints a line for each network and program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", nargs="*", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--minibatches", type=int, default=8)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--other", help="another nnet3-train")
    arguments = parser.parse_args()
    programs = {"ours": str(Path(sys.executable).with_name("nnet3-train"))}
    if arguments.other:
        programs["other"] = arguments.other
    print(f"Processor time of one thread; {arguments.minibatches} minibatches of 8 sequences.")
    print("| network | program | all minibatches | one | memory | ours / other: all | one "
          "| each further one | 0.8 from | first objectives apart |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in arguments.network:
        for row in measured(name, programs, arguments.minibatches, arguments.runs):
            print(row, flush=True)


if __name__ == "__main__":
    main()
