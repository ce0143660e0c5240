"""The workload of the execution benchmark: a network with parameters and statistics, and inputs."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import numpy as np
from networks import BENCHMARKS
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Component, Nnet, parse_config, set_test_mode
from nnet3_descriptors.components import BatchNormComponent
from nnet3_runtime_cuda.cpu.products import Switch

FIRST_STEPS = 10
"""The number of first steps, each of which updates the natural gradient; they are not timed."""

UPDATE_PERIOD, PERIODS = 4, 5
"""Number of timed periods of steps; later, one step in a period updates the natural gradient."""

Array = np.ndarray
Call = Callable[[], object]


@attrs.frozen(eq=False)
class Workload:
    """A network, a request, and values for its inputs and for the derivatives of its outputs.

    Attributes:
        name: The benchmark.
        is_training: Whether parameters change.
        sequences: Number of sequences that are computed together.
        nnet: The network; in test mode for inference.
        request: The request.
        inputs: By input node, (sequences, frames, columns) float32.
        derivatives: By output node, the same.
    """

    name: str
    is_training: bool
    sequences: int
    nnet: Nnet
    request: ComputationRequest
    inputs: dict[str, Array]
    derivatives: dict[str, Array]

    @classmethod
    def make(cls, name: str, mode: str, sequences: int, scale: float = 1.0) -> Workload:
        """Makes a workload, the same each time; `scale` multiplies the sizes of layers."""
        is_training = mode == "train"
        rng = np.random.default_rng(0)
        nnet = with_values(parse_config(BENCHMARKS[name].config(scale), rng=rng), rng)
        nnet = nnet if is_training else set_test_mode(nnet)
        request = BENCHMARKS[name].request(sequences, train=is_training)

        def values(node: str, rows: int) -> Array:
            shape = sequences, rows // sequences, nnet.node_dim(node)
            return rng.standard_normal(shape, dtype=np.float32)

        inputs = {io.name: values(io.name, len(io.indexes)) for io in request.inputs}
        derivatives = {
            io.name: np.float32(0.01) * values(io.name, len(io.indexes)) for io in request.outputs
        }
        return cls(name, is_training, sequences, nnet, request, inputs, derivatives)

    def time(self, run: Callable[[], object], clock: Callable[[], float]) -> float:
        """Milliseconds of a run, the median; of a training step, the median of periods' means.

        So another program that uses the processor for a second has little effect.
        """
        period = UPDATE_PERIOD if self.is_training else 1
        count = PERIODS if self.is_training else max(3, 24 // self.sequences)
        for _ in range(FIRST_STEPS + 1 if self.is_training else 2):
            run()
        gc.collect()
        times = []
        for _ in range(count):
            start = clock()
            for _ in range(period):
                run()
            times.append((clock() - start) / period)
        return 1e3 * float(np.median(times))


def least(call: Call, count: int = 400, clock: Callable[[], float] = time.perf_counter) -> float:
    """Microseconds of the fastest of many calls."""
    times = []
    for _ in range(count):
        start = clock()
        call()
        times.append(clock() - start)
    return 1e6 * min(times)


@contextmanager
def chosen(switch: Switch, value: str) -> Iterator[None]:
    """Makes programs as if the user had set a switch, within the context."""
    before = os.environ.get(switch.variable)
    os.environ[switch.variable] = value
    try:
        yield
    finally:
        del os.environ[switch.variable]
        if before is not None:
            os.environ[switch.variable] = before


def with_values(nnet: Nnet, rng: np.random.Generator) -> Nnet:
    """The network with statistics and nonzero biases, as after training."""
    changed: dict[str, Component] = {}
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        if isinstance(component, BatchNormComponent):
            dim = component.block_dim
            changed[name] = component.replace(
                count=1000.0,
                stats_mean=rng.normal(0.5, 0.1, dim).astype(np.float32),
                stats_var=rng.uniform(0.5, 2.0, dim).astype(np.float32),
            )
        elif "bias_params" in component.parameters and component.bias_params.size:
            bias = rng.normal(0.0, 0.3, component.bias_params.shape).astype(np.float32)
            changed[name] = component.replace(bias_params=bias)
    return nnet.with_components(changed)


def flat(arrays: dict[str, Array]) -> dict[str, Array]:
    """(sequences, frames, columns) as rows in the order of the request."""
    return {name: array.reshape(-1, array.shape[-1]) for name, array in arrays.items()}


CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
"""Clocks: 'cpu' counts the processor time of the calling thread."""
