"""The modules that compute with arrays: NumPy and SciPy, or CuPy on a CUDA device.

The formulas of the objective are written once for both. This module holds the differences.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_training.errors import ExampleError
from nnet3_training.example_arrays import array_of

_HOST = -1


@attrs.frozen(kw_only=True, eq=False)
class ArrayModules:
    """NumPy and SciPy's sparse matrices, or CuPy and its own.

    Attributes:
        arrays: The module of arrays, `numpy` or `cupy`.
        sparse: The module of sparse matrices, `scipy.sparse` or `cupyx.scipy.sparse`; its
            `csr_matrix` takes those of SciPy, and multiplies arrays.
        device: The number of the CUDA device; -1 for the processor.
    """

    arrays: Any
    sparse: Any
    device: int

    @property
    def is_host(self) -> bool:
        """Whether arrays are NumPy's."""
        return self.device == _HOST

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Makes the device the current one within: CuPy works there."""
        if self.is_host:
            return contextlib.nullcontext()
        device: contextlib.AbstractContextManager[object] = self.arrays.cuda.Device(self.device)
        return device

    def put(self, array: npt.NDArray[Any]) -> Any:
        """An array of NumPy as one of the module."""
        return self.arrays.asarray(array)

    def get(self, array: Any) -> npt.NDArray[Any]:
        """An array of the module as one of NumPy; waits for the device."""
        found: npt.NDArray[Any] = array if self.is_host else self.arrays.asnumpy(array)
        return found

    def numbers(self, values: Sequence[Any]) -> list[float]:
        """Arrays of one element, moved together."""
        stacked = self.arrays.stack([value.astype(np.float64) for value in values])
        found: list[float] = self.get(stacked).tolist()
        return found

    def take_rows(self, source: Any, rows: Any, out: Any) -> None:
        """Copies rows of a matrix.

        Args:
            source: (rows, columns).
            rows: (n,) int32, rows of the source.
            out: (n, columns), the destination.
        """
        # With the default mode NumPy checks for missing rows and works on a copy of `out`, so that
        # it can undo its work. CuPy has no modes.
        mode = {"mode": "clip"} if self.is_host else {}
        source.take(rows, axis=0, out=out, **mode)


def modules_of(array: Any) -> ArrayModules:
    """The modules that compute with an array of NumPy or CuPy."""
    if isinstance(array, np.ndarray):
        import scipy.sparse  # takes a while, and only 'chain' training needs it

        return ArrayModules(arrays=np, sparse=scipy.sparse, device=_HOST)
    import cupy
    import cupyx.scipy.sparse

    return ArrayModules(arrays=cupy, sparse=cupyx.scipy.sparse, device=array.device.id)


def float_array(values: Any) -> Any:
    """Values as a C-contiguous array: float64 stays float64, any other type becomes float32.

    Args:
        values: A NumPy array, or values that NumPy can read as one; or an array on a CUDA device
            (CuPy, PyTorch or another library), which stays there as a CuPy array.

    Raises:
        ExampleError: they are not an array of real numbers, or are masked.
    """
    arrays: Any = np
    if hasattr(values, "__cuda_array_interface__"):
        import cupy

        arrays = cupy
        array = arrays.asarray(values)
    else:
        array = array_of(values, "outputs (rows, pdfs)")
    if array.dtype.kind not in "fiub":
        raise ExampleError(f"expected outputs of real numbers, found {array.dtype}")
    wanted = np.float64 if array.dtype == np.float64 else np.float32
    return arrays.ascontiguousarray(array, dtype=wanted)
