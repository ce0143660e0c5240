"""The memory of the matrices of the benchmark networks, beside Kaldi's.

    python benchmarks/memory.py                             # the table
    python benchmarks/memory.py --plot docs/memory.svg      # and live bytes over each program

Megabytes (10^6 bytes) of matrices, without parameters and their gradients. "compiled" is the peak
of the compiled computation, "bound" the peak after optimization. A peak is the largest sum of
matrices that are needed at the same time, a lower bound for any plan. "arena" is the runtime's
allocation: all matrices at planned offsets. Kaldi's figures are the peaks of its optimized
computations for the same requests.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import attrs
import numpy as np
from live_bytes_plot import Curve, Panel, drawing
from networks import BENCHMARKS
from nnet3_compiler import compile_computation
from nnet3_computation import NnetComputation, live_bytes, peak_bytes, plan_memory
from nnet3_descriptors import Nnet, parse_config, set_test_mode
from nnet3_optimizer import optimize

KALDI_MB = {
    ("tdnnf", 64, True): 1719.4,
    ("tdnnf", 8, True): 214.9,
    ("tdnnf", 8, False): 22.0,
    ("tdnnf", 1, False): 2.75,
    ("tdnn-lstm", 64, True): 1468.2,
    ("tdnn-lstm", 8, True): 183.5,
    ("tdnn-lstm", 8, False): 28.1,
    ("tdnn-lstm", 1, False): 3.5,
    ("xvector", 64, True): 1042.7,
    ("xvector", 8, True): 130.3,
    ("xvector", 8, False): 41.2,
    ("xvector", 1, False): 5.15,
    ("cnn-tdnnf", 64, True): 2106.5,
    ("cnn-tdnnf", 8, True): 263.3,
    ("cnn-tdnnf", 8, False): 48.7,
    ("cnn-tdnnf", 1, False): 6.1,
}
"""Kaldi's peak: (network, sequences, whether for training) -> MB."""

PLOTTED = 8
"""The number of sequences of the training requests that are plotted."""


@attrs.frozen
class Programs:
    """The computation of a request before and after optimization."""

    compiled: NnetComputation
    optimized: NnetComputation


def network(name: str, *, train: bool) -> Nnet:
    """Returns a benchmark network."""
    nnet = parse_config(BENCHMARKS[name].config(), rng=np.random.default_rng(0))
    return nnet if train else set_test_mode(nnet)


def print_table(names: list[str]) -> dict[str, Programs]:
    """Prints a row for each network and request; returns the programs for the plot."""
    print("| network | case | compiled | bound | arena | arena / bound | Kaldi | arena / Kaldi |")
    print("|---|---|---|---|---|---|---|---|")
    plotted = {}
    for name in names:
        networks = {train: network(name, train=train) for train in (True, False)}
        for (of, sequences, train), kaldi in KALDI_MB.items():
            if of != name:
                continue
            nnet = networks[train]
            request = BENCHMARKS[name].request(sequences, train=train)
            compiled = compile_computation(nnet, request)
            optimized = optimize(nnet, compiled)
            bound, arena = peak_bytes(optimized) / 1e6, plan_memory(optimized).arena_bytes / 1e6
            print(
                f"| {name} | {'train' if train else 'infer'} n={sequences} "
                f"| {peak_bytes(compiled) / 1e6:.2f} | {bound:.2f} | {arena:.2f} "
                f"| {arena / bound:.3f} | {kaldi:.2f} | {arena / kaldi:.2f} |",
                flush=True,
            )
            if train and sequences == PLOTTED:
                plotted[name] = Programs(compiled, optimized)
    return plotted


def curve(computation: NnetComputation, label: str) -> Curve:
    """Returns the live bytes of a computation, and where its forward part ends."""
    live = live_bytes(computation)
    return Curve(label, live / 1e6, computation.forward_end / len(live))


def plot(programs: dict[str, Programs]) -> str:
    """Returns the drawing of live bytes over each program, before and after."""
    panels = [
        Panel(
            f"{name}, training on {PLOTTED} sequences",
            (curve(each.compiled, "compiled"), curve(each.optimized, "optimized")),
            KALDI_MB[name, PLOTTED, True],
        )
        for name, each in programs.items()
    ]
    return drawing(panels)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Print the memory of the benchmark networks.")
    parser.add_argument("--network", action="append", choices=BENCHMARKS, help="default: all")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the training requests")
    arguments = parser.parse_args()
    programs = print_table(arguments.network or list(BENCHMARKS))
    if arguments.plot is not None:
        arguments.plot.write_text(plot(programs))


if __name__ == "__main__":
    main()
