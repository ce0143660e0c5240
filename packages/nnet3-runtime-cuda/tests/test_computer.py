"""NnetComputer: refused inputs, unchanged arrays, and no allocations."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import numpy as np
import pytest
from computations import bound, compiled, interruptions, loop, passes, request, single
from nnet3_compiler import compile_computation, compile_segments, looped_requests
from nnet3_compiler.looped import extended_requests
from nnet3_computation import NnetComputation
from nnet3_computation.commands import Command
from nnet3_descriptors import set_test_mode, vectorize
from nnet3_descriptors.editing import set_learning_rate
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, RunError
from nnet3_runtime_cuda.cpu import Workspace, recorder
from small_networks import RECURRENT, network, stacked

TIMES = range(4)
ROWS = 2 * len(TIMES)

NETWORK = stacked(
    6,
    "affine NaturalGradientAffine input-dim=18 output-dim=8",
    "relu RectifiedLinear dim=8 self-repair-scale=0",
    "norm BatchNorm dim=8",
    "tdnn Tdnn input-dim=8 output-dim=10 time-offsets=-1,0",
    "lstm LstmNonlinearity cell-dim=2 self-repair-scale=0",
    "last Linear input-dim=4 output-dim=3",
    "softmax LogSoftmax dim=3",
    splice="Append(Offset(input, -1), input, Offset(input, 1))",
)


def affine_computer(*, training: bool = True) -> NnetComputer:
    """A computer of one affine component."""
    return bound(single(AFFINE, dim=4), TIMES, training=training)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def spoilt(value: float) -> np.ndarray:
    """An input with one bad element."""
    array = random(ROWS, 4)
    array[5, 2] = value
    return array


def test_passes_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted pass has no backward pass; refused derivatives leave the old gradient."""
    due = interruptions(monkeypatch)
    computer, other = (bound(network(RECURRENT), TIMES) for _ in range(2))
    inputs, derivatives = {"input": random(ROWS, 4)}, {"output": random(ROWS, 3)}
    computer.forward(inputs)
    for run, given in ((computer.forward, inputs), (computer.backward, derivatives)):
        due.append(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run(given)
        with pytest.raises(RunError, match="needs a forward"):
            computer.backward(derivatives)
        computer.forward(inputs)

    for ours, theirs in zip(passes(computer), passes(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    computer.forward(inputs)
    with pytest.raises(RunError, match="output derivative 'output' is missing"):
        computer.backward({})
    np.testing.assert_array_equal(vectorize(computer.gradient), vectorize(other.gradient))
    computer.backward(derivatives)


@pytest.mark.parametrize("is_loop", [True, False])
def test_interrupted_segments(is_loop: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupted segment the state is lost: only reset() allows further segments."""
    nnet, due = network(RECURRENT), interruptions(monkeypatch)
    segments = extended_requests(looped_requests(nnet, 6), 4)
    computer = NnetComputer(nnet, loop(nnet, 6) if is_loop else compile_segments(nnet, segments))
    chunks = [{"input": chunk} for chunk in np.split(random(24, 4), 4)]
    expected = [computer.forward(chunk)["output"] for chunk in chunks]
    computer.forward(chunks[0])

    due.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        computer.forward(chunks[1])
    with pytest.raises(RunError, match=r"segment was interrupted.*reset\(\) begins with the first"):
        computer.forward(chunks[1])

    computer.reset()
    found = [computer.forward(chunk)["output"] for chunk in chunks]
    np.testing.assert_array_equal(found, expected)


def test_overflows_are_no_error() -> None:
    """Infinite sums of large numbers, and factors beyond single precision, give no warning."""
    affine_computer().forward({"input": np.full((ROWS, 4), 3e38, dtype=np.float32)})
    computer = bound(single("type=NormalizeComponent dim=4 target-rms=1e-45", dim=4), TIMES)
    computer.forward({"input": np.zeros((ROWS, 4))})


@pytest.mark.parametrize(
    "component",
    ["LstmNonlinearityComponent cell-dim=3", "TanhComponent dim=15", "SigmoidComponent dim=15"],
)
def test_infinite_statistics_are_no_error(component: str) -> None:
    """Statistics of a file may be infinite; they become NaN without a warning."""
    nnet = single(f"type={component}", dim=15)
    averages = nnet.component("c").value_avg
    filled = nnet.component("c").replace(value_avg=np.full(averages.shape or 15, np.inf))
    nnet = nnet.with_components({"c": filled})

    computer = bound(nnet, TIMES)

    assert not np.isfinite(computer.nnet.component("c").value_avg).any()


def test_settings_of_numpy() -> None:
    """A run does not depend on what NumPy does about underflow."""
    computer = affine_computer()
    with np.errstate(all="raise"):
        computer.forward({"input": random(ROWS, 4).astype(np.float64) * 1e-300})
        computer.backward({"output": random(ROWS, 3).astype(np.float64) * 1e-300})


def test_runs_leave_each_other_alone() -> None:
    """Runs change no inputs and no earlier outputs; the same inputs give the same bits."""
    nnet = network(NETWORK)
    computation = compiled(nnet, range(-3, 9), range(6), optimized=True)
    used, fresh = NnetComputer(nnet, computation), NnetComputer(nnet, computation)
    given = random(24, 6)
    first = used.forward({"input": given})["output"]
    kept = first.copy()
    passes(used, seed=7)

    np.testing.assert_array_equal(given, random(24, 6))
    np.testing.assert_array_equal(first, kept)
    for ours, theirs in zip(passes(used), passes(fresh), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_statistics_are_recorded() -> None:
    """The computers of a network count the rows of their runs together; it stays as it was."""
    nnet = network(NETWORK)
    shared = DeviceNnet(nnet)
    computation = compiled(nnet, range(-3, 9), range(6))
    for seed in range(3):
        computer = NnetComputer(shared, computation)
        passes(computer, seed)

    norm = computer.nnet.component("norm")
    assert norm.count == 3 * 2 * 7
    assert computer.nnet.component("relu").count > 0
    assert nnet.component("norm").count == 0


WIDE = stacked(
    40,
    "convolution TimeHeightConvolution num-filters-in=20 height-in=2 num-filters-out=20 "
    "height-out=2 height-offsets=-1,0,1 time-offsets=-1,0,1",
    "up Tdnn input-dim=40 output-dim=100 time-offsets=-1,0,1",
    "relu RectifiedLinear dim=100 self-repair-scale=1.0e-5",
    "norm BatchNorm dim=100",
    "down Linear input-dim=200 output-dim=100 input=Append(Offset(norm, -3), norm)",
    "lstm LstmNonlinearity cell-dim=20",
    "last NaturalGradientAffine input-dim=40 output-dim=80 "
    "input=Sum(Scale(0.5, lstm), Offset(lstm, 1))",
    "softmax LogSoftmax dim=80",
)

LARGEST = 8192
"""Bytes of Python objects and NumPy iterators that a thread holds during a run: at most 16 kB on
two threads. The smallest array of `WIDE` has 64 kB, and a thread's share of it 32 kB."""

FIRST_RUNS = 4
"""Number of runs before the measurement: NumPy makes a table at the first call of a function, and
only some runs call all functions (statistics, self-repair)."""


def peak(run: Callable[[], dict[str, np.ndarray]]) -> int:
    """The most bytes held during a run, without the returned arrays."""
    tracemalloc.start()
    try:
        arrays = run()
        return tracemalloc.get_traced_memory()[1] - sum(a.nbytes for a in arrays.values())
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_running_allocates_nothing(
    threads: int, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass allocates only the arrays that it returns."""
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1 << 4)  # threads share even small operations
    nnet = network(WIDE)
    nnet = nnet if training else set_test_mode(nnet)
    asked = {"sequences": 1, "training": training, "optimized": True}
    computer = bound(nnet, range(-5, 405), range(400), **asked, threads=threads)
    for _ in range(FIRST_RUNS):
        passes(computer)
    inputs, derivatives = {"input": random(410, 40)}, {"output": random(400, 80)}

    assert peak(lambda: computer.forward(inputs)) < LARGEST * threads < computer.memory_bytes / 10
    if training:
        assert peak(lambda: computer.backward(derivatives)) < LARGEST * threads


def test_no_gradient_of_another_computer() -> None:
    """A backward pass that reaches no parameters leaves a gradient of zero, whatever ran before."""
    other = "output-node name=other input=input\n"
    nnet = network(stacked(3, "affine Affine input-dim=3 output-dim=3") + other)
    shared, asked = DeviceNnet(nnet, trainable=True), request(TIMES, TIMES, training=True)
    (output,) = asked.outputs
    for name in ("output", "other"):
        named = attrs.evolve(asked, outputs=[attrs.evolve(output, name=name)])
        computer = NnetComputer(shared, compile_computation(nnet, named))
        computer.forward({"input": random(ROWS, 3)})
        computer.backward({name: random(ROWS, 3)})
        found = vectorize(computer.gradient)

        assert found.any() == (name == "output")


AFFINE = "type=AffineComponent input-dim=4 output-dim=3"
CONVOLUTION = (
    "type=TimeHeightConvolutionComponent num-filters-in=1 num-filters-out=1 height-in=4 "
    "height-out=4 height-offsets=0 required-time-offsets=0"
)
ATTENTION = "type=RestrictedAttentionComponent value-dim=3 output-context=false"


def bound_to_another(one: str, other: str, dim: int) -> NnetComputer:
    """Binds the computation of a component to another one of the same dimensions."""
    inputs = range(4) if "Dropout" in one or "Linear" in one else range(-1, 5)
    computation = compiled(single(one, dim=dim), inputs, range(4), sequences=1, training=False)
    computation = attrs.evolve(computation, network=None)  # the fingerprint would refuse it first
    return NnetComputer(single(other, dim=dim), computation)


def without(computation: NnetComputation, command: type[Command]) -> NnetComputation:
    """A computation without its first command of a type."""
    is_of_type = computation.command_table[:, 0] == command.OPCODE
    table = np.delete(computation.command_table, int(np.argmax(is_of_type)), axis=0)
    return attrs.evolve(computation, command_table=table)


@pytest.mark.parametrize("backward", [False, True])
def test_a_second_thread_is_refused(backward: bool) -> None:
    """While a thread runs a computer, another one gets an error, and the first its own result."""
    computer = bound(network(RECURRENT), TIMES)
    x, dy = np.ones((ROWS, 4), np.float32), np.ones((ROWS, 3), np.float32)
    expected = computer.forward({"input": x}), computer.backward({"output": dy})
    refused = []

    def run(values: Any) -> Any:
        name = "output" if backward else "input"
        return (computer.backward if backward else computer.forward)({name: values})

    class RunsBeside:
        """An array that, when it is read, has another thread run the computer."""

        def __array__(self, *_: object, **__: object) -> np.ndarray:
            with ThreadPoolExecutor(1) as pool:
                refused.append(pool.submit(run, dy if backward else x).exception())
            return dy if backward else x

    if backward:
        computer.forward({"input": x})
    found = run(RunsBeside())

    (error,) = refused
    assert isinstance(error, RunError)
    assert str(error) == (
        "another thread is running this computer: make a NnetComputer for each thread"
    )
    for name, values in expected[backward].items():
        np.testing.assert_array_equal(found[name], values)


def test_steps_follow_changed_learning_rates() -> None:
    """A step has the learning rates that `change_options` gave last."""
    nnet = set_learning_rate(single("type=LinearComponent input-dim=4 output-dim=3", dim=4), 0.5)
    device = DeviceNnet(nnet, trainable=True)
    device.direction[:] = 1.0
    start = device.parameters.copy()

    device.take_step()
    device.change_options(set_learning_rate(nnet, 0.25))
    device.take_step()

    np.testing.assert_allclose(device.parameters, start + 0.75, rtol=1e-6)


def test_computers_in_one_workspace() -> None:
    """Programs that run in turn at the same place have the results of programs alone."""
    nnet, workspace = network(NETWORK), Workspace(1 << 20)
    programs = [
        compiled(nnet, range(-2, end + 1), range(end), training=False) for end in (9, 4, 17)
    ]
    alone, beside = (
        [NnetComputer(nnet, each, workspace=place) for each in programs]
        for place in (None, workspace)
    )

    for seed in range(2):
        for one, other in zip(alone, beside, strict=True):
            np.testing.assert_array_equal(passes(one, seed), passes(other, seed))
    starts = {each._program.forward[0].inputs["input"].base.ctypes.data for each in beside[:2]}
    assert len(starts) == 1


def test_outputs_in_place() -> None:
    """Without copies the next run overwrites the outputs, but those of a loop are copied."""
    computer, nnet = affine_computer(training=False), network(RECURRENT)
    copied = computer.forward({"input": random(ROWS, 4)})["output"]
    in_place = computer.forward({"input": random(ROWS, 4)}, copies=False)["output"]
    np.testing.assert_array_equal(in_place, copied)
    following = computer.forward({"input": random(ROWS, 4, seed=1)})["output"]
    np.testing.assert_array_equal(in_place, following)

    chunks = [{"input": chunk} for chunk in np.split(random(24, 4), 4)]
    expected, found = (
        [looped.forward(chunk, copies=copies)["output"] for chunk in chunks]
        for looped, copies in ((NnetComputer(nnet, loop(nnet, 6)), each) for each in (True, False))
    )
    np.testing.assert_array_equal(found, expected)


def test_large_matrices_have_memory_of_their_own() -> None:
    """A workspace keeps no memory for programs that are larger, or no longer there."""
    workspace = Workspace(1 << 10)
    large, small = workspace.matrices(1 << 10, np.float32), workspace.matrices(64, np.float32)

    assert not np.may_share_memory(small, workspace.matrices(1 << 10, np.float32))
    assert np.may_share_memory(small, workspace.matrices(128, np.float32))
    assert large.nbytes == 1 << 12
    block = np.empty(64, np.uint8)
    workspace.add_scratch(block)
    assert workspace.scratch()[0] is block
    del block
    assert not workspace.scratch()
