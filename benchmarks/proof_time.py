"""The times of optimizing, checking, planning and proving, relative to compiling.

    python benchmarks/proof_time.py                    # all four networks
    python benchmarks/proof_time.py tdnnf xvector
    python benchmarks/proof_time.py --kinds 2 tdnnf    # sequences of two lengths

Processor time, the least of several runs, for a network and request that were not compiled before.
"cold" is `CachingCompiler(nnet).compile(request)` in milliseconds: graph, compilation, optimization
and its checks, as in `compile_time.py`. The other columns are ratios to it:

- compile: graph and compilation; optimize; check: `check_computation` of the result;
- plan: `plan_memory` of the result;
- verify: `verify_equivalent` of the compiled and the optimized computation;
- each: the time that `verify=True` adds to optimizing, for each pass that it proves.

"excess" is the size of the arena relative to its lower bound, the largest sum of live bytes.
"""

from __future__ import annotations

import argparse
import functools

import attrs
from compile_time import best_ms, best_ms_of, network
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation, plan_memory
from nnet3_descriptors import Nnet
from nnet3_graph import NotComputableError
from nnet3_optimizer import OptimizeOptions, check_computation, optimize, verify_equivalent
from nnet3_optimizer.pipeline import PIPELINE

CASES = ((64, True), (8, True), (8, False), (1, False))
"""Sequences, and whether for training."""


FRAMES = 6
"""Number of frames by which sequences of each kind are shorter than those of the kind before."""


@attrs.frozen(kw_only=True)
class Times:
    """Times in milliseconds; see the top of the module."""

    cold: float
    compilation: float
    optimization: float
    check: float
    plan: float
    proof: float
    each_pass: float


def measure(nnet: Nnet, request: ComputationRequest, runs: int) -> tuple[Times, NnetComputation]:
    """Measures all stages on one request; returns the optimized computation, too."""
    compilers = [CachingCompiler(attrs.evolve(nnet)) for _ in range(runs)]
    networks = [attrs.evolve(nnet) for _ in range(runs)]
    compiled = compile_computation(nnet, request)
    optimized = optimize(nnet, compiled)
    verified = functools.partial(optimize, nnet, compiled, OptimizeOptions(verify=True))
    optimization = best_ms(lambda: optimize(nnet, compiled), runs)
    wanted = sum(each.wanted(OptimizeOptions()) for each in PIPELINE)
    times = Times(
        cold=best_ms_of(functools.partial(each.compile, request) for each in compilers),
        compilation=best_ms_of(
            functools.partial(compile_computation, each, request) for each in networks
        ),
        optimization=optimization,
        check=best_ms(lambda: check_computation(nnet, optimized), runs),
        plan=best_ms(lambda: plan_memory(optimized), runs),
        proof=best_ms(lambda: verify_equivalent(nnet, compiled, optimized), runs),
        each_pass=(best_ms(verified, max(1, runs // 2)) - optimization) / wanted,
    )
    return times, optimized


def of_kinds(request: ComputationRequest, kinds: int) -> ComputationRequest:
    """Returns a request with sequences of `kinds` different lengths, by turns."""

    def shortened(io: IoSpecification) -> IoSpecification:
        n, t = io.indexes[:, :2].T
        is_kept = (t <= t.max() - n % kinds * FRAMES) | (t.max() == t.min())
        return attrs.evolve(io, indexes=io.indexes[is_kept])

    inputs, outputs = (tuple(map(shortened, each)) for each in (request.inputs, request.outputs))
    return attrs.evolve(request, inputs=inputs, outputs=outputs)


def print_table(names: list[str], runs: int, kinds: int) -> None:
    """Prints a line for each network and request."""
    print(
        "network     n  case    cold ms  compile  optimize  check   plan  verify   each  excess"
        "  commands"
    )
    for name in names:
        for sequences, train in CASES:
            nnet = network(name, 1.0, train=train)
            request = of_kinds(BENCHMARKS[name].request(sequences, train=train), kinds)
            times, optimized = measure(nnet, request, runs)
            plan = plan_memory(optimized)
            print(
                f"{name:9} {sequences:3}  {'train' if train else 'infer'}   {times.cold:7.1f} "
                f"{times.compilation / times.cold:8.2f} {times.optimization / times.cold:9.2f} "
                f"{times.check / times.cold:6.2f} {times.plan / times.cold:6.3f} "
                f"{times.proof / times.cold:7.2f} {times.each_pass / times.cold:6.2f} "
                f"{plan.arena_bytes / plan.lower_bound_bytes - 1:7.2%} "
                f"{len(optimized.command_table):9}",
                flush=True,
            )


def main() -> None:
    """Print the table that the command line asks for."""
    parser = argparse.ArgumentParser(description="Time proof and memory plan against compiling.")
    parser.add_argument(
        "networks", nargs="*", metavar="NETWORK", help="some of " + ", ".join(BENCHMARKS)
    )
    parser.add_argument("--runs", type=int, default=7, help="runs of which the best counts")
    parser.add_argument("--kinds", type=int, default=1, help="how many lengths sequences have")
    arguments = parser.parse_args()
    try:
        print_table(arguments.networks or list(BENCHMARKS), arguments.runs, arguments.kinds)
    except NotComputableError as error:
        reason = str(error).splitlines()[0]
        parser.error(f"--kinds {arguments.kinds} makes sequences too short: {reason}")


if __name__ == "__main__":
    main()
