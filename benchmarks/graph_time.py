"""The time of the computation graph, and its growth.

    python benchmarks/graph_time.py                   # all four networks
    python benchmarks/graph_time.py tdnnf xvector

Times are processor time in milliseconds, the best of several runs.

rules      what follows from the network alone; found once for each network
graph      build_computation_graph(nnet, request), with the rules at hand
arrays     the same with its arrays made: all cindexes and all dependencies
x frames   how much longer the graph takes for twice as many frames between the same contexts
x n        how much longer it takes for twice as many sequences
"""

from __future__ import annotations

import argparse
import functools

from compile_time import best_ms, network, twice_as_long
from networks import BENCHMARKS
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet
from nnet3_graph import ComputationGraph, build_computation_graph
from nnet3_graph.nodes import node_rules

CASES = ((1, False), (2, True), (64, True))
"""Sequences, and whether for training; two are what shortcut compilation asks for."""


def graph_with_arrays(nnet: Nnet, request: ComputationRequest) -> ComputationGraph:
    """Returns a graph all of whose arrays have been made."""
    graph = build_computation_graph(nnet, request)
    assert len(graph.cindexes) == len(graph.dependency_splits) - 1
    return graph


def graph_ms(nnet: Nnet, request: ComputationRequest, runs: int) -> float:
    """Returns how long the graph takes, in milliseconds."""
    return best_ms(functools.partial(build_computation_graph, nnet, request), runs)


def print_network(name: str, runs: int, scale: float) -> None:
    """Prints a line for each request to a network."""
    base = BENCHMARKS[name]
    for sequences, train in CASES:
        nnet = network(name, scale, train=train)
        request = base.request(sequences, train=train)
        graph = graph_ms(nnet, request, runs)
        longer = graph_ms(nnet, twice_as_long(base).request(sequences, train=train), runs)
        wider = graph_ms(nnet, base.request(2 * sequences, train=train), runs)
        make_rules = node_rules.__wrapped__  # type: ignore[attr-defined]
        rules = best_ms(functools.partial(make_rules, nnet), runs)
        arrays = best_ms(functools.partial(graph_with_arrays, nnet, request), 3)
        print(
            f"{name:9} {sequences:3}  {'train' if train else 'infer'} "
            f"{build_computation_graph(nnet, request).num_cindexes:9,} {rules:6.2f} {graph:6.2f} "
            f"{arrays:7.2f} {longer / graph:9.2f} {wider / graph:5.2f}",
            flush=True,
        )


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", choices=[*sorted(BENCHMARKS), []])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--scale", type=float, default=0.05, help="size of the hidden layers")
    args = parser.parse_args()
    print("network     n  case   cindexes  rules  graph  arrays  x frames   x n")
    for name in args.networks or BENCHMARKS:
        print_network(name, args.runs, args.scale)


if __name__ == "__main__":
    main()
