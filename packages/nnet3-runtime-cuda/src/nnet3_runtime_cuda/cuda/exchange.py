"""Arrays of a caller, on the host or on a device, to and from the memory of a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import RunError
from .cupy_platform import CupyPlatform
from .platform import Platform

DLPACK_CUDA, DLPACK_CUDA_MANAGED = 2, 13
"""Kinds of device, as `__dlpack_device__` gives them."""


class Exchange:
    """Takes matrices from the caller and gives matrices back, on CuPy's current stream.

    What lies on the device stays there: it is copied once, from where it is to where the program
    reads it. PyTorch tensors and other arrays with `__dlpack__` are told the stream, and have the
    work that makes them finished before it is read there.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._cuda = platform if isinstance(platform, CupyPlatform) else None
        self._views: dict[tuple[int, tuple[int, ...]], Any] = {}

    def on_device(self, value: object) -> Any | None:
        """A CuPy array of the same memory, if the value lies on a CUDA device; else None.

        Raises:
            RunError: it lies on another device, or cannot be passed on (a tensor that requires
                gradients).
        """
        if self._cuda is None or isinstance(value, np.ndarray):
            return None
        try:
            array = self._cuda.adopt(value) if _is_on_cuda(value) else None
        except BufferError as error:
            raise RunError(f"an array cannot be taken over: {error}") from None
        if array is not None and array.device.id != self._cuda.ordinal:
            raise RunError(
                f"an array is on 'cuda:{array.device.id}', the network on "
                f"'cuda:{self._cuda.ordinal}'"
            )
        return array

    def put(self, array: Any, address: int) -> None:
        """Copies a matrix to the memory of the program, as contiguous float32.

        Args:
            array: A NumPy array, or what `on_device` gave.
            address: Of as much memory.
        """
        if self._cuda is None or isinstance(array, np.ndarray):
            self._platform.upload(address, np.ascontiguousarray(array, dtype=np.float32))
        else:
            self._cuda.copy_from(array, self._view(address, array.shape))

    def get(self, address: int, shape: tuple[int, ...], *, to_host: bool) -> Any:
        """A copy of contiguous float32 memory of the program: NumPy, or else CuPy."""
        if self._cuda is not None and not to_host:
            return self._cuda.copy_of(self._view(address, shape))
        array: npt.NDArray[np.float32] = np.empty(shape, dtype=np.float32)
        if array.size:
            self._platform.download(address, array)
        return array

    def _view(self, address: int, shape: tuple[int, ...]) -> Any:
        assert self._cuda is not None
        if (address, shape) not in self._views:
            rows, columns = shape
            view = self._cuda.view(address, (rows, columns), (4 * columns, 4), np.float32)
            self._views[address, shape] = view
        return self._views[address, shape]


def _is_on_cuda(value: object) -> bool:
    """Whether an object says that it is an array on a CUDA device."""
    if hasattr(value, "__dlpack_device__"):
        kind, _ = value.__dlpack_device__()
        return kind in (DLPACK_CUDA, DLPACK_CUDA_MANAGED)
    return hasattr(value, "__cuda_array_interface__")
