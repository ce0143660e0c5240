"""The time of compiling, cold, against Kaldi's C++ on the same networks and requests.

    python benchmarks/compile_time.py                    # all four networks
    python benchmarks/compile_time.py tdnnf xvector
    python benchmarks/compile_time.py --growth           # twice the frames, twice the sequences

Times are processor time in milliseconds, the best of several runs. Each run begins with the
request: graph, compilation, optimization with its checks. "cold" is
`CachingCompiler(nnet).compile(request)` for a network without earlier compilations. "all", and the
columns before it, are for a known network, as in use with varying lengths: the compiler remembers
its facts about the network. The first run also loads modules, so it is not the best one. The column
"Kaldi" is the time of Kaldi's C++ for the same request (`kaldi.py`), scaled to this machine by the
time of a loop in Python. Of the loop's times before and after a line, the lesser one counts. The
ratio is that of "cold".
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import attrs
from kaldi import COMPILED, compilation_ms, loop_seconds
from networks import BENCHMARKS, Benchmark
from nnet3 import CachingCompiler
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet, parse_config, set_test_mode
from nnet3_graph import build_computation_graph

if TYPE_CHECKING:
    from nnet3_computation import NnetComputation


def best_ms(function: Callable[[], object], runs: int) -> float:
    """Returns the smallest processor time of several runs, in milliseconds."""
    return best_ms_of([function] * runs)


def best_ms_of(functions: Iterable[Callable[[], object]]) -> float:
    """Returns the smallest processor time of several functions, in milliseconds."""
    times = []
    for function in functions:
        begin = time.process_time()
        function()
        times.append(time.process_time() - begin)
    return min(times) * 1000


@attrs.frozen(kw_only=True)
class Times:
    """Milliseconds for the graph; graph and compilation; all, for a known and for a new network."""

    graph: float
    compilation: float
    everything: float
    cold: float


def measure(nnet: Nnet, request: ComputationRequest, runs: int) -> Times:
    """Measures the stages on one network, and all of them on one that is new each time."""
    new = (CachingCompiler(attrs.evolve(nnet)) for _ in range(runs))
    return Times(
        graph=best_ms(lambda: build_computation_graph(nnet, request), runs),
        compilation=best_ms(lambda: compile_computation(nnet, request), runs),
        everything=best_ms(lambda: CachingCompiler(nnet).compile(request), runs),
        cold=best_ms_of(functools.partial(compiler.compile, request) for compiler in new),
    )


def network(name: str, scale: float, *, train: bool) -> Nnet:
    """Returns a benchmark network; its hidden sizes decide which passes pay."""
    nnet = parse_config(BENCHMARKS[name].config(scale))
    return nnet if train else set_test_mode(nnet)


def print_table(names: list[str], runs: int, scale: float) -> None:
    """Prints a line for each network and request."""
    print("network    n   case   loop, s   graph  compile    all   cold   Kaldi  ratio  commands")
    for case in COMPILED:
        name, mode, sequences = case
        if name not in names:
            continue
        train = mode == "train"
        nnet = network(name, scale, train=train)
        request = BENCHMARKS[name].request(sequences, train=train)
        before = loop_seconds()
        times = measure(nnet, request, runs)
        loop = min(before, loop_seconds())
        kaldi_ms = compilation_ms(case, loop)
        optimized: NnetComputation = CachingCompiler(nnet).compile(request)
        print(
            f"{name:9} {sequences:3}   {mode}  {loop:7.2f}  {times.graph:6.1f} "
            f"{times.compilation - times.graph:7.1f} {times.everything:7.1f} {times.cold:6.1f} "
            f"{kaldi_ms:7.1f} {times.cold / kaldi_ms:6.2f}  {len(optimized.command_table):8}",
            flush=True,
        )


def print_growth(names: list[str], runs: int, scale: float) -> None:
    """Prints how the total time grows with the frames and the sequences of a training request."""
    print("network    cold  twice the sequences  twice the frames")
    for name in names:
        nnet = network(name, scale, train=True)
        base = BENCHMARKS[name]
        requests = [
            base.request(32, train=True),
            base.request(64, train=True),
            twice_as_long(base).request(32, train=True),
        ]
        times = [measure(nnet, request, runs).cold for request in requests]
        print(
            f"{name:9} {times[0]:5.1f} {100 * (times[1] / times[0] - 1):+18.0f} % "
            f"{100 * (times[2] / times[0] - 1):+15.0f} %",
            flush=True,
        )


def twice_as_long(benchmark: Benchmark) -> Benchmark:
    """Returns the benchmark with twice as many frames between the same contexts."""
    given, wanted = benchmark.input_times, benchmark.output_times
    length = wanted.stop - wanted.start if len(wanted) > 1 else given.stop - given.start
    return attrs.evolve(
        benchmark,
        input_times=range(given.start, given.stop + length),
        output_times=range(wanted.start, wanted.stop + length, wanted.step)
        if len(wanted) > 1
        else wanted,
    )


def main() -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description="Time compilation against Kaldi's C++.")
    parser.add_argument(
        "networks", nargs="*", metavar="NETWORK", help="some of " + ", ".join(BENCHMARKS)
    )
    parser.add_argument("--growth", action="store_true", help="double frames and sequences")
    parser.add_argument("--runs", type=int, default=7, help="runs of which the best counts")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the hidden sizes")
    arguments = parser.parse_args()
    names = arguments.networks or list(BENCHMARKS)
    (print_growth if arguments.growth else print_table)(names, arguments.runs, arguments.scale)


if __name__ == "__main__":
    main()
