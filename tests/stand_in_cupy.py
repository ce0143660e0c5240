"""As much of CuPy's arrays as the objective of chain models uses, on the processor.

It refuses what CuPy refuses: an array of NumPy's that was not moved to the device, and becoming an
array of NumPy's. It counts all values that move between the host and the device. `install` puts the
module in the place of CuPy.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from emulated_device.host_platform import HostPlatform

FUNCTIONS = (
    "abs", "ascontiguousarray", "clip", "einsum", "exp", "isfinite", "log", "multiply", "ones",
    "repeat", "stack", "subtract", "vdot", "zeros_like",
)  # fmt: skip
"""Functions of the module that are NumPy's but for the arrays."""
EMPTY = ("empty", "empty_like")
METHODS = ("all", "astype", "copy", "max", "min", "reshape", "sum", "transpose")
"""Methods of arrays that are NumPy's."""
ORDINAL = 0


@attrs.define
class Traffic:
    """The bytes that have moved between host and device, one number for each time.

    Attributes:
        to_device: From the host.
        to_host: From the device; the host waited for it.
    """

    to_device: list[int] = attrs.field(factory=list)
    to_host: list[int] = attrs.field(factory=list)

    def clear(self) -> None:
        """Forgets all."""
        self.to_device.clear()
        self.to_host.clear()


TRAFFIC = Traffic()


class StandIn:
    """The class cupy.ndarray.

    Attributes:
        held: The values, which only this module may touch.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, held: npt.NDArray[Any]) -> None:
        self.held = held

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    __array__ = __array_ufunc__ = __array_function__ = _refuse

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, ORDINAL

    shape = property(lambda self: self.held.shape)
    dtype = property(lambda self: self.held.dtype)
    size = property(lambda self: self.held.size)
    ndim = property(lambda self: self.held.ndim)
    device = property(lambda self: SimpleNamespace(id=ORDINAL))
    T = property(lambda self: StandIn(self.held.T))

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: Any) -> StandIn:
        return StandIn(np.asarray(self.held[_held(index)]))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.held[_held(index)] = _held(value)

    def __float__(self) -> float:
        return float(asnumpy(self))

    def __bool__(self) -> bool:
        return bool(asnumpy(self))

    def take(self, indices: Any, axis: int | None = None, out: Any = None) -> StandIn:
        """Rows or columns; CuPy knows no modes."""
        taken = self.held.take(_held(indices), axis=axis)
        if out is None:
            return StandIn(taken)
        out.held[...] = taken
        return out


def _held(value: Any) -> Any:
    """The numbers of a value; refuses arrays of NumPy."""
    if isinstance(value, StandIn):
        return value.held
    if isinstance(value, tuple | list):
        return type(value)(_held(each) for each in value)
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def _wrapped(function: Callable[..., Any]) -> Callable[..., StandIn]:
    """A function of NumPy for arrays of the stand-in."""

    @functools.wraps(function, updated=())
    def wrapped(*arguments: Any, **options: Any) -> StandIn:
        options = {name: _held(value) for name, value in options.items()}
        return StandIn(np.asarray(function(*_held(arguments), **options)))

    return wrapped


def _in_place(function: Callable[[Any, Any], Any]) -> Callable[[StandIn, Any], StandIn]:
    def changed(self: StandIn, other: Any) -> StandIn:
        function(self.held, _held(other))
        return self

    return changed


for _name in METHODS:
    setattr(StandIn, _name, _wrapped(getattr(np.ndarray, _name)))
for _name in ("add", "sub", "mul", "truediv", "matmul"):
    _function = getattr(operator, _name)
    setattr(StandIn, f"__{_name}__", _wrapped(_function))
    setattr(StandIn, f"__r{_name}__", _wrapped(lambda a, b, f=_function: f(b, a)))
    if _name != "matmul":
        setattr(StandIn, f"__i{_name}__", _in_place(getattr(operator, f"i{_name}")))
for _name in ("lt", "le", "gt", "ge", "neg"):
    setattr(StandIn, f"__{_name}__", _wrapped(getattr(operator, _name)))


def asarray(value: Any, dtype: Any = None) -> StandIn:
    """An array on the device; one of NumPy's is moved there."""
    if isinstance(value, StandIn):
        return value
    array = np.array(value, dtype=dtype)
    TRAFFIC.to_device.append(array.nbytes)
    return StandIn(array)


def asnumpy(value: StandIn) -> npt.NDArray[Any]:
    """The values on the host."""
    TRAFFIC.to_host.append(value.held.nbytes)
    return value.held.copy()


def _without_values(function: Callable[..., Any]) -> Callable[..., StandIn]:
    """Memory in which there are no numbers yet."""

    def made(*arguments: Any, **options: Any) -> StandIn:
        array = function(*_held(arguments), **options)
        array.fill(np.nan)
        return StandIn(array)

    return made


def _device(ordinal: int) -> contextlib.AbstractContextManager[None]:
    """The class cupy.cuda.Device."""
    assert ordinal == ORDINAL
    return contextlib.nullcontext()


class StandInMatrix:
    """The class cupyx.scipy.sparse.csr_matrix."""

    def __init__(self, matrix: Any) -> None:
        """Moves a sparse matrix of SciPy's to the device."""
        assert scipy.sparse.issparse(matrix)
        self._held = scipy.sparse.csr_matrix(matrix)
        parts = (self._held.data, self._held.indices, self._held.indptr)
        TRAFFIC.to_device.extend(part.nbytes for part in parts)

    def __matmul__(self, other: Any) -> StandIn:
        """A product with a dense matrix; its columns are contiguous, as cuSPARSE makes them."""
        if not isinstance(other, StandIn):
            return NotImplemented
        return StandIn(np.asfortranarray(self._held @ other.held))


def install(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """Puts the stand-in in CuPy's place; returns its counters."""
    cupy = ModuleType("cupy")
    cupy.ndarray, cupy.asarray, cupy.asnumpy = StandIn, asarray, asnumpy  # type: ignore[attr-defined]
    cupy.cuda = SimpleNamespace(Device=_device)  # type: ignore[attr-defined]
    for name in FUNCTIONS:
        setattr(cupy, name, _wrapped(getattr(np, name)))
    for name in EMPTY:
        setattr(cupy, name, _without_values(getattr(np, name)))
    cupyx, inner, sparse = (ModuleType(f"cupyx{rest}") for rest in ("", ".scipy", ".scipy.sparse"))
    cupyx.scipy, inner.sparse = inner, sparse  # type: ignore[attr-defined]
    sparse.csr_matrix = StandInMatrix  # type: ignore[attr-defined]
    for module in (cupy, cupyx, inner, sparse):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    TRAFFIC.clear()
    return TRAFFIC


class HostWithArrays(HostPlatform):
    """The processor as a platform, in whose memory the stand-in's arrays are; it counts, too."""

    ordinal = ORDINAL

    def upload(self, address: int, array: npt.NDArray[Any]) -> None:
        """Copies a contiguous array to memory."""
        TRAFFIC.to_device.append(array.nbytes)
        super().upload(address, array)

    def download(self, address: int, array: npt.NDArray[Any]) -> None:
        """Copies memory to a contiguous array."""
        TRAFFIC.to_host.append(array.nbytes)
        super().download(address, array)

    def adopt(self, value: Any) -> Any:
        """An array of the stand-in as it is."""
        assert isinstance(value, StandIn)
        return value

    def copy_from(self, array: Any, address: int) -> None:
        """Copies an array to memory, which is no traffic."""
        super().upload(address, np.ascontiguousarray(array.held, dtype=np.float32))

    def copy_of(self, address: int, shape: tuple[int, ...]) -> StandIn:
        """A copy of memory as an array, which is no traffic."""
        array = np.empty(shape, dtype=np.float32)
        if array.size:
            super().download(address, array)
        return StandIn(array)
