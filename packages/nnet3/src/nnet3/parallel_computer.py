"""ParallelComputer: runs the sequences of a request on several threads, side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_computation.computation import NnetComputation
from nnet3_descriptors import Nnet, Nnet3Error
from nnet3_descriptors.components import Component, CompositeComponent
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.arrays import FloatArray, checked_arrays, on_host
from nnet3_runtime_cuda.cpu.threads import LIMIT
from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.operations import Array

from nnet3.sequence_groups import SequenceGroup, num_sequences, sequence_groups

if TYPE_CHECKING:
    from nnet3_runtime_cuda.cuda.platform import Platform
    from nnet3_runtime_cuda.tracing import Tracer

Compile = Callable[[ComputationRequest], NnetComputation]


class ParallelComputer:
    """A request bound to a network and to memory, whose sequences are computed side by side.

    Sequences (the rows with the same n) do not depend on one another, unless parameters or
    statistics are updated or something is random. So each thread of the network computes some of
    them, from the input to the output, in separate memory: threads then neither wait for one
    another nor share products. Other requests (a single sequence, training, components that are not
    in test mode, a network on a CUDA device) become one computation, which runs as in
    `NnetComputer`. For a training request `computers[0]` has the backward pass.

    Several threads may run it at once; they wait for one another where they need the same memory.

    Attributes:
        computers: One computer, or one for each thread.
        memory_bytes: Size of the memory for matrices and scratch; parameters are not counted.
        num_calls: Number of array operations that a run makes.

    Raises:
        NetworkError: the request names a node that the network lacks.
        Nnet3Error: the error of `compile`.
        UnsupportedComponentError: this package does not implement a component type.
        DeviceError: there is no such device or number of threads.
        DeviceMemoryError: the device lacks memory; the message says what would fit.
        RunError: an environment variable that says how products are computed has an unknown value;
            or a trace was asked for on a device.
    """

    def __init__(
        self,
        nnet: Nnet | DeviceNnet,
        compile: Compile,
        request: ComputationRequest,
        device: str | Platform = "cpu",
        *,
        threads: int | None = None,
        trace: Tracer | None = None,
    ) -> None:
        """Compiles a request, or its parts, and binds the computations.

        Args:
            nnet: The network, or a network on a device, which knows the device and its threads.
            compile: Makes the computation for a request, such as `CachingCompiler(nnet).compile`.
                Groups with equal numbers of sequences of the same shape have equal requests.
            request: The request.
            device: "cpu", "cuda", "cuda:<number>", or a platform that is open.
            threads: Number of computing threads, at most 256; None for as many as the BLAS library
                uses, but at most 4.
            trace: Receives what each command reads and writes, on the processor; see `Tracer`.
        """
        if not isinstance(nnet, DeviceNnet):
            nnet = DeviceNnet(nnet, device=device, threads=threads)
        if trace is not None:
            nnet.check_traceable(trace)
        self._workers = nnet.machine.workers
        self._request = request
        self._dims = {
            io.name: nnet.nnet.node_dim(io.name) for io in (*request.inputs, *request.outputs)
        }
        self._parts = _parts(nnet, compile, request, trace)
        self.computers = tuple(part.computer for part in self._parts)
        self.memory_bytes = sum(computer.memory_bytes for computer in self.computers)
        self.num_calls = sum(computer.num_calls for computer in self.computers)

    def __repr__(self) -> str:
        """The number of parts, of calls, and the memory."""
        return (
            f"<ParallelComputer: {len(self.computers)} parts, {self.num_calls} calls, "
            f"{self.memory_bytes:,} bytes>"
        )

    def forward(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
        """Runs the forward pass.

        Args:
            inputs: For each input node (rows, dim), rows in the order of the request; see
                `NnetComputer.forward`.

        Returns:
            For each output node (rows, dim) float32, rows in the order of the request.

        Raises:
            RunError: an input is missing, unknown, of another shape, or not finite.
        """
        first, *others = self._parts
        if self._workers is None or not others:
            return first.forward(inputs)
        shapes = {io.name: self._shape(io) for io in self._request.inputs}
        arrays = checked_arrays(shapes, inputs, "input", on_host)
        given = dict(zip(shapes, arrays, strict=True))
        outputs = {
            io.name: np.empty(self._shape(io), dtype=np.float32) for io in self._request.outputs
        }
        self._workers.side_by_side([partial(part.run, given, outputs) for part in self._parts])
        return outputs

    def _shape(self, io: IoSpecification) -> tuple[int, int]:
        return len(io.indexes), self._dims[io.name]


@attrs.frozen(kw_only=True, eq=False)
class _Part:
    """The part of one thread; its runs follow one another, since they share memory."""

    group: SequenceGroup
    computer: NnetComputer
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def forward(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
        with self.lock:
            return self.computer.forward(inputs)

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, FloatArray]) -> None:
        """Computes its rows of the outputs of the whole request."""
        own = {name: inputs[name][rows] for name, rows in self.group.input_rows.items()}
        for name, values in self.forward(own).items():
            outputs[name][self.group.output_rows[name]] = values


def _parts(
    nnet: DeviceNnet, compile: Compile, request: ComputationRequest, trace: Tracer | None
) -> list[_Part]:
    """The parts of a request for the threads of a network; one if it cannot be split."""
    workers = nnet.machine.workers
    count = 1 if workers is None else min(workers.threads, num_sequences(request))
    if count == 1 or not _has_independent_sequences(nnet.nnet, request):
        computer = NnetComputer(nnet, compile(request), trace=trace)
        return [_Part(group=SequenceGroup.whole(request), computer=computer)]
    try:
        groups = sequence_groups(request, count)
        computations = [compile(group.request) for group in groups]
    except Nnet3Error:
        compile(request)  # its error numbers the sequences as the caller does
        raise
    with LIMIT.at_most(1):  # binding may time products, which will run on one thread
        return [
            _Part(group=group, computer=NnetComputer(nnet, computation, threads=1, trace=trace))
            for group, computation in zip(groups, computations, strict=True)
        ]


def _has_independent_sequences(nnet: Nnet, request: ComputationRequest) -> bool:
    """Whether no computed row depends on several sequences."""
    if request.needs_derivatives or request.store_component_stats:
        return False
    return all(map(_is_in_test_mode, nnet.components))


def _is_in_test_mode(component: Component) -> bool:
    """Whether a component and all its parts are in test mode, if they have one."""
    if isinstance(component, CompositeComponent):
        return all(map(_is_in_test_mode, component.components))
    return bool(getattr(component, "test_mode", True))
