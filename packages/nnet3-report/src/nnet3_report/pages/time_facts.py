"""The time of a request on this machine, node by node."""

from __future__ import annotations

from collections import defaultdict

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, NnetComputation
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda import NnetComputer, Tracer
from threadpoolctl import threadpool_limits

RUNS = 5
"""The number of runs; the shortest time of each command counts."""

MOST_NODES = 20
"""The number of nodes that are shown, the slowest first."""


@attrs.frozen
class NodeTime:
    """The time of all commands of a node.

    Attributes:
        node: The node; "" for commands without a known node.
        commands: Number of its commands.
        seconds: Seconds of all of them together.
        share: Their part of the time of all commands, from 0 to 1.
    """

    node: str
    commands: int
    seconds: float
    share: float


@attrs.frozen
class TimeFacts:
    """The time of a request, node by node.

    Attributes:
        seconds: Seconds of all commands together.
        nodes: The slowest nodes, the slowest first.
        others: The share of all other nodes.
        num_others: The number of these.
    """

    seconds: float
    nodes: tuple[NodeTime, ...]
    others: float
    num_others: int


def time_facts(nnet: Nnet, request: ComputationRequest, computation: NnetComputation) -> TimeFacts:
    """Runs a program a few times on the processor, on one thread, and times its commands.

    The inputs are random numbers: the time of matrix commands does not depend on values.

    Args:
        nnet: The network.
        request: The request that the computation was compiled for.
        computation: The program, optimized.

    Raises:
        UnsupportedComponentError: The runtime has no arithmetic for a component.
        DeviceMemoryError: There is not enough memory.
    """
    tracer = Tracer()
    computer = NnetComputer(nnet, computation, threads=1, trace=tracer)
    rng = np.random.default_rng(0)
    inputs = {
        io.name: rng.standard_normal((len(io.indexes), nnet.node_dim(io.name)), np.float32)
        for io in request.inputs
    }
    # A computer with one thread does not limit the BLAS library's threads, which wait for one
    # another while other programs use the processors.
    with threadpool_limits(limits=1, user_api="blas"):
        for _ in range(RUNS):
            outputs = computer.forward(inputs)
            if request.needs_derivatives:
                wanted = [io.name for io in request.outputs if io.has_deriv]
                computer.backward({name: np.ones_like(outputs[name]) for name in wanted})
    trace = tracer.trace()
    [program] = trace.programs
    least = np.full(len(program.commands), np.inf)
    for run in trace.runs:
        least[run.command] = min(least[run.command], run.seconds)
    by_node: dict[str, list[float]] = defaultdict(list)
    for command, seconds in zip(program.commands, least.tolist(), strict=True):
        by_node[command.node].append(seconds)
    total = float(least.sum())
    nodes = sorted(
        (
            NodeTime(node, len(seconds), sum(seconds), sum(seconds) / total)
            for node, seconds in by_node.items()
        ),
        key=lambda each: -each.seconds,
    )
    shown = tuple(nodes[:MOST_NODES])
    others = nodes[MOST_NODES:]
    return TimeFacts(total, shown, sum(each.share for each in others), len(others))
