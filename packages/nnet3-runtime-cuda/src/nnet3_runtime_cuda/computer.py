"""NnetComputer: runs a compiled computation forward and backward."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from nnet3_computation.computation import NnetComputation
from nnet3_descriptors import Nnet
from nnet3_descriptors.forking import GATE

from nnet3_runtime_cuda.arrays import FloatArray, checked_arrays, running
from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.errors import RunError
from nnet3_runtime_cuda.lowering import Segment, lower
from nnet3_runtime_cuda.operations.scratch import Workspace

if TYPE_CHECKING:
    from nnet3_runtime_cuda.cuda.platform import Platform
    from nnet3_runtime_cuda.tracing import Tracer


class NnetComputer:
    """A computation bound to a network and to memory, to be run any number of times.

    One thread at a time may run a computer; it refuses a second one. Several computers, each with
    its own memory, may share a `DeviceNnet` that none of them updates.

    Attributes:
        memory_bytes: Size of the memory for matrices and scratch; parameters are not counted.
        workspace: The memory that it shares with other computers, or None.

    Raises:
        ComputationError: the computation cannot be run. The error is a CheckError if a command is
            at fault. Such a command names a component or node that the network lacks, gives it a
            matrix of another size or indexes precomputed for another component, or uses a matrix
            that does not exist or a list that does not fit.
        UnsupportedComponentError: this package does not implement a component type.
        DeviceError: there is no such device or number of threads.
        DeviceMemoryError: the device lacks memory; the message names a minibatch that would fit.
        RunError: an environment variable that chooses how products are computed has an unknown
            value; or `trace` is not a `Tracer`, or the network is on a device.
    """

    def __init__(
        self,
        nnet: Nnet | DeviceNnet,
        computation: NnetComputation,
        device: str | Platform = "cpu",
        *,
        threads: int | None = None,
        trace: Tracer | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        """Binds a computation.

        Args:
            nnet: The network, or a network on a device, which knows the device and its threads.
            computation: The computation to run.
            device: "cpu", "cuda", "cuda:<number>", or a platform that is open.
            threads: The number of threads that share the work, on the processor, at most 256; None
                for as many as the BLAS library uses, but at most 4. Results with the same number
                are equal each time; with another number they are rounded differently. If `nnet` is
                a network on a device, 1 keeps all work on the calling thread, so that other
                computers of the network can run beside this one; other numbers are ignored.
            trace: Records the time and the results of each command, on the processor; see `Tracer`.
            workspace: Memory that this computer shares with others, on the processor: at most one
                of them may run at a time, and none may keep anything from one run to the next, as
                loops and backward passes do.
        """
        if not isinstance(nnet, DeviceNnet):
            nnet = DeviceNnet(nnet, device=device, threads=threads)
        self.device_nnet, self.workspace = nnet, workspace
        self._computation = computation
        watch = None
        if trace is not None:
            nnet.check_traceable(trace)
            watch = trace.watch(nnet.nnet, computation)
        with GATE.unforked():
            self._program = lower(
                nnet, computation, is_alone=threads == 1, watch=watch, workspace=workspace
            )
        self._next = 0
        self._ran_forward = False
        self._interrupted: int | None = None  # the segment that a pass did not finish
        self._lock = threading.Lock()
        self.memory_bytes = self._program.memory_bytes

    @property
    def num_calls(self) -> int:
        """Number of array operations that the forward and backward pass make."""
        return self._program.num_calls

    def __repr__(self) -> str:
        """The computation, the number of its calls, and the memory."""
        return (
            f"<NnetComputer of {self._computation!r}: {self.num_calls} calls, "
            f"{self.memory_bytes:,} bytes>"
        )

    # ---- running ----

    def forward(
        self, inputs: Mapping[str, npt.ArrayLike], *, on_device: bool = False, copies: bool = True
    ) -> dict[str, FloatArray]:
        """Runs the forward pass; of a computation in several segments or a loop, the next segment.

        After the last segment of a computation without a loop it begins with the first again.

        Args:
            inputs: For each input node (rows, dim), rows in the order of the request: NumPy arrays,
                and if the network is on a CUDA device, CuPy arrays, PyTorch tensors or other
                objects with `__dlpack__`. Values that are on the device stay there.
            on_device: Whether outputs of a network on a CUDA device stay there, wherever the inputs
                are.
            copies: Whether outputs are copies. If not, those of a network on the processor may lie
                in the memory of this computer: the next run there overwrites them.

        Returns:
            For each output node (rows, dim) float32, rows in the order of the request: CuPy arrays
            if an input was on the device, or `on_device` says so, else NumPy arrays. They are not
            checked: if the arithmetic overflows, they hold infinite values or NaN. (`Model.compute`
            refuses these.)

        Raises:
            RunError: an input is missing, unknown, of another shape, or not finite (values of
                arrays on a device are not checked); or an earlier segment was interrupted; or the
                computation has no commands; or another thread is running this computer.
        """
        self._refuse_threads()
        with self._lock:
            forward = self._program.forward
            if not forward:
                raise RunError("the computation has no commands")
            if self._interrupted is not None:
                if self._interrupted > 0 or self._program.loop_to is not None:
                    raise RunError(
                        "a segment was interrupted, so the state for the next segment is lost: "
                        "reset() begins with the first segment"
                    )
                self.reset()
            if self._next == len(forward):
                self._next = self._program.loop_to or 0
            segment = forward[self._next]
            arrays = self._checked(segment, inputs, "input")
            self._ran_forward, self._interrupted = False, self._next
            # A segment that follows at once may overwrite outputs of this one.
            copies = copies or len(forward) > 1
            outputs = self._run(segment, arrays, on_device=on_device, copies=copies)
            self._next += 1
            # A segment that takes and gives nothing belongs to the one before.
            for silent in forward[self._next :]:
                if silent.inputs or silent.outputs:
                    break
                self._run(silent, [])
                self._next += 1
            self._ran_forward, self._interrupted = True, None
            return outputs

    def backward(self, output_derivatives: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
        """Runs the backward pass that belongs to the last forward pass.

        Args:
            output_derivatives: For each output node with has_deriv, the derivative of the objective
                with respect to it: (rows, dim), rows in the order of the request.

        Returns:
            For each input node with has_deriv, the derivative of the objective with respect to it.

        Raises:
            RunError: there is no backward pass, or no forward pass ran before it, or a derivative
                is missing, unknown, of another shape, or not finite; or another thread is running
                this computer.
        """
        self._refuse_threads()
        with self._lock:
            segment = self._program.backward
            if segment is None:
                raise RunError("the computation was compiled without a backward pass")
            if not self._ran_forward:
                raise RunError("backward() needs a forward() before it, one for each")
            arrays = self._checked(segment, output_derivatives, "output derivative")
            if self._computation.need_model_derivative:
                self.device_nnet.clear_direction(kept=self._program.replaced)
            self._ran_forward = False
            return self._run(segment, arrays)

    def reset(self) -> None:
        """Starts a computation in several segments, or a loop, anew from its first segment."""
        self._next = 0
        self._ran_forward, self._interrupted = False, None

    @property
    def gradient(self) -> Nnet:
        """The gradient of the objective, from the last backward pass, as a network.

        Its parameters are the plain gradient (no learning rate, no natural gradient).

        Raises:
            RunError: the request did not ask for it.
        """
        if not self._computation.need_model_derivative:
            raise RunError("the request did not ask for the derivative of the model")
        return self.device_nnet.gradient()

    @property
    def nnet(self) -> Nnet:
        """The network with the statistics that the runs so far have recorded."""
        return self.device_nnet.current()

    def _refuse_threads(self) -> None:
        """Refuses a thread while another one runs the computer.

        Nothing but the lock's own `with` locks it: an error or Ctrl-C would leave it locked.
        """
        if self._lock.locked():
            raise RunError(
                "another thread is running this computer: make a NnetComputer for each thread"
            )

    # ---- segments ----

    def _checked(
        self, segment: Segment, given: Mapping[str, npt.ArrayLike], what: str
    ) -> list[Any]:
        """The inputs of a segment as arrays. An input that is refused changes nothing."""
        shapes = {node: view.shape for node, view in segment.inputs.items()}
        return checked_arrays(shapes, given, what, self._program.transfer.taken)

    def _run(
        self,
        segment: Segment,
        arrays: Sequence[Any],
        *,
        on_device: bool = False,
        copies: bool = True,
    ) -> dict[str, FloatArray]:
        transfer = self._program.transfer
        with running():
            for view, array in zip(segment.inputs.values(), arrays, strict=True):
                transfer.put(array, view)
            for call in segment.calls:
                call()
        # By default the results go to the place that the values came from.
        on_device = on_device or not all(isinstance(array, np.ndarray) for array in arrays)
        return {
            node: transfer.get(view, on_device=on_device, copies=copies)
            for node, view in segment.outputs.items()
        }
