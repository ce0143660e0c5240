"""Traces: tracing changes no calls and no values, and its numbers are right."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from computations import compiled, passes, request
from nnet3 import load
from nnet3_compiler import compile_looped
from nnet3_computation import NnetComputation, Propagate
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, Trace, Tracer, format_trace, trace_events
from nnet3_runtime_cuda.lowering import lower
from nnet3_runtime_cuda.tracing import CommandProfile, CommandRun, Fault, ProgramProfile
from nnet3_runtime_cuda.tracing.tracer import TimedCalls
from small_networks import network, stacked

ROWS = 6

CONFIG = stacked(
    3,
    "affine Affine input-dim=6 output-dim=4",
    "tanh Tanh dim=4 self-repair-scale=0",
    "last Affine input-dim=4 output-dim=2",
    splice="Append(Offset(input, -1), input)",
)

SHARED = """
input-node name=input dim=3
component name=both type=AffineComponent input-dim=3 output-dim=3
component-node name=first component=both input=input
component-node name=second component=both input=Offset(first, 1)
output-node name=output input=second
"""


@pytest.fixture
def nnet() -> Nnet:
    """A small network."""
    return network(CONFIG)


def computation_of(nnet: Nnet, *, training: bool = False) -> NnetComputation:
    """Outputs at times 0 to ROWS - 1, with the context that `CONFIG` and `SHARED` need."""
    asked = {"sequences": 1, "training": training, "optimized": True}
    return compiled(nnet, range(-1, ROWS + 1), range(ROWS), **asked)


def features() -> np.ndarray:
    """Random input for `computation_of`."""
    return np.random.default_rng(1).normal(size=(ROWS + 2, 3)).astype(np.float32)


def traced(nnet: Nnet, *inputs: np.ndarray) -> tuple[np.ndarray, Trace]:
    """The last output of several runs, and their trace."""
    tracer = Tracer()
    computer = NnetComputer(nnet, computation_of(nnet), threads=1, trace=tracer)
    outputs = [computer.forward({"input": x})["output"] for x in inputs]
    return outputs[-1], tracer.trace()


def with_parameters(nnet: Nnet, **scales: float) -> Nnet:
    """The network with the parameters of some components multiplied."""
    state = {
        name: array * np.float32(scales.get(name.partition(".")[0], 1.0))
        for name, array in nnet.state_dict().items()
    }
    return nnet.with_state_dict(state)


def described(call: Any) -> tuple[Any, Any]:
    """A recorded call or operand in comparable form: names, shapes and numbers."""
    if isinstance(call, np.ndarray | int | float | str):
        return type(call), getattr(call, "shape", call)
    if isinstance(call, partial):
        operands = (*call.args, *call.keywords.values())
        return described(call.func), list(map(described, operands))
    owner = getattr(call, "__self__", None)
    return getattr(call, "__name__", type(call)), getattr(owner, "shape", None)


@pytest.mark.parametrize("training", [False, True])
def test_the_same_calls_run(nnet: Nnet, training: bool) -> None:
    """A watch records the same calls in the same order; without a watch nothing is added."""
    computation = computation_of(nnet, training=training)
    device = DeviceNnet(nnet, trainable=training, threads=1)

    plain = lower(device, computation).segments
    watched = lower(device, computation, watch=Tracer().watch(nnet, computation)).segments

    for alone, timed in zip(plain, watched, strict=True):
        assert not any(isinstance(call, TimedCalls) for call in alone.calls)
        assert all(isinstance(call, TimedCalls) for call in timed.calls)
        inner = [call for group in timed.calls for call in group.calls]
        assert list(map(described, inner)) == list(map(described, alone.calls))


@pytest.mark.parametrize("threads", [1, 2])
def test_outputs_and_derivatives_are_the_same(nnet: Nnet, threads: int) -> None:
    """A trace changes no value, forward or backward, on one thread or several."""
    computation, tracer = computation_of(nnet, training=True), Tracer()
    plain, traced = (
        passes(
            NnetComputer(DeviceNnet(nnet, trainable=True, threads=threads), computation, trace=t)
        )
        for t in (None, tracer)
    )

    for ours, theirs in zip(traced, plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    kinds = {command.kind for _, command in tracer.trace().commands}
    assert {"Propagate", "Backprop"} <= kinds


def test_values_by_node(nnet: Nnet) -> None:
    """The largest magnitude of each node follows from the formulas, and the bytes of a command."""
    x = features()
    output, trace = traced(nnet, x)

    state = nnet.state_dict()
    affine = np.hstack([x[:-2], x[1:-1]]) @ state["affine.linear_params"].T
    affine += state["affine.bias_params"]
    of_node = {each.node: each for _, each in trace.commands if each.kind == "Propagate"}
    for node, values in (("affine", affine), ("tanh", np.tanh(affine)), ("last", output)):
        assert of_node[node].largest == pytest.approx(np.abs(values).max(), rel=1e-5)
    # The bytes are those of the input, the output and the parameters.
    assert of_node["last"].nbytes == 4 * (ROWS * 4 + ROWS * 2 + (4 * 2 + 2))
    assert trace.fault is None
    assert [program.name for program in trace.programs] == [f"input {ROWS + 2} -> output {ROWS}"]


def test_runs_are_added_up(nnet: Nnet) -> None:
    """Sums count the runs of all computers of a computation; single runs are the first ones."""
    tracer = Tracer(most_runs=3)
    computation = computation_of(nnet)
    for _ in range(2):
        computer = NnetComputer(nnet, computation, threads=1, trace=tracer)
        computer.forward({"input": features()})
        computer.forward({"input": features()})

    trace = tracer.trace()

    [program] = trace.programs
    assert {command.runs for command in program.commands} == {4}
    assert len(trace.runs) == 3
    assert trace.num_left_out == 4 * len(program.commands) - 3
    ends = [run.start + run.seconds for run in trace.runs]
    assert ends == sorted(ends)
    assert trace.seconds == pytest.approx(sum(each.seconds for each in program.commands))


def test_first_fault(nnet: Nnet) -> None:
    """The first node with an overflow is named, even if later nodes hide it."""
    large = with_parameters(nnet, affine=1e38)
    x = np.ones((ROWS + 2, 3), np.float32)
    larger = x.copy()
    larger[4] *= 100.0

    output, trace = traced(large, x, larger)

    fault = trace.fault
    assert np.isfinite(output).all()  # the tanh of infinity is 1
    assert fault is not None
    assert (fault.node, fault.index, fault.run) == ("affine", (0, 3, 0), 2)
    assert fault.value in ("inf", "-inf")
    assert "affine.propagate" in fault.text
    assert str(fault).startswith(f"overflow ({fault.value}) in node 'affine' at n=0, t=3, column ")


def test_nodes_that_share_a_component() -> None:
    """The matrix tells which of two nodes with one component a command computes."""
    nnet = with_parameters(network(SHARED), both=1e20)

    output, trace = traced(nnet, features())

    nodes = [each.node for _, each in trace.commands if each.kind == Propagate.__name__]
    assert nodes == ["first", "second"]
    assert not np.isfinite(output).all()
    assert trace.fault is not None
    assert trace.fault.node == "second"


def test_models_and_streams(nnet: Nnet) -> None:
    """Models trace utterances and streams, and give the same outputs."""
    tracer = Tracer()
    model, plain = load(nnet, trace=tracer, threads=2), load(nnet)
    x = features()

    np.testing.assert_array_equal(
        model.compute(x, frames_per_chunk=2), plain.compute(x, frames_per_chunk=2)
    )
    before = len(tracer.trace().programs)
    stream = model.stream(frames_per_chunk=4)
    stream.push(x)
    stream.finish()

    assert before >= 1
    assert len(tracer.trace().programs) > before


def test_loops(nnet: Nnet) -> None:
    """A looped computation is traced chunk by chunk."""
    requests = [
        request(range(begin, end), range(max(begin, 0), end), sequences=1, training=False)
        for begin, end in ((-1, 3), (3, 6), (6, 9))
    ]
    tracer = Tracer()
    computer = NnetComputer(nnet, compile_looped(nnet, requests), threads=1, trace=tracer)
    for rows in (4, 3, 3, 3):
        computer.forward({"input": np.ones((rows, 3), np.float32)})

    trace = tracer.trace()

    runs = sum(each.runs for _, each in trace.commands if "last.propagate" in each.text)
    assert runs == 4
    assert trace.fault is None


def test_events(nnet: Nnet) -> None:
    """The file for viewers is JSON in Chrome's format, with an event for each run."""
    _, trace = traced(with_parameters(nnet, affine=1e38), features() * 1e3)

    events = json.loads(trace_events(trace))["traceEvents"]

    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(trace.runs)
    assert {"affine", "tanh", "last"} <= {event["name"] for event in complete}
    for event, run in zip(complete, trace.runs, strict=True):
        assert event["ts"] == pytest.approx(run.start * 1e6)
        assert event["dur"] == pytest.approx(run.seconds * 1e6)
        assert event["tid"] == run.thread
    [mark] = [event for event in events if event["ph"] == "i"]
    assert mark["name"] == str(trace.fault)
    [affine] = [
        each for each in complete if each["name"] == "affine" and each["cat"] == "Propagate"
    ]
    assert mark["ts"] == pytest.approx(affine["ts"] + affine["dur"])


def test_table() -> None:
    """The tables of a trace."""
    usual = {"kind": "Propagate", "nbytes": 1_000_000, "runs": 2, "seconds": 0.001, "largest": 3.5}

    def profile(position: int, node: str, **changes: Any) -> CommandProfile:
        text = f"m2 = {node}.propagate(m1)"
        return CommandProfile(position=position, text=text, node=node, **(usual | changes))

    commands = (
        profile(3, "first"),
        profile(5, "first", kind="MatrixAdd", seconds=0.003, largest=None),
        profile(7, "second", seconds=0.004, largest=12.25),
    )
    place = {"row": 4, "column": 1, "index": None}
    fault = Fault(
        program=0, position=7, run=2, node="second", text=commands[2].text, value="nan", **place
    )
    trace = Trace(
        programs=(ProgramProfile(name="input 8 -> output 6", commands=commands),),
        runs=(CommandRun(program=0, command=0, start=0.0, seconds=0.1, thread=0),),
        num_left_out=1234,
        fault=fault,
    )

    lines = format_trace(trace, most_lines=2).splitlines()

    assert lines == [
        "node    runs    ms  share   MB  GB/s  largest",
        "first      4  4.00  50.0%  4.0   1.0      3.5",
        "second     2  4.00  50.0%  2.0   0.5     12.2",
        "",
        "kind       runs    ms  share   MB  GB/s  largest",
        "Propagate     4  5.00  62.5%  4.0   0.8     12.2",
        "MatrixAdd     2  3.00  37.5%  2.0   0.7",
        "",
        "command [program]                  runs    ms  share   MB  GB/s  largest",
        "c7: m2 = second.propagate(m1) [0]     2  4.00  50.0%  2.0   0.5     12.2",
        "c5: m2 = first.propagate(m1) [0]      2  3.00  37.5%  2.0   0.7",
        "1 more: 1.00 ms",
        "",
        "[0] input 8 -> output 6: 8.00 ms",
        "1,234 single runs were counted and not kept",
        "all values are finite: no",
        "first: no number (nan) in node 'second' at row 4, column 1, in run 2 of c7: "
        "m2 = second.propagate(m1)",
    ]
