"""A run allocates only its outputs; its memory is known before, and matrices are handed over."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from computations import request, single
from hypothesis import given
from hypothesis import strategies as st
from nnet3 import CachingCompiler
from nnet3_compiler import CompilerOptions, compile_computation
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
    NnetComputation,
    commands,
    plan_memory,
)
from nnet3_descriptors import parse_config, set_test_mode
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.cpu import recorder
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cuda.memory import check_fits, minibatch_size
from nnet3_runtime_cuda.cuda.platform import Properties
from nnet3_runtime_cuda.errors import DeviceMemoryError
from nnet3_runtime_cuda.lowering.arena import Memory, record_moves

FRAMES = 400

CONFIG = """
input-node name=input dim=40
component name=convolution type=TimeHeightConvolutionComponent num-filters-in=20 height-in=2 \
num-filters-out=20 height-out=2 height-offsets=-1,0,1 time-offsets=-1,0,1
component-node name=convolution component=convolution input=input
component name=up type=TdnnComponent input-dim=40 output-dim=100 time-offsets=-1,0,1
component-node name=up component=up input=convolution
component name=relu type=RectifiedLinearComponent dim=100 self-repair-scale=1.0e-5
component-node name=relu component=relu input=up
component name=norm type=BatchNormComponent dim=100
component-node name=norm component=norm input=relu
component name=down type=LinearComponent input-dim=200 output-dim=60
component-node name=down component=down input=Append(Offset(norm, -3), norm)
component name=last type=NaturalGradientAffineComponent input-dim=60 output-dim=80
component-node name=last component=last input=Sum(Scale(0.5, down), Offset(down, 1))
component name=softmax type=LogSoftmaxComponent dim=80
component-node name=softmax component=softmax input=last
output-node name=output input=softmax
"""

LARGEST = 8192
"""Bytes of Python objects and NumPy iterators that a thread holds during a run: at most 16 kB on
two threads. The smallest array here has 40 kB, and a thread's share of it 20 kB."""

FIRST_RUNS = 4
"""Number of runs before the measurement: NumPy makes a table at the first call of a function, and
only some runs call all functions (statistics, self-repair)."""


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A number of threads, which here share even small operations."""
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1 << 4)
    return int(request.param)


def computer(*, train: bool, threads: int) -> tuple[NnetComputer, np.ndarray]:
    """A computer, and its input."""
    nnet = parse_config(CONFIG, rng=np.random.default_rng(0))
    if not train:
        nnet = set_test_mode(nnet)
    request = ComputationRequest(
        inputs=(IoSpecification.from_range("input", -5, FRAMES + 5),),
        outputs=(IoSpecification.from_range("output", 0, FRAMES, has_deriv=train),),
        need_model_derivative=train,
        store_component_stats=train,
    )
    x = np.random.default_rng(1).standard_normal((FRAMES + 10, 40)).astype(np.float32)
    return NnetComputer(nnet, CachingCompiler(nnet).compile(request), threads=threads), x


def peak(run: Callable[[], dict[str, np.ndarray]]) -> int:
    """The most bytes held during a run, without the returned outputs."""
    tracemalloc.start()
    try:
        outputs = run()
        return tracemalloc.get_traced_memory()[1] - sum(a.nbytes for a in outputs.values())
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("train", [False, True])
def test_forward(train: bool, threads: int) -> None:
    """The forward pass allocates nothing."""
    run, x = computer(train=train, threads=threads)
    for _ in range(FIRST_RUNS):
        run.forward({"input": x})

    assert peak(lambda: run.forward({"input": x})) < LARGEST * threads


def test_backward(threads: int) -> None:
    """The backward pass allocates nothing."""
    run, x = computer(train=True, threads=threads)
    for _ in range(FIRST_RUNS):
        derivative = run.forward({"input": x})
        run.backward(derivative)
    run.forward({"input": x})

    assert peak(lambda: run.backward(derivative)) < LARGEST * threads


SIZE = 12
WIDTH = 3


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=6))
def test_origins_are_those_of_one_swap_after_another(pairs: list[tuple[int, int]]) -> None:
    """Each matrix that is defined at the end came from the matrix that is named."""
    contents: dict[int, int | None] = {number: number for number in range(1, 7)}
    program = []
    for destination, source in pairs:
        if destination != source and contents[source] is not None:
            program.append(commands.SwapMatrix(destination=destination, source=source))
            contents[destination], contents[source] = contents[source], None

    found = commands.origins(program)

    touched = {swap.destination for swap in program} | {swap.source for swap in program}
    assert found == {m: contents[m] for m in touched if contents[m] is not None}


@st.composite
def moves(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Places (source, destination) of moves; no two destinations and no two sources overlap."""
    count = draw(st.integers(1, 3))
    begins = st.lists(st.integers(0, SIZE - WIDTH), min_size=count, max_size=count).filter(
        lambda found: all(b - a >= WIDTH for a, b in itertools.pairwise(sorted(found)))
    )
    return list(zip(draw(begins), draw(begins), strict=True))


@given(moves())
def test_moves_happen_at_once(places: list[tuple[int, int]]) -> None:
    """Destinations get the contents of the sources before any move."""
    memory = np.arange(float(SIZE))
    before = memory.copy()
    tape = NumpyTape(np.float64)

    def place(begin: int) -> Memory:
        return begin, memory[begin : begin + WIDTH].reshape(1, WIDTH)

    record_moves(tape, [(place(source), place(destination)) for source, destination in places])
    for call in tape.calls:
        call()

    for source, destination in places:
        np.testing.assert_array_equal(
            memory[destination : destination + WIDTH], before[source : source + WIDTH]
        )


def computation(sequences: int, *, debug_info: bool = True) -> NnetComputation:
    """A training computation for `sequences` sequences."""
    nnet = single("type=AffineComponent input-dim=40 output-dim=30", dim=40)
    options = CompilerOptions(output_debug_info=debug_info)
    wanted = request(range(20), range(20), sequences=sequences)
    return optimize(nnet, compile_computation(nnet, wanted, options=options))


def device(free_bytes: int) -> Properties:
    """A device with this much free memory."""
    return Properties(name="Stand-in", total_bytes=1 << 40, free_bytes=free_bytes)


@pytest.mark.parametrize("sequences", [1, 7, 64])
def test_minibatch_size_is_found(sequences: int) -> None:
    """The minibatch is the number of sequences in the request; unknown without debug info."""
    assert minibatch_size(computation(sequences)) == sequences
    assert minibatch_size(computation(sequences, debug_info=False)) is None


def test_what_fits_passes() -> None:
    """A computation may use all of the free memory."""
    check_fits(1000, device(1000), computation(2))


def test_minibatch_that_is_named_fits() -> None:
    """The minibatch in the message fits into the free memory; the next larger one does not."""
    large = computation(64)
    needed = plan_memory(large).arena_bytes
    free = needed * 3 // 8
    with pytest.raises(
        DeviceMemoryError,
        match=rf"{needed:,} bytes of memory on Stand-in, of which {free:,} bytes are free; "
        "a minibatch of 24 instead of 64 would fit",
    ):
        check_fits(needed, device(free), large)
    assert (
        plan_memory(computation(24)).arena_bytes <= free < plan_memory(computation(25)).arena_bytes
    )
