"""Traces of random networks: nothing is looked at that was not written, and nothing is changed."""

from unittest import mock

import numpy as np
import pytest
from emulated_device import HostPlatform
from example_generator import example_of_seed, random_arrays
from nnet3_optimizer import CachingCompiler
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, RunError, Tracer
from nnet3_runtime_cuda.cpu.recorder import Recorder
from small_thresholds import thresholds

COUNT = 30


def poisoned(self: Recorder, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory of a program that holds no numbers until something is written."""
    return np.full(shape, np.nan, dtype)


@pytest.mark.parametrize("seed", range(COUNT), ids=lambda seed: f"seed{seed}")
def test_traces_of_random_networks(seed: int) -> None:
    """Of finite results a trace finds no fault, even if memory was full of NaN; results agree."""
    example = example_of_seed(seed)
    nnet, request = example.nnet, example.request
    computation = CachingCompiler(nnet).compile(request)
    inputs = random_arrays(nnet, request.inputs, seed)
    derivatives = random_arrays(
        nnet, [each for each in request.outputs if each.has_deriv], seed + 1
    )
    tracer = Tracer()
    results = []
    for trace in (None, tracer):
        with thresholds(seed), mock.patch.object(Recorder, "empty", poisoned):
            device = DeviceNnet(nnet, trainable=request.need_model_derivative, threads=1 + seed % 2)
            computer = NnetComputer(device, computation, trace=trace)
        values = dict(computer.forward(inputs))
        if request.needs_derivatives:
            values |= {f"{name}'": each for name, each in computer.backward(derivatives).items()}
        results.append(values)

    traced = tracer.trace()

    for name, values in results[0].items():
        np.testing.assert_array_equal(values, results[1][name])
    if all(np.isfinite(values).all() for values in results[0].values()):
        assert traced.fault is None, str(traced.fault)
    assert [each.text for _, each in traced.commands if not each.node] == []


def test_a_device_is_refused() -> None:
    """A trace on a device is refused before anything is bound."""
    example = example_of_seed(0)
    computation = CachingCompiler(example.nnet).compile(example.request)

    with pytest.raises(RunError, match=r"^a trace needs a network on the processor, device='cpu'$"):
        NnetComputer(example.nnet, computation, HostPlatform(), trace=Tracer())
