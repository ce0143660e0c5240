"""What the page about a model says: of its components, of a program, and of its time here."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from nnet3_compiler import compile_computation
from nnet3_computation import (
    ComputationRequest,
    NnetComputation,
    format_computation,
    live_bytes,
    peak_bytes,
)
from nnet3_descriptors import Component, ComponentNode, Nnet
from nnet3_descriptors.components import (
    BatchNormComponent,
    RectifiedLinearComponent,
    SigmoidComponent,
    TanhComponent,
)
from nnet3_optimizer import optimize_in_steps, pass_summaries
from nnet3_runtime_cuda import NnetComputer, Tracer
from nnet3_training import saturated_units
from threadpoolctl import threadpool_limits

from nnet3_report.curves import with_unit
from nnet3_report.layers import frames_read

Array = npt.NDArray[np.float32]

SMALLEST_RANK, LARGEST_RANK = 8, 2048
"""The rank is shown of matrices whose smaller side is within these: larger ones take seconds."""

MOST_NODES = 3
"""The most nodes of a component that are named."""

ENERGY = 0.9
"""The part of the sum of squares that the singular values counted by the rank hold."""


class ComponentFacts(NamedTuple):
    """A row of the table of components.

    Attributes:
        name: The component.
        type: Its type, without "Component".
        input_dim: Number of columns of its input.
        output_dim: Number of columns of its output.
        num_parameters: Number of trainable parameters.
        learning_rate: The learning rate of a component with parameters; else None.
        rms: Root mean square of its largest matrix; None without one.
        rank: Number of that matrix's singular values that hold `ENERGY` of the sum of squares.
        full_rank: Number of its singular values; None if the rank is not computed.
        frames: The frames that a row reads, counted from its own, such as "-3, 0"; "" for its own
            frame alone.
        activity: The statistics in words, such as "positive in 31 % of frames".
        warning: A finding that deserves a look, such as "3 of 64 units are dead".
        nodes: The nodes that use it, such as "a, b"; "" if it is one of the same name.
    """

    name: str
    type: str
    input_dim: int
    output_dim: int
    num_parameters: int
    learning_rate: float | None
    rms: float | None
    rank: int | None
    full_rank: int | None
    frames: str
    activity: str
    warning: str
    nodes: str


def component_facts(nnet: Nnet) -> Iterator[ComponentFacts]:
    """Returns the facts of all components, in their order."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for node in nnet.nodes:
        if isinstance(node, ComponentNode):
            nodes[node.component].append(node.name)
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        rms, rank, full_rank = _matrix_facts(component)
        activity, warning = _activity(component)
        yield ComponentFacts(
            name=name,
            type=component.type.removesuffix("Component"),
            input_dim=component.input_dim,
            output_dim=component.output_dim,
            num_parameters=component.num_parameters,
            learning_rate=getattr(component, "learning_rate", None),
            rms=rms,
            rank=rank,
            full_rank=full_rank,
            frames=frames_read(component),
            activity=activity,
            warning=warning,
            nodes="" if nodes[name] == [name] else _listed(nodes[name]),
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NODES]) or "none"
    return f"{shown} and {len(names) - MOST_NODES:,} more" if len(names) > MOST_NODES else shown


def _matrix_facts(component: Component) -> tuple[float | None, int | None, int | None]:
    """The root mean square, the rank and the full rank of the largest matrix."""
    arrays = component.parameter_arrays().values()
    matrices = [array for array in arrays if array.ndim == 2 and array.size]
    if not matrices:
        return None, None, None
    matrix = max(matrices, key=np.size)
    rms = float(np.sqrt(np.mean(np.square(matrix, dtype=np.float64))))
    full_rank = min(matrix.shape)
    if not SMALLEST_RANK <= full_rank <= LARGEST_RANK or not np.isfinite(rms):
        return rms, None, None
    return rms, rank_of(matrix), full_rank


def rank_of(matrix: Array) -> int:
    """Returns the number of singular values that hold `ENERGY` of the sum of squares; 0 for zeros.

    Args:
        matrix: (rows, cols).
    """
    narrow = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    squares = np.linalg.eigvalsh(narrow.T.astype(np.float64) @ narrow)[::-1].clip(min=0)
    total = squares.sum()
    if total == 0:
        return 0
    return int(np.searchsorted(np.cumsum(squares), ENERGY * total) + 1)


def _activity(component: Component) -> tuple[str, str]:
    """The statistics in words, and what of them deserves a look."""
    match component:
        case BatchNormComponent(count=count) if count > 0:
            return f"statistics of {count:,.0f} frames", ""
        case RectifiedLinearComponent() | SigmoidComponent() | TanhComponent():
            units = saturated_units(component)
            if units is None:
                return "", ""
            average = float(component.deriv_avg.mean())
            if isinstance(component, RectifiedLinearComponent):
                activity, what = f"positive in {100 * average:.0f} % of frames", "dead"
            else:
                activity, what = f"average derivative {average:.2f}", "saturated"
            count, of = units
            return activity, f"{count:,} of {of:,} units {what}" if count else ""
    return "", ""


class Stage(NamedTuple):
    """A computation after a pass.

    Attributes:
        name: The name of the pass that made it; "compiled" for the first stage.
        commands: The number of its commands.
        peak_bytes: The most bytes of its matrices at one time.
        summary: A sentence on what the pass does.
    """

    name: str
    commands: int
    peak_bytes: int
    summary: str


class ProgramFacts(NamedTuple):
    """The program of a request.

    Attributes:
        stages: The computation as compiled, and after each pass that changed it.
        bytes_held: Bytes of matrices after each command: "compiled", and "optimized" by all passes.
        optimized: The computation after all passes.
        listing: Its commands, each with the bytes of matrices after it; then its matrices, and its
            lists of rows.
    """

    stages: tuple[Stage, ...]
    bytes_held: dict[str, npt.NDArray[np.int64]]
    optimized: NnetComputation
    listing: tuple[str, ...]


def program_facts(nnet: Nnet, request: ComputationRequest) -> ProgramFacts:
    """Compiles a request, and applies the passes one by one.

    Raises:
        NotComputableError: An output cannot be computed.
        RequestError: The request does not fit the network.
    """
    compiled = compile_computation(nnet, request)
    summaries = pass_summaries()
    stages, last = [_stage("compiled", compiled, "The program as the compiler made it.")], compiled
    for name, last in optimize_in_steps(nnet, compiled):
        summary = summaries[name]
        stages.append(_stage(name, last, f"{summary[0].upper()}{summary[1:]}"))
    bytes_held = {"compiled": live_bytes(compiled), "optimized": live_bytes(last)}
    return ProgramFacts(
        stages=tuple(stages),
        bytes_held=bytes_held,
        optimized=last,
        listing=tuple(_listing(format_computation(last, nnet), bytes_held["optimized"])),
    )


def _listing(text: str, held: npt.NDArray[np.int64]) -> Iterator[str]:
    """The lines of the text form that people read: commands, matrices and lists."""
    lines = text.splitlines()
    commands = [line for line in lines if re.match(r"c\d+: ", line)]
    for line, size in zip(commands, held.tolist(), strict=True):
        yield f"{with_unit(size):>9}  {line}"
    for kind in "mijrp":
        found = [line for line in lines if re.match(rf"{kind}\d+ = ", line)]
        if found:
            yield ""
            yield from found


def _stage(name: str, computation: NnetComputation, summary: str) -> Stage:
    return Stage(name, len(computation.command_table), peak_bytes(computation), summary)


RUNS = 5
"""The number of runs; the shortest time of each command counts."""


class NodeTime(NamedTuple):
    """The time of all commands of a node.

    Attributes:
        node: The node; "" for commands without a known node.
        commands: Number of its commands.
        seconds: Seconds of all of them together.
    """

    node: str
    commands: int
    seconds: float


def node_times(
    nnet: Nnet, request: ComputationRequest, computation: NnetComputation
) -> list[NodeTime]:
    """Runs a program a few times on the processor, on one thread; returns the slowest node first.

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
    times = [NodeTime(node, len(seconds), sum(seconds)) for node, seconds in by_node.items()]
    return sorted(times, key=lambda each: -each.seconds)
