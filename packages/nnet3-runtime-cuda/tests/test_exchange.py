"""Exchange of arrays of NumPy, CuPy and DLPack with the memory of a program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nnet3_runtime_cuda.cuda.cupy_platform import CupyPlatform
from nnet3_runtime_cuda.cuda.machine import Exchange
from nnet3_runtime_cuda.cuda.memory import ShadowMemory
from nnet3_runtime_cuda.errors import RunError
from strict_cupy import FakeArray, StrictCupy

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


class Tensor:
    """An array of another library, such as PyTorch."""

    def __init__(self, array: Any, *, device: tuple[int, int], error: str | None = None) -> None:
        self._array = array
        self._device = device
        self._error = error
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, *, stream: int | None = None, max_version: object = None) -> Any:
        """Returns the array in place of a capsule."""
        if self._error:
            raise BufferError(self._error)
        self.streams.append(stream or 0)
        return self._array

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        if self._device[0] != 1:
            raise TypeError("can't convert a CUDA tensor to numpy")
        return np.asarray(self._array)


def array_on(cupy: StrictCupy, device: int, values: np.ndarray) -> FakeArray:
    """A CuPy array whose values are pending work of a stream."""
    with cupy.cuda.Device(device):
        return FakeArray.written_by(cupy.cuda.get_current_stream(), values)


def program(platform: CupyPlatform) -> tuple[Exchange, np.ndarray]:
    """The exchange of a program, and one of its matrices."""
    memory = ShadowMemory(platform)
    return Exchange(memory), memory.reserve(VALUES.shape, np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_types(cupy: StrictCupy, platform: CupyPlatform, dtype: Any) -> None:
    """Arrays of NumPy and CuPy of any type arrive as float32; CuPy's without waiting."""
    exchange, matrix = program(platform)
    exchange.put(exchange.taken(np.asfortranarray(VALUES.astype(dtype))), matrix)
    taken = exchange.get(matrix, on_device=False)
    assert type(taken) is np.ndarray
    np.testing.assert_array_equal(taken, VALUES)

    given = array_on(cupy, 1, -VALUES.astype(dtype))
    found = exchange.taken(given)
    assert found is given
    exchange.put(found, matrix)
    taken = exchange.get(matrix, on_device=True)
    assert isinstance(taken, cupy.ndarray)
    assert np.isnan(taken.host).all()  # the stream was not waited for
    exchange.put(VALUES, matrix)  # a returned array is the caller's
    np.testing.assert_array_equal(taken.get(), -VALUES)


def test_cupy_array_with_gaps(cupy: StrictCupy, platform: CupyPlatform) -> None:
    """Columns of a larger CuPy array arrive as contiguous rows."""
    exchange, matrix = program(platform)
    larger = array_on(cupy, 1, np.hstack([VALUES + 10, VALUES]))
    memory = SimpleNamespace(address=larger.data.ptr + 12, nbytes=larger.nbytes - 12)
    with cupy.cuda.Device(1):
        columns = FakeArray(cupy.cuda, VALUES.shape, np.float32, memory, strides=(24, 4))
    exchange.put(exchange.taken(columns), matrix)
    np.testing.assert_array_equal(exchange.get(matrix, on_device=True).get(), VALUES)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_matrix_without_elements(platform: CupyPlatform, shape: tuple[int, int]) -> None:
    """An empty block of a matrix needs no copy."""
    memory = ShadowMemory(platform)
    exchange, matrix = Exchange(memory), memory.reserve((4, 8), np.float32)
    block = matrix[: shape[0], : shape[1]]
    exchange.put(np.zeros(shape, dtype=np.float32), block)
    assert exchange.get(block, on_device=True).shape == shape
    assert exchange.get(block, on_device=False).shape == shape


def test_tensors_are_told_the_stream(cupy: StrictCupy, platform: CupyPlatform) -> None:
    """A tensor with DLPack is given the current stream, and its owner keeps the order."""
    exchange, matrix = program(platform)
    tensor = Tensor(array_on(cupy, 1, VALUES), device=(2, 1))
    exchange.put(exchange.taken(tensor), matrix)
    with cupy.cuda.Device(1), cupy.cuda.Stream(non_blocking=True) as stream:
        exchange.put(exchange.taken(tensor), matrix)
    assert tensor.streams == [1, stream.ptr]


def test_tensor_on_the_host(platform: CupyPlatform) -> None:
    """A tensor in the processor's memory is accepted like a NumPy array."""
    tensor = Tensor(VALUES, device=(1, 0))
    exchange, _ = program(platform)
    taken = exchange.taken(tensor)
    assert type(taken) is np.ndarray
    np.testing.assert_array_equal(taken, VALUES)


def test_arrays_that_are_refused(cupy: StrictCupy, platform: CupyPlatform) -> None:
    """An owner's reason is passed on; arrays on another device are not copied silently."""
    exchange, _ = program(platform)
    tensor = Tensor(VALUES, device=(2, 1), error="Can't export tensors that require gradient")
    with pytest.raises(RunError, match="require gradient"):
        exchange.taken(tensor)
    with pytest.raises(RunError, match="on 'cuda:0', the network on 'cuda:1'"):
        exchange.taken(array_on(cupy, 0, VALUES))


def test_cuda_array_interface(cupy: StrictCupy, platform: CupyPlatform) -> None:
    """Arrays of Numba and others, which lack DLPack, are accepted, too."""
    kept = array_on(cupy, 1, VALUES)
    interface = {"shape": (2, 3), "typestr": "<f4", "data": (kept.memory.address, False)}
    value = SimpleNamespace(__cuda_array_interface__=interface)
    exchange, matrix = program(platform)
    with cupy.cuda.Device(1):
        found = exchange.taken(value)
    exchange.put(found, matrix)
    np.testing.assert_array_equal(exchange.get(matrix, on_device=False), VALUES)
