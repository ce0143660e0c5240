"""Matrix products of a device by NumPy, and the memory that they read and write."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
from nnet3_runtime_cuda import DeviceError
from nnet3_runtime_cuda.cuda.platform import Gemm, Matrix
from nnet3_runtime_cuda.operations import Array

from emulated_device.host_memory import BY_DEVICE, Bytes, HostMemory


def _array(matrix: Matrix, rows: int, columns: int, number: int = 0) -> Array:
    """A matrix of a product as an array."""
    if matrix.transposed:
        rows, columns = columns, rows
    size = (rows - 1) * matrix.stride + columns
    address = matrix.address + 4 * number * matrix.batch_stride
    flat = np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))
    array = np.lib.stride_tricks.as_strided(flat, (rows, columns), (4 * matrix.stride, 4))
    return array.T if matrix.transposed else array


def multiply(g: Gemm) -> None:
    """Computes a product."""
    for number in range(g.batch):
        out = _array(g.out, g.rows, g.columns, number)
        a = _array(g.a, g.rows, g.inner, number)
        b = _array(g.b, g.inner, g.columns, number)
        alpha = ctypes.c_float.from_address(g.alpha_at).value if g.alpha_at else g.alpha
        result = np.float32(alpha) * (a @ b)
        if g.beta:
            addend = _array(g.addend or g.out, g.rows, g.columns, number)
            result += np.float32(g.beta) * addend
        if g.bias:
            result += _array(Matrix(address=g.bias, stride=g.columns), 1, g.columns)
        out[...] = np.maximum(result, 0) if g.relu else result


def _written(memory: HostMemory, matrix: Matrix, rows: int, columns: int, number: int = 0) -> Bytes:
    """The marks of the bytes of a matrix of a product, (rows, columns, 4)."""
    address = matrix.address + 4 * number * matrix.batch_stride
    row, column = 4 * matrix.stride, 4
    if matrix.transposed:
        row, column = column, row
    return memory.written(address, (rows, columns, 4), (row, column, 1))


def _operands(g: Gemm) -> Iterator[tuple[str, Matrix, int, int]]:
    """The matrices that a product reads, each with its name, rows and columns."""
    yield "a", g.a, g.rows, g.inner
    yield "b", g.b, g.inner, g.columns
    if g.beta:
        yield "the addend", g.addend or g.out, g.rows, g.columns
    if g.bias:
        yield "the bias", Matrix(address=g.bias, stride=g.columns), 1, g.columns
    if g.alpha_at:
        yield "alpha", Matrix(address=g.alpha_at, stride=1), 1, 1


def check_and_mark(g: Gemm, memory: HostMemory) -> None:
    """Checks that all that a product reads has been written, and marks its output.

    Raises:
        DeviceError: an element that it reads has not been written, or is outside of memory.
    """
    for number in range(g.batch):
        for name, matrix, rows, columns in _operands(g):
            written = _written(memory, matrix, rows, columns, number).all(axis=2)
            if not written.all():
                row, column = np.argwhere(~written)[0]
                raise DeviceError(
                    f"a product of ({g.rows}, {g.inner}) and ({g.inner}, {g.columns}) reads what "
                    f"nothing has written: element ({row}, {column}) of {name}"
                )
        _written(memory, g.out, g.rows, g.columns, number)[...] |= BY_DEVICE
