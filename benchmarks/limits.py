"""The cost of excessive networks, requests and files until they are refused.

    python benchmarks/limits.py                            # a table: case, seconds, MB, message
    python benchmarks/limits.py --memory 300 --cpu 2       # under limits of the operating system

Each case runs in its own process, forked from one with all packages loaded. Seconds are processor
time. MB is the largest growth of the resident memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from networks import BENCHMARKS
from nnet3_compiler import compile_computation, compile_looped, looped_requests
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, SerializationError, parse_config, set_test_mode
from nnet3_descriptors.errors import Nnet3Error
from nnet3_graph import compute_context
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer

INPUT = "input-node name=input dim=4\n"
LARGEST = 2**31 - 1


def affine(descriptor: str) -> str:
    """A network with one affine component whose input is a descriptor of dimension 4."""
    return (
        f"{INPUT}component name=c type=AffineComponent input-dim=4 output-dim=4\n"
        f"component-node name=c component=c input={descriptor}\noutput-node name=output input=c\n"
    )


def of_component(kind: str, options: str) -> str:
    """A network with one component on an input of dimension 4."""
    return (
        f"{INPUT}component name=c type={kind} {options}\n"
        "component-node name=c component=c input=input\noutput-node name=output input=c\n"
    )


def output_of(descriptor: str) -> str:
    """A network whose output is a descriptor."""
    return f"{INPUT}output-node name=output input={descriptor}\n"


def chain(length: int, form: str = "{source}") -> str:
    """A chain of `length` component nodes.

    Args:
        length: Number of nodes.
        form: Each node's descriptor, of {source}, {node} and an {offset} of 1 and -1 by turns.
    """
    lines = [INPUT + "component name=c type=NoOpComponent dim=4\n"]
    source = "input"
    for number in range(length):
        offset = 1 - number % 2 * 2
        descriptor = form.format(source=source, node=f"n{number}", offset=offset)
        lines.append(f"component-node name=n{number} component=c input={descriptor}\n")
        source = f"n{number}"
    return "".join([*lines, f"output-node name=output input={source}\n"])


def doubled_append(times: int) -> str:
    """A network in which each node appends the one before it to itself."""
    lines, source = [INPUT], "input"
    for number in range(times):
        name = f"n{number}"
        lines.append(
            f"component name={name} type=NoOpComponent dim={8 << number}\n"
            f"component-node name={name} component={name} input=Append({source}, {source})\n"
        )
        source = name
    return "".join([*lines, f"output-node name=output input={source}\n"])


def request(
    given: Sequence[Sequence[int]] = (), wanted: Sequence[Sequence[int]] = ()
) -> ComputationRequest:
    """A request for rows (n, t, x); by default for ten frames with ten around them."""
    if not given:
        return ComputationRequest(
            inputs=[IoSpecification.from_range("input", -10, 20)],
            outputs=[IoSpecification.from_range("output", 0, 10)],
        )
    return ComputationRequest(
        inputs=[IoSpecification(name="input", indexes=np.array(given, dtype=np.int32))],
        outputs=[IoSpecification(name="output", indexes=np.array(wanted, dtype=np.int32))],
    )


def far_request(t: int) -> ComputationRequest:
    """A request for the frames 1 and t, with inputs of ten frames."""
    return request([(0, time, 0) for time in range(10)], [(0, 1, 0), (0, t, 0)])


def rows_of(lengths: Sequence[int], context: int = 0, step: int = 1) -> np.ndarray:
    """The rows (n, t, x) of sequences, with `context` frames before and after each."""
    times = [np.arange(-context, length + context, step) for length in lengths]
    n = np.repeat(np.arange(len(times)), [len(each) for each in times])
    return np.stack([n, np.concatenate(times), 0 * n], axis=1).astype(np.int32)


def ragged_lengths(sequences: int) -> list[int]:
    """Lengths of sequences, 1 to 59 frames."""
    lengths: list[int] = np.random.default_rng(0).integers(1, 60, sequences).tolist()
    return lengths


def ragged(sequences: int) -> ComputationRequest:
    """A request for sequences of 1 to 59 frames."""
    lengths = ragged_lengths(sequences)
    return ComputationRequest(
        inputs=[IoSpecification(name="input", indexes=rows_of(lengths, context=1))],
        outputs=[IoSpecification(name="output", indexes=rows_of(lengths))],
    )


def bind_ragged(name: str, *, train: bool, sequences: int = 3000, scale: float = 0.1) -> str:
    """Binds a benchmark network with smaller layers to sequences of 1 to 59 frames.

    The request asks for every third frame. Returns the time of binding, a part of the whole.
    """
    benchmark, lengths = BENCHMARKS[name], ragged_lengths(sequences)
    nnet = parse_config(benchmark.config(scale))
    nnet = nnet if train else set_test_mode(nnet)
    outputs = benchmark.outputs if train else benchmark.outputs[:1]
    context = -benchmark.input_times.start
    inputs = {"input": rows_of(lengths, context), "ivector": rows_of([1] * sequences)}
    computation = compile_computation(
        nnet,
        ComputationRequest(
            inputs=[IoSpecification(name=key, indexes=rows) for key, rows in inputs.items()],
            outputs=[
                IoSpecification(name=key, indexes=rows_of(lengths, step=3), has_deriv=train)
                for key in outputs
            ],
            need_model_derivative=train,
            store_component_stats=train,
        ),
    )
    computation = optimize(nnet, computation)
    start = time.process_time()
    computer = NnetComputer(nnet, computation, threads=1)
    seconds = time.process_time() - start
    return f"done, of which binding {computer.num_calls:,} calls {seconds:.1f} s"


def use(config: str, wanted: ComputationRequest | None = None) -> None:
    """Uses a network as users do, until it is refused."""
    nnet = parse_config(config)
    nnet.info()
    with contextlib.suppress(Nnet3Error):  # not every network has a context
        compute_context(nnet)
    NnetComputer(nnet, optimize(nnet, compile_computation(nnet, wanted or request())))


def optimize_training(config: str) -> None:
    """Compiles and optimizes a program with derivatives for three frames."""
    nnet, rows = parse_config(config), IoSpecification.from_range
    wanted = ComputationRequest(
        inputs=[rows("input", 0, 3, has_deriv=True)],
        outputs=[rows("output", 0, 3, has_deriv=True)],
        store_component_stats=True,
    )
    optimize(nnet, compile_computation(nnet, wanted))


def print_info(config: str) -> None:
    """Prints a network."""
    parse_config(config).info()


def parse_and_compile(config: str) -> None:
    """Reads a network, prints it, and compiles ten frames."""
    nnet = parse_config(config)
    nnet.info()
    compile_computation(nnet, request())


def find_context(config: str) -> None:
    """Finds the context of a network."""
    compute_context(parse_config(config))


def use_looped(config: str) -> None:
    """Compiles a network for chunks without end."""
    nnet = parse_config(config)
    compile_looped(nnet, looped_requests(nnet, 3))


def nested(form: str, depth: int) -> str:
    """A recurrent network with a descriptor that nests a form `depth` times."""
    descriptor = "c"
    for _ in range(depth):
        descriptor = f"{form}({descriptor}, input)"
    return (
        f"{INPUT}component name=c type=NoOpComponent dim=4\n"
        "component-node name=c component=c input=Sum(input, IfDefined(Offset(d, -1)))\n"
        f"component-node name=d component=c input={descriptor}\noutput-node name=output input=d\n"
    )


def pooling_below_a_recurrence(frames: int) -> str:
    """A network with a recurrence over as many frames as the window of a pooling."""
    return (
        f"{INPUT}component name=p type=StatisticsPoolingComponent input-dim=4 left-context=2 "
        f"right-context={frames} num-log-count-features=0 output-stddevs=false\n"
        "component name=r type=NoOpComponent dim=3\n"
        "component-node name=p component=p input=Sum(Offset(input, -1), input)\n"
        "component-node name=r component=r input=Failover(Offset(r, -3), IfDefined(p))\n"
        "output-node name=output input=Append(Round(r, 3), p)\n"
    )


def recurrence_from(frames: int) -> str:
    """A network with a recurrence whose first value is so many frames before its input."""
    descriptor = f"Failover(Offset(c, -3), Offset(input, {frames}))"
    return (
        f"{INPUT}component name=c type=NoOpComponent dim=4\n"
        f"component-node name=c component=c input={descriptor}\n"
        "dim-range-node name=d input-node=c dim-offset=1 dim=2\n"
        "output-node name=output input=Append(c, d)\n"
    )


def pooled_sums(period: int, frames: int) -> str:
    """A network that pools, over a window of so many frames, the sums of periods."""
    return (
        f"{INPUT}component name=e type=StatisticsExtractionComponent input-dim=4 "
        f"output-period={period} include-variance=false\n"
        "component name=p type=StatisticsPoolingComponent input-dim=5 "
        f"left-context={frames // 2} right-context={frames // 2}\n"
        "component-node name=e component=e input=input\n"
        "component-node name=p component=p input=e\noutput-node name=output input=p\n"
    )


def lstm() -> str:
    """A network with an LSTM above a component that is asked for what it reads."""
    return (
        f"{INPUT}component name=d type=DistributeComponent input-dim=4 output-dim=4\n"
        "component name=g type=AffineComponent input-dim=8 output-dim=16\n"
        "component name=n type=LstmNonlinearityComponent cell-dim=4\n"
        "component-node name=d component=d input=input\n"
        "component-node name=g component=g input=Append(d, IfDefined(Offset(m, -1)))\n"
        "component-node name=cell component=n input=Append(g, IfDefined(Offset(c, -1)))\n"
        "dim-range-node name=c input-node=cell dim-offset=0 dim=4\n"
        "dim-range-node name=m input-node=cell dim-offset=4 dim=4\n"
        "output-node name=output input=m\n"
    )


def recurrence(descriptor: str) -> str:
    """A network with a recurrence: node r reads a descriptor of r and d, and d reads r."""
    return (
        f"{INPUT}component name=r type=NoOpComponent dim=4\n"
        "component name=d type=DistributeComponent input-dim=4 output-dim=4\n"
        f"component-node name=r component=r input={descriptor}\n"
        "component-node name=d component=d input=r\noutput-node name=output input=r\n"
    )


def container_with_text() -> None:
    """Reads a network whose nodes have 100,000 letters."""
    data = parse_config(output_of("input")).to_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    content = json.loads(header["__metadata__"]["nnet3"])
    content["content"]["nodes"] = "a" * 100_000
    header["__metadata__"]["nnet3"] = json.dumps(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Nnet.from_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


FRAMES_8000 = [(0, t, 0) for t in range(8000)]
SPLICED = affine("Sum(Offset(input, -1), input, Offset(input, 1))")

REFUSED: dict[str, Callable[[], object]] = {
    "Offset(input, 1, 2147483647)": lambda: use(affine(f"Offset(input, 1, {LARGEST})")),
    "request for x = 2147483647": lambda: use(
        affine("input"), request([(0, 0, 0), (0, 0, LARGEST)], [(0, 0, LARGEST)])
    ),
    "request for t = -2147483647 to 2147483647": lambda: use(
        affine("input"), request([(0, -LARGEST, 0), (0, LARGEST, 0)], [(0, LARGEST, 0)])
    ),
    "from_range over 4294967294 frames": lambda: IoSpecification.from_range(
        "input", -LARGEST, LARGEST
    ),
    "from_range of 2147483647 sequences": lambda: IoSpecification.from_range(
        "input", 0, 100, LARGEST
    ),
    "StatisticsPooling over 2147000000 frames": lambda: use(
        of_component(
            "StatisticsPoolingComponent", "input-dim=4 left-context=0 right-context=2147000000"
        )
    ),
    "StatisticsExtraction over 2000000000 frames": lambda: use(
        of_component(
            "StatisticsExtractionComponent", "input-dim=4 input-period=1 output-period=2000000000"
        )
    ),
    "Tdnn with offsets 0 and 1000000001": lambda: use(
        of_component("TdnnComponent", "input-dim=4 output-dim=4 time-offsets=0,1000000001"),
        request([(0, t, 0) for t in (0, 1, 1_000_000_001, 1_000_000_002)], [(0, 0, 0), (0, 1, 0)]),
    ),
    "RepeatedAffine with 10^9 outputs": lambda: use(
        of_component("RepeatedAffineComponent", "input-dim=4 output-dim=1000000000 num-repeats=4")
    ),
    "BatchNorm with blocks of 10^9": lambda: use(
        of_component("BatchNormComponent", "dim=4 block-dim=1000000000")
    ),
    "FixedScale of 10^9": lambda: use(
        of_component("FixedScaleComponent", "dim=1000000000 scale=2")
    ),
    "Const(1.0, 1000000000)": lambda: use(output_of("Append(input, Const(1.0, 1000000000))")),
    "doubled Append, 13 times in one descriptor": lambda: use(
        output_of("Append(" * 13 + ",".join(["input"] * 8192) + ")" * 13 + "," + "a" * 60_000)
    ),
    "doubled Append, 28 nodes": lambda: use(doubled_append(28)),
    "input of dimension 2147483647": lambda: use(
        f"input-node name=input dim={LARGEST}\noutput-node name=output input=input\n"
    ),
    "attention over 2000000000 frames": lambda: use(
        of_component(
            "RestrictedAttentionComponent",
            "num-heads=1 key-dim=1 value-dim=1 num-left-inputs=1999999999 num-right-inputs=1",
        )
    ),
    "100,000 nodes": lambda: use(chain(100_000)),
    "container with 100,000 letters for nodes": container_with_text,
    "5,000 parts of a descriptor at each of 8,000 frames": lambda: use(
        output_of(f"Append({', '.join(['input'] * 5000)})"),
        request(FRAMES_8000, FRAMES_8000),
    ),
    "output at t = 1,000,000 of pooled sums of 1,000 frames": lambda: use(
        pooled_sums(1000, 10_000), far_request(1_000_000)
    ),
    "output of an LSTM at t = 200,000": lambda: use(lstm(), far_request(200_000)),
    "output at t = 200,000 of a recurrence without a first value": lambda: use(
        recurrence("Sum(Offset(r, -1), ReplaceIndex(input, t, 0))"), far_request(200_000)
    ),
    "the same in the second of two sequences": lambda: use(
        recurrence("Sum(Offset(r, -1), ReplaceIndex(input, t, 0))"),
        request(
            [(n, time, 0) for n in range(2) for time in range(10)], [(0, 1, 0), (1, 200_000, 0)]
        ),
    ),
    "output at t = 51,712 of a recurrence through a DistributeComponent": lambda: use(
        recurrence("Sum(input, IfDefined(Offset(d, -1)))"),
        request(
            [(n, time, 0) for n in range(2) for time in range(10)], [(0, 1, 0), (1, 51_712, 0)]
        ),
    ),
    "51,712 frames of a recurrence, all but the first given": lambda: use(
        recurrence("Sum(Offset(r, -1), input)"),
        request([(0, time, 0) for time in range(51_712)], [(0, 51_711, 0)]),
    ),
}
"""Cases that must be refused, each in less than two seconds and 300 MB."""

DONE: dict[str, Callable[[], object]] = {
    "Switch of 997 inputs, info": lambda: print_info(
        affine(f"Switch({', '.join(['input'] * 997)})")
    ),
    "pooling over 32,768 frames below a recurrence": lambda: find_context(
        pooling_below_a_recurrence(32_768)
    ),
    "pooling over 99,998 frames of periods of 100,000, info": lambda: print_info(
        pooled_sums(100_000, 99_998)
    ),
    "a recurrence over 65,536 frames, with derivatives": lambda: optimize_training(
        recurrence_from(65_536)
    ),
    "Failover nested 150 deep, looped": lambda: use_looped(nested("Failover", 150)),
    "10,000 nodes, all stages": lambda: use(chain(10_000)),
    "10,000 nodes with an Offset each, all stages": lambda: use(
        chain(10_000, "Offset({source}, {offset})")
    ),
    "ragged request of 500 sequences": lambda: use(SPLICED, ragged(500)),
    "ragged request of 3,000 sequences": lambda: use(SPLICED, ragged(3000)),
}
"""Large cases that must work, each in less than six seconds and 600 MB."""

LARGER: dict[str, Callable[[], object]] = {
    "10,000 nodes with a recurrence each, parsed and compiled": lambda: parse_and_compile(
        chain(10_000, "Sum({source}, IfDefined(Offset({node}, -1)))")
    ),
    "TDNN-F of 15 layers, 3,000 sequences, use": lambda: bind_ragged("tdnnf", train=False),
    "TDNN-F of 15 layers, 3,000 sequences, training": lambda: bind_ragged("tdnnf", train=True),
}
"""Cases that take more."""


def outcome(case: Callable[[], object]) -> str:
    """Runs a case; returns its text, or "done", or the class and first line of its error."""
    try:
        return str(case() or "done")
    except (Nnet3Error, SerializationError, MemoryError) as error:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def measured(
    case: Callable[[], object],
    memory: int,
    cpu: int,
    tell: Callable[[Callable[[], object]], str] = outcome,
) -> tuple[float, float, str]:
    """Runs a case in a separate process.

    Args:
        case: The case.
        memory: Limit of additional address space in MB; 0 for none.
        cpu: Limit of processor seconds; 0 for none.
        tell: Runs the case and returns the outcome.

    Returns:
        Seconds, MB, and the outcome.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        if memory:
            with open("/proc/self/statm", encoding="utf-8") as statm:
                size = int(statm.read().split()[0]) * resource.getpagesize() + (memory << 20)
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        if cpu:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        what = tell(case)
        seconds = time.process_time() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        os.write(writer, json.dumps((seconds, grown, what)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        written = pipe.read()
    _, status = os.waitpid(process, 0)
    if not written:
        return float(cpu), float("nan"), f"killed by signal {status & 127}"
    seconds, grown, what = json.loads(written)
    return seconds, grown, what


def results(
    cases: dict[str, Callable[[], object]], memory: int, cpu: int
) -> Iterator[tuple[str, float, float, str]]:
    """Name, seconds, MB and outcome of each case."""
    for name, case in cases.items():
        yield name, *measured(case, memory, cpu)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--memory", type=int, default=0, help="MB that a case may take")
    parser.add_argument("--cpu", type=int, default=0, help="seconds that a case may take")
    options = parser.parse_args()
    print("| case | seconds | MB | message |\n|---|---|---|---|")
    for name, seconds, grown, what in results(REFUSED | DONE | LARGER, options.memory, options.cpu):
        print(f"| {name} | {seconds:.2f} | {grown:.0f} | {what} |", flush=True)


if __name__ == "__main__":
    main()
