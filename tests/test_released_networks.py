"""Networks are freed when nobody uses them, though caches hold values derived from them."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from nnet3 import CachingCompiler, load
from nnet3_compiler import compile_computation, compile_looped, looped_requests
from nnet3_descriptors import Nnet, write_nnet
from nnet3_graph import build_computation_graph
from nnet3_optimizer import check_computation, optimize, verify_equivalent
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_reference import ReferenceComputer
from small_networks import network, request_for, stacked

CONFIG = stacked(
    2,
    "affine NaturalGradientAffine input-dim=7 output-dim=3",
    "relu RectifiedLinear dim=3",
    "norm BatchNorm dim=3",
    splice="Append(input, Offset(input, -1), IfDefined(Offset(relu, -1)))",
)

REQUEST = request_for(
    range(-1, 5),
    range(5),
    derivs=("input", "output"),
    need_model_derivative=True,
    store_component_stats=True,
)
FRAMES = np.zeros((6, 2), np.float32)


def build_graph(nnet: Nnet) -> None:
    """Builds the graph of a request."""
    build_computation_graph(nnet, REQUEST)


def prove(nnet: Nnet) -> None:
    """Compiles, optimizes, checks and proves a computation."""
    compiled = compile_computation(nnet, REQUEST)
    optimized = optimize(nnet, compiled)
    check_computation(nnet, optimized)
    verify_equivalent(nnet, compiled, optimized)


def loop(nnet: Nnet) -> None:
    """Compiles a loop and optimizes it."""
    compile_looped(nnet, looped_requests(nnet, 4), optimize=lambda c: optimize(nnet, c))


def train(nnet: Nnet) -> None:
    """Runs forward and backward, and changes the parameters."""
    device = DeviceNnet(nnet, trainable=True, natural_gradient=True)
    computer = NnetComputer(device, CachingCompiler(nnet).compile(REQUEST))
    outputs = computer.forward({"input": FRAMES})
    computer.backward({"output": outputs["output"]})
    device.take_step()


def define(nnet: Nnet) -> None:
    """Runs the reference runtime."""
    ReferenceComputer(nnet, compile_computation(nnet, REQUEST)).forward({"input": FRAMES})


@pytest.mark.parametrize("use", [build_graph, prove, loop, train, define])
def test_network(use: Callable[[Nnet], None]) -> None:
    """Caches of the stages do not keep a network alive."""
    nnet = network(CONFIG)
    watched = weakref.ref(nnet)

    use(nnet)
    del nnet
    gc.collect()

    assert watched() is None


def test_model(tmp_path: Path) -> None:
    """A model that has computed is freed together with its network."""
    write_nnet(network(CONFIG), tmp_path / "final.raw")
    model = load(tmp_path / "final.raw")
    model.compute(FRAMES)
    watched = [weakref.ref(model), weakref.ref(model.nnet)]

    del model
    gc.collect()

    assert [each() for each in watched] == [None, None]
