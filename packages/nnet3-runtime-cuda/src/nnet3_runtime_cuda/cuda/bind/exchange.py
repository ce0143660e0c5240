"""Arrays of a caller, on the host or on a device, to and from the memory of a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.arrays.checks import is_on_cuda, on_host
from nnet3_runtime_cuda.cuda.memory.shadow_memory import ShadowMemory
from nnet3_runtime_cuda.cuda.platform.platform import SharesArrays
from nnet3_runtime_cuda.errors import RunError
from nnet3_runtime_cuda.machine import Transfer
from nnet3_runtime_cuda.operations import Array


class Exchange(Transfer):
    """Takes matrices from the caller and gives matrices back, on CuPy's current stream.

    An array on the device stays there: it is copied once, to the memory that the program reads.
    PyTorch tensors and other arrays with `__dlpack__` get the stream, and finish their own work
    before the program reads them there.
    """

    def __init__(self, memory: ShadowMemory) -> None:
        """For a program whose matrices are in that memory."""
        self._memory = memory
        self._platform = memory.platform
        self._cuda = self._platform if isinstance(self._platform, SharesArrays) else None
        # The key is the identity of a shadow; a reference to the shadow keeps the identity unique.
        self._addresses: dict[int, tuple[Array, int]] = {}

    def taken(self, value: Any) -> Any:
        """A CuPy array of the same memory, if the value lies on a CUDA device; else a NumPy array.

        Raises:
            RunError: it lies on another device, or cannot be passed on (a tensor that requires
                gradients).
        """
        if self._cuda is None or isinstance(value, np.ndarray) or not is_on_cuda(value):
            return on_host(value)
        try:
            array = self._cuda.adopt(value)
        except BufferError as error:
            raise RunError(f"an array cannot be taken over: {error}") from None
        if array.device.id != self._cuda.ordinal:
            raise RunError(
                f"an array is on 'cuda:{array.device.id}', the network on "
                f"'cuda:{self._cuda.ordinal}'"
            )
        return array

    def put(self, array: Any, view: Array) -> None:
        """Copies a matrix to the memory of the program, as contiguous float32."""
        if not view.size:
            return
        if isinstance(array, np.ndarray):
            contiguous = np.ascontiguousarray(array, dtype=np.float32)
            self._platform.upload(self._address(view), contiguous)
        else:
            assert self._cuda is not None
            self._cuda.copy_from(array, self._address(view))

    def get(self, view: Array, *, on_device: bool) -> Any:
        """A copy of contiguous float32 memory of the program: NumPy, or CuPy."""
        if self._cuda is not None and on_device:
            return self._cuda.copy_of(self._address(view) if view.size else 0, view.shape)
        array: npt.NDArray[np.float32] = np.empty(view.shape, dtype=np.float32)
        if array.size:
            self._platform.download(self._address(view), array)
        return array

    def _address(self, view: Array) -> int:
        known = self._addresses.get(id(view))
        if known is None:
            known = self._addresses[id(view)] = view, self._memory.address_of(view)
        return known[1]
