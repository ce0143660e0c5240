"""Products of matrices whose factors are rounded to bfloat16, on processors with AMX.

A bfloat16 is the upper half of a float32: 8 bits of precision, the same range. MKL multiplies such
matrices with AMX several times as fast as float32 ones, and sums in float32. Only the factors of
products with fixed parameters are rounded; everything else stays float32.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cpu.machine import CpuMachine
from nnet3_runtime_cuda.cpu.products import bound_bf16_gemm, has_bf16
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.errors import DeviceError
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.scratch import Workspace

FEWEST_BF16_ROWS = 16
"""Products with fewer rows gain nothing."""

_HALF = np.uint32(1 << 15)
"""Added to the bits of a float32, it rounds the upper half to nearest, and ties away from zero."""

_PROCESSOR = Path("/proc/cpuinfo")


def missing() -> str:
    """The missing parts for products in bfloat16 on this machine; empty if none is missing."""
    if not has_bf16():
        return "MKL (the extra 'mkl')"
    if not _PROCESSOR.exists() or " amx_bf16" not in _PROCESSOR.read_text(encoding="utf-8"):
        return "a processor with AMX"
    return ""


class Bf16Machine(CpuMachine):
    """The processor, with fixed parameters in bfloat16."""

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads)
        lacking = missing()
        if lacking:
            raise DeviceError(f"device 'cpu' computes in 'bf16' only with {lacking}")
        self._rounded: dict[tuple[int, tuple[int, ...], tuple[int, ...]], tuple[Array, Array]] = {}

    def tape(
        self,
        dtype: npt.DTypeLike = np.float32,
        *,
        is_alone: bool = False,
        workspace: Workspace | None = None,
    ) -> NumpyTape:
        """A tape with memory of its own, or that of a workspace; see `Machine.tape`."""
        return Bf16Tape(self, dtype, workspace, None if is_alone else self.workers)

    def rounded(self, parameters: Array) -> Array:
        """Fixed parameters in bfloat16: a copy, made once, of the same layout."""
        key = (parameters.__array_interface__["data"][0], parameters.shape, parameters.strides)
        if key not in self._rounded:
            is_transposed = parameters.strides[0] < parameters.strides[1]
            rows = np.ascontiguousarray(parameters.T if is_transposed else parameters)
            upper = ((rows.view(np.uint32) + _HALF) >> np.uint32(16)).astype(np.uint16)
            # A reference to the parameters keeps others from getting the same address.
            self._rounded[key] = (upper.T if is_transposed else upper), parameters
        return self._rounded[key][0]


class Bf16Tape(NumpyTape):
    """Records products with fixed parameters as products of bfloat16 matrices."""

    def __init__(
        self,
        machine: Bf16Machine,
        dtype: npt.DTypeLike,
        workspace: Workspace | None,
        workers: Workers | None,
    ) -> None:
        super().__init__(dtype, workspace, workers, machine.online)
        self._machine = machine

    def uses_tiles(self) -> bool:
        """False: rounding the sums that tiles make would lose more than rounding the input."""
        return False

    def gains_by_panels(self, rows: int) -> bool:
        """False: panels hold float32 factors."""
        return False

    def _product(self, a: Array, b: Array, out: Array, plus: Array | None) -> None:
        """Records out = a b, or out = plus + a b. Read-only factors are fixed parameters."""
        if b.flags.writeable or len(a) < FEWEST_BF16_ROWS or not _has_float_rows(a):
            super()._product(a, b, out, plus)
            return
        rounded = self.scratch(*a.shape, dtype=np.uint16)
        call = bound_bf16_gemm(rounded, self._machine.rounded(b), out, beta=float(plus is not None))
        if call is None:
            super()._product(a, b, out, plus)
            return
        self._round(a, rounded)
        if plus is not None:
            self.copy(plus, out)
        self.record(call, reads=(rounded, b), writes=(out,))

    def _round(self, a: Array, out: Array) -> None:
        """Records out = the bits of a in bfloat16; both (rows, columns), out uint16."""
        for values, upper in self.row_blocks(a, out):
            part = self.scratch(*values.shape, dtype=np.uint32)
            bits, rounded = values.view(np.uint32), part.view(np.uint16)[:, 1::2]
            self.record(partial(np.add, bits, _HALF, part), reads=(bits,), writes=(part,))
            self.record(partial(np.copyto, upper, rounded), reads=(rounded,), writes=(upper,))


def _has_float_rows(a: Array) -> bool:
    return a.ndim == 2 and a.dtype == np.float32 and a.strides[1] == a.itemsize
