"""A run allocates only the outputs that it returns."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from nnet3 import CachingCompiler
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import parse_config, set_test_mode
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.cpu import recorder

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
